"""Finding and ending processes of ours that nobody may hold a handle on any more."""

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

POLL_SECONDS = 0.02


def working_in(folder: Path, program: str) -> list[psutil.Process]:
    """Returns the running processes of a program whose working folder this is.

    Dead ones that their parent has not collected yet (some containers have a first process that never does) are not
    running: they have no working folder.
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
            continue  # Another account's, or gone since: not ours.
    return found


def end(find: Callable[[], Iterable[psutil.Process]], *, polite_seconds: float, forced_seconds: float = 10) -> bool:
    """Ends what `find` finds, politely, after that by force; tells whether nothing is left."""
    for process in find():
        _signal(process.terminate)
    if wait_gone(find, polite_seconds):
        return True
    for process in find():
        _signal(process.kill)
    return wait_gone(find, forced_seconds)


def wait_gone(find: Callable[[], Iterable[psutil.Process]], seconds: float) -> bool:
    """Waits until `find` finds nothing; tells whether it came to that."""
    deadline = time.monotonic() + seconds
    while list(find()):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _signal(send: Callable[[], None]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # It went by itself.
        send()
