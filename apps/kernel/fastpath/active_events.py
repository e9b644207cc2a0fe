"""Which events are active on this machine, as all its processes see it: a small file that they have mapped.

The buyers of one event may all be connected to one process and another event's crowd to its neighbour, which shares
nothing with it but the processors. So each process notes for which events it was asked, and any can tell whether
somebody else is active. A note is eight bytes at a place of the event's: two events at one place count as one, and a
note that is read while it is written is wrong for a moment. Nothing hangs on it but who rests.
"""

import hashlib
import logging
import mmap
import os
import struct
from pathlib import Path

logger = logging.getLogger(__name__)

ACTIVE_SECONDS = 1.0
"""So long after it was last asked for an event still counts as active."""
NOTE_SECONDS = 0.1
"""So often an event's activity is noted, and the others' looked at."""
_SLOT_COUNT = 512
_ALL = struct.Struct(f"={_SLOT_COUNT}d")
_ONE = struct.Struct("=d")


class ActiveEvents:
    """`file`: shared by the processes of one machine, whose monotonic clock they share too. Without it (a folder that
    cannot be written, a disk that is full) a process sees only itself. For one thread."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._map: mmap.mmap | bytearray | None = None
        self._refreshed_at = 0.0
        self._active: frozenset[int] = frozenset()
        self._noted: dict[int, float] = {}

    def note(self, place: int, now: float) -> None:
        """The event at this place was asked for; `now` is the moment by `time.monotonic`."""
        if now - self._noted.get(place, 0.0) >= NOTE_SECONDS:
            self._noted[place] = now
            _ONE.pack_into(self._mapped(), place * _ONE.size, now)
            self._active |= {place}

    def is_any_other_active(self, place: int, now: float) -> bool:
        """Whether an event at another place was asked for within the last second; another process's, up to a tenth of a
        second ago."""
        if now - self._refreshed_at >= NOTE_SECONDS:
            self._refreshed_at = now
            # A time to come is another start of the machine's clock.
            noted = enumerate(_ALL.unpack_from(self._mapped()))
            self._active = frozenset([place for place, at in noted if now - ACTIVE_SECONDS <= at <= now])
        return len(self._active) > (place in self._active)

    def _mapped(self) -> "mmap.mmap | bytearray":
        if self._map is None:
            try:
                self._map = _map(self._file)
            except (OSError, ValueError) as error:
                logger.warning("no activity in %s, so other processes' events are not seen: %s", self._file, error)
                self._map = bytearray(_ALL.size)
        return self._map


def slot_of(event: str) -> int:
    """Where the event's activity is noted."""
    # Python's own hash is another in each process.
    return int.from_bytes(hashlib.blake2b(event.encode(), digest_size=4).digest()) % _SLOT_COUNT


def _map(file: Path) -> mmap.mmap:
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        is_new = os.fstat(descriptor).st_size != _ALL.size
        if is_new:
            os.ftruncate(descriptor, _ALL.size)
        # A note that found no room on the disk would not fail: it would end the process.
        allocate = getattr(os, "posix_fallocate", None)
        if allocate:
            allocate(descriptor, 0, _ALL.size)
        elif is_new:  # macOS: written zeros take their blocks, and raise the same error on a full disk.
            os.pwrite(descriptor, bytes(_ALL.size), 0)
        return mmap.mmap(descriptor, _ALL.size)
    finally:
        os.close(descriptor)
