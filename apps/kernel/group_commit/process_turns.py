"""Turns between the processes of one machine: who commits for a key, so that the others gather meanwhile.

Two processes that commit holds of general admission for one event at once only meet at its row, each with half a batch
in its hands and locks on everything in it. Waiting first and taking up the batch then, each commits as much as has come
until its turn: fewer and larger transactions, and a transaction costs far more than one more request in it. So do
batches that mix many events, which meet at all of their rows. Where batches meet at no one row (named seats), side by
side is as good, and they take no turns.

Nothing hangs on it. What may be taken is decided by the ledger's locks, on one machine or several; a turn that does not
come within moments is gone without, and one whose process dies is free with it.
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
"""About a large batch's time. Where batches take longer, processes go on side by side."""
POLL_MS = 0.5
_OFFSET_COUNT = 2**31


class Turns:
    """One byte of a file for each key, locked by the process whose turn it is. Not between threads: a process that has
    a turn has it for all of them."""

    def __init__(self, file: Path) -> None:
        self._file = file
        # Never closed: with any descriptor of the file that a process closes, all of its locks on it would go.
        self._descriptor: int | None = None

    @contextmanager
    def acquired(self, key: Hashable) -> Iterator[None]:
        """The turn for the block, if there is one to be waited for (a key) and it comes."""
        has_turn = key is not None and self.begin(key)
        try:
            yield
        finally:
            if has_turn:
                self.end(key)

    def begin(self, key: Hashable, *, wait_ms: float = WAIT_MS) -> bool:
        """Whether the turn is this process's now; it is given back by `end`. False: it did not come in time, or no such
        file is to be had."""
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
                logger.warning("no turns in %s, so batches are smaller: %s", self._file, error)
                return False
            else:
                return True

    def end(self, key: Hashable) -> None:
        """The turn is anybody's."""
        if self._descriptor is not None:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _offset_of(key))


def _offset_of(key: Hashable) -> int:
    # Two keys that share a place wait for each other now and then. Python's own hash is another in each process.
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=4).digest()) % _OFFSET_COUNT
