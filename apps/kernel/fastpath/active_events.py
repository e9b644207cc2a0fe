"""The events that are active on this machine, shared by its processes in a small memory-mapped file.

All buyers of one event may be connected to one process and those of another event to a second process, and the two
share only the machine's processors. So each process notes the events that have many requests, and every process sees
whether another event is active. Few requests make no event active: they wait for one group of the busy event's at most,
and otherwise two requests a second for another event would halve the rate of a sale. A note is eight bytes in the
event's slot. Two events with the same slot count as one, and a note that is read while it is being written may be
wrong. Only concurrency limits and pauses depend on the notes.
"""

import hashlib
import logging
import mmap
import os
import struct
from collections import deque
from pathlib import Path

logger = logging.getLogger(__name__)

REQUESTS_MIN = 10
"""Requests that a process gets within ACTIVE_SECONDS for an event that is active."""
ACTIVE_SECONDS = 1.0
"""How long an event counts as active after its last note."""
NOTE_SECONDS = 0.1
"""The shortest interval between two notes of one event, and between two reads of all notes."""
_SLOT_COUNT = 512
_ALL = struct.Struct(f"={_SLOT_COUNT}d")
_ONE = struct.Struct("=d")


class ActiveEvents:
    """The active events, as one process sees them. For one thread. `file` is shared by the processes of one machine,
    as is its clock. If it cannot be written (no permission, full disk), the process sees only its own events."""

    def __init__(self, file: Path, *, requests_min: int = REQUESTS_MIN) -> None:
        self._file = file
        self._requests_min = requests_min
        self._map: mmap.mmap | bytearray | None = None
        self._refreshed_at = 0.0
        self._active: frozenset[int] = frozenset()
        self._noted: dict[int, float] = {}
        self._requests: dict[int, deque[float]] = {}
        """The times of each event's latest requests, as many as make it active."""

    def note(self, slot: int, now: float) -> None:
        """Count a request for the event of this slot, and note the event if it is active. `now`: from
        `time.monotonic`."""
        times = self._requests.get(slot)
        if times is None:
            times = self._requests[slot] = deque(maxlen=self._requests_min)
        times.append(now)
        is_active = len(times) == self._requests_min and now - times[0] <= ACTIVE_SECONDS
        if is_active and now - self._noted.get(slot, 0.0) >= NOTE_SECONDS:
            self._noted[slot] = now
            _ONE.pack_into(self._mapped(), slot * _ONE.size, now)
            self._active |= {slot}

    def is_any_other_active(self, slot: int, now: float) -> bool:
        """Return whether an event of another slot was active within the last second. Notes of other processes are
        up to a tenth of a second old."""
        if now - self._refreshed_at >= NOTE_SECONDS:
            self._refreshed_at = now
            # A time in the future was noted before the machine restarted.
            noted = enumerate(_ALL.unpack_from(self._mapped()))
            self._active = frozenset([slot for slot, at in noted if now - ACTIVE_SECONDS <= at <= now])
        return len(self._active) > (slot in self._active)

    def _mapped(self) -> "mmap.mmap | bytearray":
        if self._map is None:
            try:
                self._map = _map(self._file)
            except (OSError, ValueError) as error:
                logger.warning("cannot use %s, so the events of other processes are not seen: %s", self._file, error)
                self._map = bytearray(_ALL.size)
        return self._map


def slot_of(event: str) -> int:
    """Return the event's slot."""
    # Python's own hash differs between processes.
    return int.from_bytes(hashlib.blake2b(event.encode(), digest_size=4).digest()) % _SLOT_COUNT


def _map(file: Path) -> mmap.mmap:
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        is_new = os.fstat(descriptor).st_size != _ALL.size
        if is_new:
            os.ftruncate(descriptor, _ALL.size)
        # Without allocated disk space, a write to the map would not raise an error but kill the process.
        allocate = getattr(os, "posix_fallocate", None)
        if allocate:
            allocate(descriptor, 0, _ALL.size)
        elif is_new:  # macOS: writing zeros allocates the blocks, and raises the same error on a full disk.
            os.pwrite(descriptor, bytes(_ALL.size), 0)
        return mmap.mmap(descriptor, _ALL.size)
    finally:
        os.close(descriptor)
