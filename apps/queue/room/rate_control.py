"""Rate control: a room's admission rate follows the system's health, slowly up and quickly down.

Rates increase additively and decrease multiplicatively, which finds an unknown capacity without oscillating: each
decrease removes a share of the rate, and each increase tries a little more. Only this module changes `rate_now`,
which stays between the floor and the operator's rate, and it does so only under the room's lock: a step that was
decided on a row read before the lock would overwrite an operator's new rate.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
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
"""The default floor as a share of the rate."""
FLOOR_MIN = 1.0
"""The lowest possible floor, per second: in a queue that does not move, visitors get no estimate."""
LOCK_MS = 250
STATEMENT_MS = 1_000
BUSY_SECONDS = 60
"""A room is skipped if its rate is not reduced, no visitor waits, and it has admitted no visitor for this time."""
OTHERS_SECONDS = 1.0
"""After this time a step leaves out the rooms that have not admitted visitors in the last BUSY_SECONDS."""
KEPT_DAYS = 90
BY_HAND = "the rate or its floor was set by hand"

_rooms_to_pace = sql.load("apps.queue", "rooms_to_pace")


@dataclass(frozen=True, slots=True)
class StepSizes:
    """The size of one step: up by a share of the ceiling, down by a factor."""

    up_share: float
    down_factor: float


def step_sizes() -> StepSizes:
    return StepSizes(up_share=settings.PACE_UP_SHARE, down_factor=settings.PACE_DOWN_FACTOR)


def bounds(rate_per_second: int, rate_floor: int | None) -> tuple[float, float]:
    """Return the floor and ceiling of a room's rate. A floor above the operator's rate is lowered to that rate: such a
    room's rate is never reduced."""
    ceiling = float(rate_per_second)
    floor = round(ceiling * FLOOR_SHARE, 2) if rate_floor is None else float(rate_floor)
    return min(ceiling, max(FLOOR_MIN, floor)), ceiling


def next_rate(
    rate: float, floor: float, ceiling: float, verdict: health.HealthAssessment, steps: StepSizes
) -> tuple[float, str] | None:
    """Return the rate after one step and the reason of the change; None if it does not change."""
    bounded = min(max(rate, floor), ceiling)
    if verdict.complaints:
        to, reason = max(floor, bounded * steps.down_factor), "; ".join(verdict.complaints)
    elif verdict.is_calm:
        to, reason = min(ceiling, bounded + ceiling * steps.up_share), f"all limits are kept: {verdict.words}"
    else:
        to, reason = bounded, BY_HAND
    # Rounded to two decimals for display. The bounds have no more decimals, so the result stays within them.
    to = round(to, 2)
    return None if to == rate else (to, reason)


def step_rate(event_id: int, epoch: int, verdict: health.HealthAssessment) -> bool:
    """Adjust the room's rate by one step as leader of this epoch; return whether it changed. If a later leader has
    already changed the room, raises StaleLeader and changes nothing."""
    with transactions.write(lock_ms=LOCK_MS, statement_ms=STATEMENT_MS), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        if room.epoch > epoch:
            raise StaleLeader(f"epoch {epoch} is older than epoch {room.epoch} in the room of event {event_id}")
        if room.state != WaitingRoom.State.OPEN:
            return False
        change = next_rate(room.rate, *bounds(room.rate_per_second, room.rate_floor), verdict, step_sizes())
        if change is None:
            return False
        now = clock.now_on(cursor)
        if _changed_since(event_id, now - timedelta(seconds=settings.PACE_STEP_SECONDS)):
            # The previous leader or an operator has just changed the rate, and the effect cannot be measured yet.
            return False
        room.epoch = epoch
        _apply_rate(room, now, *change)
        save_room(cursor, room)
    return True


def _changed_since(event_id: int, moment: datetime) -> bool:
    return RateChange.objects.filter(event_id=event_id, at__gt=moment).exists()


def _apply_rate(room: Room, now: datetime, to: float, reason: str) -> None:
    """Set and record the locked room's rate. At the ceiling no own rate is stored, so the room follows the operator's
    rate."""
    refill(room, now)  # For the time until now, the old rate applies.
    RateChange.objects.create(event_id=room.event_id, at=now, from_rate=room.rate, to_rate=to, reason=reason[:200])
    room.rate_now = None if to >= room.rate_per_second else to


def keep_within_bounds(room: Room, rate_before: float, now: datetime) -> None:
    """Bring the current rate between the floor and rate that an operator has just set.

    Called in the transaction that has locked the room; the caller saves the room. `rate_before`: the rate before the
    operator's change.
    """
    transactions.require_transaction()
    if room.rate_now is None:
        return
    floor, ceiling = bounds(room.rate_per_second, room.rate_floor)
    to = min(max(room.rate_now, floor), ceiling)
    if to != rate_before:
        RateChange.objects.create(event_id=room.event_id, at=now, from_rate=rate_before, to_rate=to, reason=BY_HAND)
    room.rate_now = None if to >= ceiling else to


def set_floor(event_id: int, rate_floor: int | None, *, who: str, why: str = "") -> bool:
    """Set the floor of the room's rate; None: a tenth of the rate. Returns False if the room has this floor already.
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
    """Raise ActRefused unless a room of this rate may have this floor."""
    if rate_floor is not None and not 1 <= rate_floor <= rate_per_second:
        raise ActRefused(f"the floor must be between 1 and the rate, {rate_per_second}")


def _floor_text(rate_floor: int | None) -> str:
    return "a tenth" if rate_floor is None else f"{rate_floor}/s"


class RateController:
    """Runs in the leading gatekeeper: every PACE_STEP_SECONDS it reads the health and adjusts every room in use."""

    def __init__(self) -> None:
        self._due_at = 0.0
        """On the process's monotonic clock."""
        self._repeated_errors = RepeatedErrors(logger)

    def run_if_due(self, epoch: int, *, before_each: Callable[[], None] = lambda: None) -> int:
        """Adjust every room in use if a step is due; return how many rates changed. Raises StaleLeader.

        If the health cannot be read, the rates stay until the next step.
        """
        if time.monotonic() < self._due_at:
            return 0
        self._due_at = time.monotonic() + settings.PACE_STEP_SECONDS
        try:
            limits = health.limits()
            found = health.read(limits)
            # Without a complaint only a reduced rate changes.
            slowest = replace(found, hold_seconds=max(found.holds_of_events.values(), default=None))
            rooms = _rooms_to_adjust(only_reduced=not health.assess_health(slowest, limits).complaints)
        except DatabaseError as error:
            self._repeated_errors.record_failure("the rates stay as they are", error)
            return 0
        self._repeated_errors.over("the rates stay as they are")
        changed, until = 0, time.monotonic() + OTHERS_SECONDS
        for event_id, is_in_use in rooms:
            if not is_in_use and time.monotonic() > until:
                # Hundreds of rooms that admit no visitor must not delay the ticks of the others.
                break
            before_each()
            try:
                changed += step_rate(event_id, epoch, health.assess_health(found.of_event(event_id), limits))
            except DatabaseError as error:
                # A lock timeout in one room must not keep the other rooms from their step.
                self._repeated_errors.record_failure(f"event {event_id} keeps its rate in this step", error)
            else:
                self._repeated_errors.over(f"event {event_id} keeps its rate in this step")
        return changed


def _rooms_to_adjust(*, only_reduced: bool) -> list[tuple[int, bool]]:
    """Return the events, each with whether its room has admitted visitors in the last BUSY_SECONDS; these come
    first."""
    with connection.cursor() as cursor:
        return list(_rooms_to_pace.rows(cursor, busy_seconds=BUSY_SECONDS, only_reduced=only_reduced))


def delete_old_changes(limit: int = 10_000) -> int:
    """Delete up to `limit` changes older than KEPT_DAYS; return how many."""
    old = RateChange.objects.filter(at__lt=clock.now() - timedelta(days=KEPT_DAYS)).order_by("id").values("pk")[:limit]
    deleted_count, _ = RateChange.objects.filter(pk__in=old).delete()
    return deleted_count
