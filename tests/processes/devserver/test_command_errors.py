"""If the operator can fix an error, manage.py prints it in one line and ends with exit status 1. `--traceback` shows
the traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import environment_without_run
from ticketing.devserver.ports import free_port

RUN_SECONDS_MAX = 180


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


def error_line(checkout: Path, *arguments: str, **environment: str) -> str:
    """Run a command that must fail with exit status 1, and return the one line of its error output."""
    done = manage(checkout, *arguments, **environment)
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    return line


def unreachable_database_url() -> str:
    return f"postgres://a:b@127.0.0.1:{free_port()}/c"


@pytest.mark.parametrize(
    "command", ["audit", "deliver_outbox", "relay", "gatekeeper", "mailer", "load_demo", "migrate"]
)
def test_without_a_running_demo_every_command_says_so_in_one_line(bare_checkout: Path, command: str) -> None:
    assert "no demo of this checkout runs" in error_line(bare_checkout, command, SECRET_KEY="of-this-test")


@pytest.mark.parametrize("command", ["audit", "deliver_outbox", "relay", "gatekeeper", "mailer", "migrate"])
def test_an_unreachable_database_is_reported_in_one_line(bare_checkout: Path, command: str) -> None:
    line = error_line(bare_checkout, command, SECRET_KEY="of-this-test", DATABASE_URL=unreachable_database_url())
    assert line.startswith(f"manage.py {command}: the database failed: ")
    assert "Connection refused" in line


def test_the_traceback_option_shows_the_traceback(bare_checkout: Path) -> None:
    done = manage(bare_checkout, "audit", "--traceback", DATABASE_URL=unreachable_database_url())
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
def test_an_invalid_setting_is_reported_by_name_in_one_line(bare_checkout: Path, variable: str, value: str) -> None:
    assert variable in error_line(bare_checkout, "audit", **{variable: value})
