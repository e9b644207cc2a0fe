"""The supervisor restarts a killed process, ends if a process cannot start, and ends all processes when stopped."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.servers import CHECKOUT, environment_without_run
from ticketing.devserver import supervisor
from ticketing.devserver.supervisor import RestartPolicy

WAIT_SECONDS_MAX = 60


@contextmanager
def run_supervisor(folder: Path, *lines: str) -> Iterator[subprocess.Popen[str]]:
    procfile = folder / "Procfile"
    procfile.write_text("\n".join(lines) + "\n")
    opened = subprocess.Popen(
        [sys.executable, "-u", "-m", "ticketing.devserver.supervisor", str(procfile)],
        cwd=CHECKOUT,
        env={**environment_without_run(), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield opened
    finally:
        for process in [opened, *psutil.Process(opened.pid).children(recursive=True)] if opened.poll() is None else []:
            process.kill()
        opened.wait(WAIT_SECONDS_MAX)
        assert opened.stdout
        opened.stdout.close()


def read_until(opened: subprocess.Popen[str], words: str) -> str:
    """Return the next line that contains these words."""
    assert opened.stdout
    return next(line for line in opened.stdout if words in line)


def test_a_killed_process_is_restarted_although_its_child_holds_its_pipe(tmp_path: Path) -> None:
    with run_supervisor(tmp_path, "first: sleep 1000 & echo child $! of $$; wait", "other: exec sleep 1000") as opened:
        words = read_until(opened, "child ").split()
        child, process = int(words[-3]), int(words[-1])
        os.kill(process, signal.SIGKILL)
        assert "killed by signal 9" in read_until(opened, "first ended")
        again = int(read_until(opened, "child ").split()[-1])
        assert again != process
        assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
        opened.terminate()
        assert opened.wait(WAIT_SECONDS_MAX) in (0, 143)
        assert not psutil.pid_exists(again)


def test_a_process_that_cannot_start_ends_the_supervisor_with_its_exit_status(tmp_path: Path) -> None:
    with run_supervisor(tmp_path, "bad: exit 3", "good: exec sleep 1000") as opened:
        assert "ended (exit status 3) and is not restarted" in read_until(opened, "bad ended")
        assert opened.wait(WAIT_SECONDS_MAX) == 3


def test_restarts_end_after_a_failed_start_or_too_many_deaths_and_are_allowed_again_later() -> None:
    young = supervisor.FIRST_LIFE_SECONDS_MIN - 0.1
    assert not RestartPolicy(0.0).allows(young, killed=False)
    assert RestartPolicy(0.0).allows(young, killed=True)
    policy = RestartPolicy(0.0)
    deaths = [10.0 + number for number in range(supervisor.RESTARTS_MAX)]
    assert all(policy.allows(at, killed=False) for at in deaths)
    assert not policy.allows(deaths[-1] + 1, killed=True)
    assert policy.allows(deaths[-1] + supervisor.RESTARTS_WITHIN_SECONDS, killed=False)
