"""manage.py: what a person can mend is one line and exit status 1; the trace is there for who asks for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import environment_without_run
from ticketing.devserver.ports import free_port

RUN_SECONDS_MAX = 60


def manage(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "manage.py", *arguments],
        cwd=checkout,
        env={**environment_without_run(), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )


def refused(checkout: Path, *arguments: str, **environment: str) -> str:
    """Runs a command that cannot run; returns the one line that it says."""
    done = manage(checkout, *arguments, **environment)
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    return line


def away() -> str:
    return f"postgres://a:b@127.0.0.1:{free_port()}/c"


@pytest.mark.parametrize("command", ["audit", "deliver_outbox", "relay", "gatekeeper", "load_demo", "migrate"])
def test_without_a_demo_every_command_says_so_in_one_line(bare_checkout: Path, command: str) -> None:
    assert "no demo of this checkout runs" in refused(bare_checkout, command, SECRET_KEY="of-this-test")


@pytest.mark.parametrize("command", ["audit", "deliver_outbox", "relay", "gatekeeper", "migrate"])
def test_a_database_that_does_not_answer_is_one_line(bare_checkout: Path, command: str) -> None:
    line = refused(bare_checkout, command, SECRET_KEY="of-this-test", DATABASE_URL=away())
    assert line.startswith(f"manage.py {command}: the database failed: ")
    assert "Connection refused" in line


def test_who_asks_for_the_trace_gets_it(bare_checkout: Path) -> None:
    done = manage(bare_checkout, "audit", "--traceback", DATABASE_URL=away())
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DATABASE_URL", "garbage"),
        ("DATABASE_DIRECT_URL", "mysql://a:b@127.0.0.1/c"),
        ("REDIS_URL", "nonsense"),
        ("DATABASE_LOCK_TIMEOUT_MS", "soon"),
    ],
)
def test_a_setting_that_cannot_be_read_is_one_line_with_its_name(
    bare_checkout: Path, variable: str, value: str
) -> None:
    assert variable in refused(bare_checkout, "audit", **{variable: value})
