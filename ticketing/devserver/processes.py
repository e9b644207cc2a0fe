"""Find and end processes of this project that were started by another process."""

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

POLL_SECONDS = 0.02
FORCED_SECONDS = 10


def working_in(folder: Path, program: str) -> list[psutil.Process]:
    """Return the running processes of a program with this working folder.

    Zombies (in some containers the first process never collects them) have no working folder, so they are left out.
    """
    wanted = str(folder.resolve())
    found = []
    for process in psutil.process_iter(["name"]):
        if not (process.info["name"] or "").startswith(program):
            continue
        try:
            if process.cwd() == wanted:
                found.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue  # Another account's process, or one that has just ended.
    return found


def end(find: Callable[[], Iterable[psutil.Process]], *, polite_seconds: float) -> bool:
    """End the processes that `find` returns, by request and then by force. Return whether none is left."""
    for send, seconds in ((psutil.Process.terminate, polite_seconds), (psutil.Process.kill, FORCED_SECONDS)):
        for process in find():
            with contextlib.suppress(psutil.NoSuchProcess):  # It has ended already.
                send(process)
        if wait_gone(find, seconds):
            return True
    return False


def wait_gone(find: Callable[[], Iterable[psutil.Process]], seconds: float) -> bool:
    """Wait until `find` returns nothing. Return False if processes are left after the time."""
    deadline = time.monotonic() + seconds
    while list(find()):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
