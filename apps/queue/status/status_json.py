"""What somebody who waits is told, as the text of the answer: everything that is the same for all who wait is written
once for each board, and only the numbers for each who asks. The same as `status_answer` of
`estimates.estimate_for_number`; the tests hold one against the other."""

import math

import msgspec

from apps.queue.models import WaitingRoom
from apps.queue.snapshot.room_snapshot import RoomSnapshot
from apps.queue.status import estimates

SNAPSHOTS_MAX = 1_000


class StatusEncoder:
    """One board's answers to numbers above its head, in a room that goes or has paused."""

    __slots__ = ("_begin", "_ceiling", "_claim_seconds", "_end", "_head", "_rate", "_snapshot")

    def __init__(self, board: RoomSnapshot) -> None:
        known = estimates.estimate_for_number(board, board.head + 1)
        self._snapshot = board
        self._head = board.head
        self._ceiling, self._claim_seconds = board.rate_ceiling, board.claim_seconds
        # Without it the wait is reckoned in two parts; the first tick ends that.
        self._rate = estimates.expected_rate(board) if estimates.has_steady_rate(board) else None
        status = msgspec.json.encode(known.status).decode()
        rest = {"tickets_left": known.tickets_left, "message": known.message, "rate_per_second": known.rate}
        self._begin = f'{{"status":{status},"position_in_queue":'.encode()
        self._end = b"," + msgspec.json.encode(rest)[1:]

    def to(self, number: int) -> bytes:
        """The answer's text to this number, which is above the head."""
        ahead = number - self._head
        rate = self._rate
        likely = ahead / rate if rate is not None else estimates.seconds_until(self._snapshot, ahead)
        numbers = b'%d,"number":%d,"estimated_wait_time":%d,"estimated_wait_range":[%d,%d],"next_poll":%d' % (
            ahead,
            number,
            math.ceil(likely),
            ahead // self._ceiling,
            math.ceil(likely * estimates.RANGE_HIGH),
            estimates.next_poll_ms(ahead, self._ceiling, self._claim_seconds),
        )
        return self._begin + numbers + self._end


_encoders: dict[int, tuple[RoomSnapshot, StatusEncoder]] = {}


def encode_status(board: RoomSnapshot, number: int) -> bytes | None:
    """The whole answer to this number above the board's head, or None where it is not to be had this way: a lobby, a
    room that is drained."""
    known = _encoders.get(board.event_id)
    if known is None or known[0] is not board:
        if board.state == WaitingRoom.State.DRAINED:
            return None
        if len(_encoders) >= SNAPSHOTS_MAX:
            _encoders.clear()
        known = _encoders[board.event_id] = (board, StatusEncoder(board))
    return known[1].to(number)
