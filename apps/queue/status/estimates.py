"""What somebody in line can expect: the position, an honest interval, and when to ask again."""

import math
import random
from dataclasses import dataclass
from datetime import datetime

from apps.kernel import clock
from apps.queue.entries.positions import EntryView
from apps.queue.models import WaitingRoom
from apps.queue.room.admission import burst
from apps.queue.snapshot import room_snapshot
from apps.queue.snapshot.room_snapshot import RoomSnapshot
from apps.queue.status import drawn_numbers

NEXT_POLL_READY_MS = 15_000
NEXT_POLL_ENDED_MS = 60_000
NEXT_POLL_MIN_MS = 1_000
NEXT_POLL_MAX_MS = 300_000
JITTER = 0.2
"""A poll comes up to this share early, so that those who joined together do not ask together."""
RANGE_HIGH = 1.5
"""Visitors keep their slots for as long as they like: the far end of the interval is this much later."""
LOBBY_POLLS_PER_SECOND = 2_000
"""A lobby asks for its numbers no faster than this, as far as the claim time allows."""
LOBBY_SPREAD_MIN_MS = 2_000

_random = random.Random()  # noqa: S311 - It only spreads polls; asking the system each time would cost more.


@dataclass(frozen=True, slots=True)
class WaitEstimate:
    status: str
    """As the public contract names it."""
    ahead: int | None
    """Numbers still to be reached; 0 from ready on, None in the lobby."""
    wait_seconds: int
    """In the lobby: until the on-sale opens and places are drawn."""
    wait_range: tuple[int, int]
    ask_again_ms: int
    """After which asking again is worth it: `next_poll`."""
    stage: str = ""
    """Of the lobby: `lobby` or `drawing`."""
    opens_at: datetime | None = None
    """In the lobby: when the on-sale opens and places are drawn."""
    tickets_left: int | None = None
    """While waiting: what is free now, whoever takes it. None: not known."""
    rate: float | None = None
    """While waiting: admissions per second as they go."""
    message: str = ""
    """While waiting: what the organiser says to everybody."""
    number: int | None = None
    """While it decides: one's own, of which the last number reached is taken."""


def estimate(entry: EntryView) -> WaitEstimate:
    """How the entry stands in its room now."""
    if not entry.waits:
        return _estimate_not_waiting(entry)
    board = room_snapshot.get_snapshot(entry.event_id, with_number=entry.number or 0)
    number = entry.number
    if number is None and board.is_drawn:
        number = drawn_numbers.number_of(entry.id)  # Drawn, and on its way into the entry.
    if entry.is_priority and number is not None:
        number = min(number, board.head)  # Nobody is ahead of it, also after a turn that it missed.
    return estimate_for_number(board, number)


def _estimate_not_waiting(entry: EntryView) -> WaitEstimate:
    return WaitEstimate(entry.status, 0, 0, (0, 0), NEXT_POLL_READY_MS if entry.is_ready else NEXT_POLL_ENDED_MS)


def estimate_for_number(board: RoomSnapshot, number: int | None) -> WaitEstimate:
    """What this number can expect that waits; None: an entry of the lobby that has no number yet."""
    if number is None:
        return _estimate_in_lobby(board)
    # Nobody's position ever rises: the head does not fall, and who came back after a missed turn is next, not first.
    ahead = max(0, number - board.head)
    if board.state == WaitingRoom.State.DRAINED:
        return WaitEstimate("drained", ahead, 0, (0, 0), NEXT_POLL_ENDED_MS, message=board.message)
    expected = expected_rate(board)
    soonest, likely = ahead / board.rate_ceiling, seconds_until(board, ahead)
    return WaitEstimate(
        status="paused" if board.state == WaitingRoom.State.PAUSED else "waiting",
        ahead=ahead,
        wait_seconds=math.ceil(likely),
        wait_range=(math.floor(soonest), math.ceil(likely * RANGE_HIGH)),
        ask_again_ms=next_poll_ms(ahead, board.rate_ceiling, board.claim_seconds),
        tickets_left=board.supply_available,
        rate=0.0 if board.state == WaitingRoom.State.PAUSED else max(0.01, round(expected, 2)),
        message=board.message,
        number=number if ahead else None,
    )


def expected_rate(board: RoomSnapshot) -> float:
    """Admissions per second to reckon with: as they went lately; else as they go with every slot taken, for somebody
    waits and next to nobody was let in; but nobody yet is a room that has only just opened."""
    measured = board.measured_rate
    if measured is not None:
        return min(board.rate, measured)
    return board.rate if board.head == 0 else board.full_rate


def has_steady_rate(board: RoomSnapshot) -> bool:
    """Whether so many are let in each second from now on, likely; else first the free slots are filled."""
    return board.head > 0 or board.measured_rate is not None


def seconds_until(board: RoomSnapshot, ahead: int) -> float:
    """How long it likely takes until so many more are let in."""
    if has_steady_rate(board):
        return ahead / expected_rate(board)
    free = min(ahead, board.active_max)
    return free / board.rate + (ahead - free) / board.full_rate


def _estimate_in_lobby(board: RoomSnapshot) -> WaitEstimate:
    if board.state == WaitingRoom.State.DRAINED:
        return WaitEstimate("drained", None, 0, (0, 0), NEXT_POLL_ENDED_MS, message=board.message)
    until_open = 0.0
    if board.opens_at is not None:
        until_open = max(0.0, (board.opens_at - clock.process_now()).total_seconds())
    return WaitEstimate(
        status="lobby",
        ahead=None,
        wait_seconds=math.ceil(until_open),
        wait_range=(math.floor(until_open), math.ceil(until_open)),
        ask_again_ms=lobby_poll_ms(until_open, board.lobby_count, board.claim_seconds),
        stage=board.stage or "drawing",
        opens_at=board.opens_at,
        tickets_left=board.supply_available,
        message=board.message,
    )


def next_poll_ms(ahead: int, rate_per_second: int, claim_seconds: int) -> int:
    """When to ask again, in milliseconds: half the time the ceiling rate needs at the least, with jitter; where it
    could be reached sooner than that, no later than half the claim time after the turn may have come."""
    soonest_ms = max(0.0, ahead - burst(rate_per_second)) / rate_per_second * 1_000
    wanted = min(NEXT_POLL_MAX_MS, max(soonest_ms / 2, min(NEXT_POLL_MIN_MS, claim_seconds * 500)))
    return int(wanted * (1 - JITTER * _random.random()))


def lobby_poll_ms(until_open_seconds: float, lobby_count: int, claim_seconds: int) -> int:
    """When somebody in the lobby should ask again, in milliseconds: at the opening, each at a random moment of a span
    that keeps the whole lobby to LOBBY_POLLS_PER_SECOND. Whoever drew the first number is let in soon after, so the
    span is at most half the claim time. Long before, now and then: there may be a message."""
    span_ms = min(claim_seconds * 500, max(LOBBY_SPREAD_MIN_MS, lobby_count * 1_000 / LOBBY_POLLS_PER_SECOND))
    until_open_ms = until_open_seconds * 1_000
    if until_open_ms > NEXT_POLL_MAX_MS:
        return int(min(NEXT_POLL_MAX_MS, until_open_ms / 2) * (1 - JITTER * _random.random()))
    # Not at once in any case: two answers are never both of the same tenth of a second.
    return max(NEXT_POLL_MIN_MS, int(until_open_ms + span_ms * _random.random()))
