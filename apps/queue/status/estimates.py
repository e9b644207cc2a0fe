"""A waiting visitor's position, an interval for the wait, and the time of the next poll."""

import math
import random
from dataclasses import dataclass, replace
from datetime import datetime

from apps.kernel import clock
from apps.queue.entries.positions import EntryView
from apps.queue.models import WaitingRoom
from apps.queue.room.admission import burst
from apps.queue.snapshot import room_snapshot
from apps.queue.snapshot.room_snapshot import RoomSnapshot
from apps.queue.status import drawn_numbers
from apps.queue.status.wait_model import WaitModel

NEXT_POLL_READY_MS = 15_000
NEXT_POLL_ENDED_MS = 60_000
NEXT_POLL_MIN_MS = 1_000
NEXT_POLL_MAX_MS = 300_000
CLAIM_SHARE_MAX = 0.75
JITTER = 0.2
"""The time until a poll is shortened by up to this share, so that visitors who joined together poll at other times."""
LOBBY_POLLS_PER_SECOND = 2_000
"""A lobby's polls for the drawn numbers are spread to at most this rate, unless the claim time is too short."""
LOBBY_SPREAD_MIN_MS = 2_000

_random = random.Random()  # noqa: S311 - it only spreads polls, and is cheaper than the system's


@dataclass(frozen=True, slots=True)
class WaitEstimate:
    status: str
    """Named as in the public contract."""
    ahead: int | None
    """The position: the number minus the head. 0 from ready on, None in the lobby."""
    wait_seconds: int
    """In the lobby: until the on-sale opens and positions are drawn."""
    wait_range: tuple[int, int]
    ask_again_ms: int
    """When to poll next: `next_poll`."""
    stage: str = ""
    """In the lobby: `lobby` or `drawing`."""
    opens_at: datetime | None = None
    """In the lobby: when the on-sale opens and positions are drawn."""
    tickets_left: int | None = None
    """While waiting: the number of tickets that are available now. None: not known."""
    rate: float | None = None
    """While waiting: numbers that the line is expected to pass per second."""
    message: str = ""
    """While waiting: the organizer's message to all visitors."""
    number: int | None = None
    """While waiting: the visitor's own number. The position is this minus the head."""


def estimate(entry: EntryView) -> WaitEstimate:
    """Return the current estimate for this entry."""
    if not entry.waits:
        return WaitEstimate(entry.status, 0, 0, (0, 0), NEXT_POLL_READY_MS if entry.is_ready else NEXT_POLL_ENDED_MS)
    snapshot = room_snapshot.get_snapshot(entry.event_id, with_number=entry.number or 0)
    number = entry.number
    if number is None and snapshot.is_drawn:
        number = drawn_numbers.number_of(entry.id)  # Drawn, and not yet written to the entry.
    if entry.is_priority and number is not None:
        number = min(number, snapshot.head)  # Position 0, also after a missed turn.
    return estimate_in_review(snapshot, number) if entry.is_in_review else estimate_for_number(snapshot, number)


def estimate_in_review(snapshot: RoomSnapshot, number: int | None) -> WaitEstimate:
    """Return the estimate for an entry that waits for the organizer's review, which has no time limit."""
    estimate = estimate_for_number(snapshot, number)
    if estimate.status not in ("waiting", "paused"):
        return estimate
    return replace(estimate, status="review", ask_again_ms=max(NEXT_POLL_READY_MS, estimate.ask_again_ms))


def estimate_for_number(snapshot: RoomSnapshot, number: int | None) -> WaitEstimate:
    """Return the estimate for an entry that waits with this number. Entries of the lobby have no number yet."""
    if number is None:
        return _estimate_in_lobby(snapshot)
    # A position never rises: the head never falls, and an entry that returns after a missed turn is next in line.
    ahead = max(0, number - snapshot.head)
    if snapshot.state == WaitingRoom.State.DRAINED:
        return WaitEstimate("drained", ahead, 0, (0, 0), NEXT_POLL_ENDED_MS, message=snapshot.message)
    model = WaitModel.of(snapshot)
    likely = model.likely_seconds(ahead)
    return WaitEstimate(
        status="paused" if snapshot.state == WaitingRoom.State.PAUSED else "waiting",
        ahead=ahead,
        wait_seconds=math.ceil(likely),
        wait_range=model.interval(ahead, likely),
        ask_again_ms=next_poll_ms(ahead, snapshot.rate_ceiling, snapshot.claim_seconds),
        tickets_left=snapshot.supply_available,
        rate=0.0 if snapshot.state == WaitingRoom.State.PAUSED else _shown_rate(model),
        message=snapshot.message,
        number=number if ahead else None,
    )


def expected_rate(snapshot: RoomSnapshot) -> float:
    """Return how many numbers the line is expected to pass per second."""
    return _shown_rate(WaitModel.of(snapshot))


def _shown_rate(model: WaitModel) -> float:
    return max(0.01, round(model.numbers_per_second, 2))


def _estimate_in_lobby(snapshot: RoomSnapshot) -> WaitEstimate:
    if snapshot.state == WaitingRoom.State.DRAINED:
        return WaitEstimate("drained", None, 0, (0, 0), NEXT_POLL_ENDED_MS, message=snapshot.message)
    until_open = 0.0
    if snapshot.opens_at is not None:
        until_open = max(0.0, (snapshot.opens_at - clock.process_now()).total_seconds())
    return WaitEstimate(
        status="lobby",
        ahead=None,
        wait_seconds=math.ceil(until_open),
        wait_range=(math.floor(until_open), math.ceil(until_open)),
        ask_again_ms=lobby_poll_ms(until_open, snapshot.lobby_count, snapshot.claim_seconds),
        stage=snapshot.stage or "drawing",
        opens_at=snapshot.opens_at,
        tickets_left=snapshot.supply_available,
        message=snapshot.message,
    )


def next_poll_ms(ahead: int, rate_per_second: int, claim_seconds: int) -> int:
    """Return the milliseconds until the next poll: half the shortest wait, but at least NEXT_POLL_MIN_MS or half the
    claim time, whichever is less, and at most CLAIM_SHARE_MAX of the claim time: those ahead may all leave at once, and
    then the next tick admits. Jitter then shortens it. So a poll after the turn is still in time to claim."""
    soonest_ms = max(0.0, ahead - burst(rate_per_second)) / rate_per_second * 1_000
    most = min(NEXT_POLL_MAX_MS, claim_seconds * 1_000 * CLAIM_SHARE_MAX)
    wanted = min(most, max(soonest_ms / 2, min(NEXT_POLL_MIN_MS, claim_seconds * 500)))
    return int(wanted * (1 - JITTER * _random.random()))


def lobby_poll_ms(until_open_seconds: float, lobby_count: int, claim_seconds: int) -> int:
    """Return the milliseconds until a visitor in the lobby polls next: at a random moment of a span that begins at the
    opening and limits the lobby to LOBBY_POLLS_PER_SECOND. The span is at most half the claim time, since the first
    numbers are admitted soon. Long before the opening, polls come now and then, since there may be a message."""
    span_ms = min(claim_seconds * 500, max(LOBBY_SPREAD_MIN_MS, lobby_count * 1_000 / LOBBY_POLLS_PER_SECOND))
    until_open_ms = until_open_seconds * 1_000
    if until_open_ms > NEXT_POLL_MAX_MS:
        return int(min(NEXT_POLL_MAX_MS, until_open_ms / 2) * (1 - JITTER * _random.random()))
    # The next poll never comes at once: it would read the same snapshot.
    return max(NEXT_POLL_MIN_MS, int(until_open_ms + span_ms * _random.random()))
