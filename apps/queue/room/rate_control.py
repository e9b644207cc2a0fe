"""The closed loop: the rate at which a room lets in follows the shop's health, slowly up and quickly down.

Additive up and multiplicative down is what shares a line of unknown capacity without swinging: a cut takes away a share
of what is too much, a raise probes for a little more. Between its floor and the operator's rate nobody but this module
moves `rate_now`, and only under the room's lock: decided from a row read before it, an operator's new rate would be
overwritten by a step that had not seen it.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, connection

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.observability.repeated_errors import RepeatedErrors
from apps.queue.errors import ActRefused, StaleLeader
from apps.queue.models import RateChange, RoomAct, WaitingRoom
from apps.queue.room import health
from apps.queue.room.admission import refill
from apps.queue.room_row import Room, lock_room, record_act, save_room
from apps.queue.snapshot import room_snapshot

logger = logging.getLogger(__name__)

FLOOR_SHARE = 0.1
"""Of the rate, where the operator has set no floor."""
FLOOR_MIN = 1.0
"""Per second. A line that stands still tells nobody when it may go on."""
LOCK_MS = 250
STATEMENT_MS = 1_000
BUSY_SECONDS = 60
"""A room that nobody has entered for so long, in which nobody waits and whose rate is whole, is left alone."""
KEPT_DAYS = 90
BY_HAND = "the rate or its floor was set by hand"

_rooms_to_pace = sql.load("apps.queue", "rooms_to_pace")


@dataclass(frozen=True, slots=True)
class StepSizes:
    """How far one step goes: up by a share of the ceiling, down by a factor."""

    up_share: float
    down_factor: float


def step_sizes() -> StepSizes:
    return StepSizes(up_share=settings.PACE_UP_SHARE, down_factor=settings.PACE_DOWN_FACTOR)


def bounds(rate_per_second: int, rate_floor: int | None) -> tuple[float, float]:
    """Floor and ceiling of a room's rate. A floor above the rate is the rate: such a room is never slowed down."""
    ceiling = float(rate_per_second)
    floor = round(ceiling * FLOOR_SHARE, 2) if rate_floor is None else float(rate_floor)
    return min(ceiling, max(FLOOR_MIN, floor)), ceiling


def next_rate(
    rate: float, floor: float, ceiling: float, verdict: health.HealthAssessment, steps: StepSizes
) -> tuple[float, str] | None:
    """The rate after one step and why it changed; None where it stays."""
    inside = min(max(rate, floor), ceiling)
    if verdict.complaints:
        to, reason = max(floor, inside * steps.down_factor), "; ".join(verdict.complaints)
    elif verdict.is_calm:
        to, reason = min(ceiling, inside + ceiling * steps.up_share), f"nothing complains: {verdict.words}"
    else:
        to, reason = inside, BY_HAND
    # Two decimals are what people read. The bounds have no more, so rounding stays within them.
    to = round(to, 2)
    return None if to == rate else (to, reason)


def step_rate(event_id: int, epoch: int, verdict: health.HealthAssessment) -> bool:
    """The room's rate has made its step, by the leader of this epoch; whether it changed. Raises Fenced, nothing done,
    where a younger leader has been."""
    with transactions.write(lock_ms=LOCK_MS, statement_ms=STATEMENT_MS), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        if room.epoch > epoch:
            raise StaleLeader(f"epoch {epoch} meets {room.epoch} in the room of event {event_id}")
        if room.state != WaitingRoom.State.OPEN:
            return False
        change = next_rate(room.rate, *bounds(room.rate_per_second, room.rate_floor), verdict, step_sizes())
        if change is None:
            return False
        now = clock.now_on(cursor)
        if _changed_since(event_id, now - timedelta(seconds=settings.PACE_STEP_SECONDS)):
            # By the leader before this one, or by hand: what that did has yet to show.
            return False
        room.epoch = epoch
        _apply_rate(room, now, *change)
        save_room(cursor, room)
    return True


def _changed_since(event_id: int, moment: datetime) -> bool:
    return RateChange.objects.filter(event_id=event_id, at__gt=moment).exists()


def _apply_rate(room: Room, now: datetime, to: float, reason: str) -> None:
    """The locked room lets in at this rate from now on, on record; at its ceiling it follows the operator's rate."""
    refill(room, now)  # What has passed was at the old rate.
    RateChange.objects.create(event_id=room.event_id, at=now, from_rate=room.rate, to_rate=to, reason=reason[:200])
    room.rate_now = None if to >= room.rate_per_second else to


def keep_within_bounds(room: Room, rate_before: float, now: datetime) -> None:
    """A room whose limits an operator has just set lets in no faster than the new rate and no slower than the new
    floor. Joins the transaction that has the room locked, and saves nothing; `rate_before` was in force."""
    transactions.require_transaction()
    if room.rate_now is None:
        return
    floor, ceiling = bounds(room.rate_per_second, room.rate_floor)
    to = min(max(room.rate_now, floor), ceiling)
    if to != rate_before:
        RateChange.objects.create(event_id=room.event_id, at=now, from_rate=rate_before, to_rate=to, reason=BY_HAND)
    room.rate_now = None if to >= ceiling else to


def set_floor(event_id: int, rate_floor: int | None, *, who: str, why: str = "") -> bool:
    """The room's rate never falls below this by itself, or below a tenth of the rate; False if it was so already.
    Raises ActRefused."""
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        require_floor(rate_floor, room.rate_per_second)
        before, rate_before = room.rate_floor, room.rate
        if before == rate_floor:
            return False
        now = clock.now_on(cursor)
        refill(room, now)
        room.rate_floor = rate_floor
        keep_within_bounds(room, rate_before, now)
        save_room(cursor, room)
        detail = f"floor {_floor_text(before)} → {_floor_text(rate_floor)}"
        record_act(cursor, event_id, now, who, RoomAct.What.LIMITS, detail, why)
        room_snapshot.renew_after_commit(event_id)
    return True


def require_floor(rate_floor: int | None, rate_per_second: int) -> None:
    """Returns if a room of this rate may have this floor. Raises ActRefused."""
    if rate_floor is not None and not 1 <= rate_floor <= rate_per_second:
        raise ActRefused(f"the floor must be between 1 and the rate, {rate_per_second}")


def _floor_text(rate_floor: int | None) -> str:
    return "a tenth" if rate_floor is None else f"{rate_floor}/s"


class RateController:
    """The leader's part in the loop: each PACE_STEP_SECONDS one look at the shop and one step of every room in use."""

    def __init__(self) -> None:
        self._due_at = 0.0
        """On the process's monotonic clock."""
        self._repeated_errors = RepeatedErrors(logger)

    def run_if_due(self, epoch: int, *, before_each: Callable[[], None] = lambda: None) -> int:
        """Every room in use has made its step if one is due; how many rates changed. Raises Fenced.

        A shop that cannot say how it is changes nothing: the rates stay, and the next step asks again.
        """
        if time.monotonic() < self._due_at:
            return 0
        self._due_at = time.monotonic() + settings.PACE_STEP_SECONDS
        try:
            event_ids = _rooms_to_adjust()
            if not event_ids:
                return 0
            limits = health.limits()
            verdict = health.assess_health(health.read(limits), limits)
        except DatabaseError as error:
            self._repeated_errors.record_failure("the rates stay as they are", error)
            return 0
        self._repeated_errors.over("the rates stay as they are")
        changed = 0
        for event_id in event_ids:
            before_each()
            try:
                changed += step_rate(event_id, epoch, verdict)
            except DatabaseError as error:
                # One room's lock that does not come delays no other room's step.
                self._repeated_errors.record_failure(f"event {event_id} keeps its rate in this step", error)
            else:
                self._repeated_errors.over(f"event {event_id} keeps its rate in this step")
        return changed


def _rooms_to_adjust() -> list[int]:
    with connection.cursor() as cursor:
        return [event_id for (event_id,) in _rooms_to_pace.rows(cursor, busy_seconds=BUSY_SECONDS)]


def delete_old_changes(limit: int = 10_000) -> int:
    """Changes of more than KEPT_DAYS ago are gone, at most `limit` of them; how many went."""
    old = RateChange.objects.filter(at__lt=clock.now() - timedelta(days=KEPT_DAYS)).order_by("id").values("pk")[:limit]
    gone, _ = RateChange.objects.filter(pk__in=old).delete()
    return gone
