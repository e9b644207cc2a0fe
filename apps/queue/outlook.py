"""What somebody in line can expect: the position, an honest interval, and when to ask again."""

import math
import random
from dataclasses import dataclass

from django.db import connection

from apps.queue.admitting import burst
from apps.queue.line import EntryView
from apps.queue.models import WaitingRoom
from ticketing.kernel import sql

NEXT_POLL_READY_MS = 15_000
NEXT_POLL_ENDED_MS = 60_000
NEXT_POLL_MIN_MS = 1_000
NEXT_POLL_MAX_MS = 300_000
JITTER = 0.2
"""A poll comes up to this share early, so that those who joined together do not ask together."""
MEASURED_SECONDS = 120
MEASURED_MIN_COUNT = 5
RANGE_HIGH = 1.5
"""Visitors keep their slots for as long as they like: the far end of the interval is this much later."""

_recent_admissions = sql.load("apps.queue", "recent_admissions")
_random = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Outlook:
    status: str
    """As the public contract names it."""
    ahead: int
    """Numbers still to be reached; 0 from ready on."""
    wait_seconds: int
    wait_range: tuple[int, int]
    ask_again_ms: int
    """After which asking again is worth it: `next_poll`."""


def outlook(entry: EntryView) -> Outlook:
    """How the entry stands in its room now."""
    if not entry.waits:
        ask_again_ms = NEXT_POLL_READY_MS if entry.is_ready else NEXT_POLL_ENDED_MS
        return Outlook(entry.status, 0, 0, (0, 0), ask_again_ms)
    room = WaitingRoom.objects.get(event_id=entry.event_id)
    # Nobody's position ever rises: the head does not fall, and who came back after a missed turn is next, not first.
    ahead = max(0, (entry.number or 0) - room.head)
    if room.state == WaitingRoom.State.DRAINED:
        return Outlook("drained", ahead, 0, (0, 0), NEXT_POLL_ENDED_MS)
    ceiling = float(room.rate_per_second)
    expected = min(ceiling, _measured_rate(entry.event_id) or ceiling)
    soonest, likely = ahead / ceiling, ahead / expected
    return Outlook(
        status="paused" if room.state == WaitingRoom.State.PAUSED else "waiting",
        ahead=ahead,
        wait_seconds=math.ceil(likely),
        wait_range=(math.floor(soonest), math.ceil(likely * RANGE_HIGH)),
        ask_again_ms=next_poll_ms(ahead, room.rate_per_second, room.claim_seconds),
    )


def next_poll_ms(ahead: int, rate_per_second: int, claim_seconds: int) -> int:
    """When to ask again, in milliseconds: half the time the ceiling rate needs at the least, with jitter; where it
    could be reached sooner than that, no later than half the claim time after the turn may have come."""
    soonest_ms = max(0.0, ahead - burst(rate_per_second)) / rate_per_second * 1_000
    wanted = min(NEXT_POLL_MAX_MS, max(soonest_ms / 2, min(NEXT_POLL_MIN_MS, claim_seconds * 500)))
    return int(wanted * (1 - JITTER * _random.random()))


def _measured_rate(event_id: int) -> float | None:
    """Admissions per second as they went lately; None where too few did to say."""
    with connection.cursor() as cursor:
        ((count, seconds),) = _recent_admissions.rows(cursor, event_id=event_id, window_seconds=MEASURED_SECONDS)
    if count < MEASURED_MIN_COUNT or seconds < 1:
        return None
    return float(count) / float(seconds)
