"""The slot of slow runs: of the processes of one worker, one at a time executes a run that may take seconds.

So the other processes of the worker always serve its other queues, and light runs. The lock is one of a file that a
worker opens before it starts its processes: it ends with the process that has it, however that ends.
"""

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _open_file() -> int:
    """Open a file without a name; on Linux it needs no folder that can be written to."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("slow-slot")
    file, path = tempfile.mkstemp()
    Path(path).unlink()
    return file


_file = _open_file()
_threads = threading.Lock()
"""Locks of a file do not exclude the threads of one process."""


class Slot:
    """`is_taken` says whether this thread may execute a slow run, until the slot is released."""

    def __init__(self, *, is_taken: bool) -> None:
        self.is_taken = is_taken

    def release(self) -> None:
        if self.is_taken:
            self.is_taken = False
            fcntl.lockf(_file, fcntl.LOCK_UN)
            _threads.release()


@contextmanager
def take() -> Iterator[Slot]:
    """Take the slot if it is free, for the time of the context at most. Does not wait."""
    slot = Slot(is_taken=_try_lock())
    try:
        yield slot
    finally:
        slot.release()


def _try_lock() -> bool:
    if not _threads.acquire(blocking=False):
        return False
    try:
        fcntl.lockf(_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        _threads.release()
        return False
    return True
