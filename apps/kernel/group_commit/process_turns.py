"""Turns among the processes of one machine: one commits for a key while the others gather requests.

Two processes that commit general-admission holds of one event at the same time collide at the same row, each with half
a batch and with locks on everything in that half. If a process waits for its turn before it takes a batch, it commits
all requests that have arrived by then: transactions are fewer and larger, and a transaction costs far more than one
more request in it. The same applies to batches that mix many events, which collide at all of their rows. Batches that
share no row (named seats) run side by side equally well and take no turns.

Turns are only an optimization: the locks of the database decide what may be taken, on one machine or several. A process
that does not get its turn soon continues without it, and the turn of a process that dies is free at once.
"""

import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)

WAIT_MS = 25.0
"""The longest wait for a turn, about the time of a large batch. After it, processes commit side by side."""
POLL_MS = 0.5
_OFFSET_COUNT = 2**31


class Turns:
    """One byte of a file for each key, locked by the process whose turn it is. A turn belongs to all threads of its
    process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        # Never closed: closing any descriptor of the file releases all locks that the process has on it.
        self._descriptor: int | None = None

    @contextmanager
    def acquired(self, key: Hashable) -> Iterator[None]:
        """Hold the turn during the block, if there is a key and the turn is free in time."""
        has_turn = key is not None and self.begin(key)
        try:
            yield
        finally:
            if has_turn:
                self.end(key)

    def begin(self, key: Hashable, *, wait_ms: float = WAIT_MS) -> bool:
        """Take the turn, which `end` releases. Return False if it was not free in time or the file cannot be used."""
        until = time.monotonic() + wait_ms / 1_000
        while True:
            try:
                if self._descriptor is None:
                    self._file.parent.mkdir(parents=True, exist_ok=True)
                    self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _offset_of(key))
            except BlockingIOError:
                if time.monotonic() >= until:
                    return False
                time.sleep(POLL_MS / 1_000)
            except OSError as error:
                logger.warning("%s cannot be used for turns, so batches are smaller: %s", self._file, error)
                return False
            else:
                return True

    def end(self, key: Hashable) -> None:
        """Release the turn."""
        if self._descriptor is not None:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _offset_of(key))


def _offset_of(key: Hashable) -> int:
    # Two keys with the same offset sometimes wait for each other. Python's own hash differs between processes.
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=4).digest()) % _OFFSET_COUNT
