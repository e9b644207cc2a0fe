"""Encodes the status of a waiting visitor. The parts that all visitors share are encoded once per snapshot. The result
equals `status_answer` of `estimates.estimate_for_number`; tests compare the two."""

import math

import msgspec

from apps.kernel.fastpath import cache
from apps.queue.models import WaitingRoom
from apps.queue.snapshot.room_snapshot import RoomSnapshot
from apps.queue.status import estimates
from apps.queue.status.wait_model import WaitModel

SNAPSHOTS_MAX = 1_000


class StatusEncoder:
    """Encodes one snapshot's status of numbers above its head, for a room that is open or paused."""

    __slots__ = (
        "_begin", "_ceiling", "_claim_seconds", "_end", "_factors", "_fast_count", "_fast_seconds", "_head",
        "_noise_count", "_slow_offset", "_slow_seconds",
    )  # fmt: skip

    def __init__(self, snapshot: RoomSnapshot) -> None:
        known = estimates.estimate_for_number(snapshot, snapshot.head + 1)
        self._head = snapshot.head
        self._ceiling, self._claim_seconds = snapshot.rate_ceiling, snapshot.claim_seconds
        model = WaitModel.of(snapshot)
        self._fast_count, self._fast_seconds = model.fast_count, model.fast_seconds
        self._slow_offset, self._slow_seconds = model.slow_offset, model.slow_seconds
        self._noise_count, self._factors = model.noise_count, model.factors
        status = msgspec.json.encode(known.status).decode()
        rest = {"tickets_left": known.tickets_left, "message": known.message, "rate_per_second": known.rate}
        self._begin = f'{{"status":{status},"position_in_queue":'.encode()
        self._end = b"," + msgspec.json.encode(rest)[1:]

    def to(self, number: int) -> bytes:
        """Return the JSON for this number, which is above the head."""
        ahead = number - self._head
        # WaitModel.likely_seconds and WaitModel.interval, without two calls for each poll.
        if ahead <= self._fast_count:
            likely = ahead * self._fast_seconds
        else:
            likely = self._slow_offset + ahead * self._slow_seconds
        low, high = self._factors[(ahead if ahead < self._noise_count else self._noise_count).bit_length()]
        numbers = b'%d,"number":%d,"estimated_wait_time":%d,"estimated_wait_range":[%d,%d],"next_poll":%d' % (
            ahead,
            number,
            math.ceil(likely),
            likely * low,
            math.ceil(likely * high),
            estimates.next_poll_ms(ahead, self._ceiling, self._claim_seconds),
        )
        return self._begin + numbers + self._end


_encoders: dict[int, tuple[RoomSnapshot, StatusEncoder]] = cache.register({})


def encode_status(snapshot: RoomSnapshot, number: int) -> bytes | None:
    """Return the JSON for this number, which is above the snapshot's head. None for a drained room."""
    known = _encoders.get(snapshot.event_id)
    if known is None or known[0] is not snapshot:
        if snapshot.state == WaitingRoom.State.DRAINED:
            return None
        if len(_encoders) >= SNAPSHOTS_MAX:
            _encoders.clear()
        known = _encoders[snapshot.event_id] = (snapshot, StatusEncoder(snapshot))
    return known[1].to(number)
