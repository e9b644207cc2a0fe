"""A room's summary for operators, read in a few bounded statements without locks."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Sum

from apps.kernel import clock
from apps.queue.models import AdmissionBatch, QueueEntry, RateChange, RoomAct, VipLink, WaitingRoom
from apps.queue.room.admission import active_count
from apps.queue.room.rate_control import FLOOR_SHARE, bounds

COUNTED_MAX = 100_000
"""Waiting entries are counted up to this number; beyond it the summary says "more than"."""
MINUTE = timedelta(minutes=1)
ACTS_SHOWN = 12
RATE_CHANGES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Summary:
    """A room's current state. `waiting` is counted up to COUNTED_MAX."""

    event_id: int
    event_slug: str
    event_name: str
    state: str
    waiting: int
    away: int
    in_review: int
    in_lobby: int
    marked: int
    active: int
    active_max: int
    head: int
    last_number: int
    rate_per_second: int
    rate_now: float | None
    rate_floor: int | None
    admitted_last_minute: int
    claim_seconds: int
    admission_seconds: int
    supply_available: int | None
    supply_held: int | None
    screening: str
    review_score: int | None
    message: str
    open_links: int
    ticked_at: datetime | None
    seen_at: datetime
    acts: tuple[RoomAct, ...]
    rate_changes: tuple[RateChange, ...]

    @property
    def waiting_words(self) -> str:
        return f"more than {COUNTED_MAX:,}" if self.waiting > COUNTED_MAX else f"{self.waiting:,}"

    @property
    def is_held_back(self) -> bool:
        """Whether rate control keeps the rate below the operator's."""
        return self.rate_now is not None and self.rate_now < self.rate_per_second

    @property
    def rate_now_words(self) -> str:
        """The current rate."""
        return f"{self.rate_now if self.is_held_back else self.rate_per_second:g}/s"

    @property
    def rate_words(self) -> str:
        """The current rate, and the operator's rate if rate control keeps it lower."""
        if not self.is_held_back:
            return self.rate_now_words
        return f"{self.rate_now_words}, reduced from {self.rate_per_second}/s to protect the system"

    @property
    def floor_words(self) -> str:
        """The limit of automatic reductions."""
        floor, ceiling = bounds(self.rate_per_second, self.rate_floor)
        if floor == ceiling:
            return "It is never reduced automatically"
        is_a_tenth = self.rate_floor is None and floor == round(ceiling * FLOOR_SHARE, 2)
        return f"It is never reduced below {floor:g}/s{', a tenth' if is_a_tenth else ''}"

    @property
    def supply_words(self) -> str:
        if self.supply_available is None:
            return "not reported yet"
        return f"{self.supply_available:,} available, {self.supply_held or 0:,} reserved"


@dataclass(frozen=True, slots=True)
class RoomCounts:
    """Visitors of a waiting room, for dashboards. `waiting` includes a lobby, and is counted up to COUNTED_MAX."""

    state: str
    waiting: int
    shopping: int

    @property
    def waiting_words(self) -> str:
        return f"more than {COUNTED_MAX:,}" if self.waiting > COUNTED_MAX else f"{self.waiting:,}"


def read_room_counts(event_id: int) -> RoomCounts | None:
    """Return the visitors of the event's waiting room; None without one."""
    room = WaitingRoom.objects.only("event_id", "state", "lobby_count").filter(event_id=event_id).first()
    if room is None:
        return None
    in_line = QueueEntry.objects.filter(event_id=event_id, status=QueueEntry.Status.WAITING, number__isnull=False)
    waiting = room.lobby_count if room.state == WaitingRoom.State.LOBBY else in_line[: COUNTED_MAX + 1].count()
    return RoomCounts(room.state, waiting, active_count(event_id))


def summary_of(event_id: int) -> Summary:
    """Read the room's current state. Raises WaitingRoom.DoesNotExist."""
    room = WaitingRoom.objects.select_related("event").get(event_id=event_id)
    entries = QueueEntry.objects.filter(event_id=event_id)
    waiting = entries.filter(status=QueueEntry.Status.WAITING)
    now = clock.now()
    batches = AdmissionBatch.objects.filter(event_id=event_id, at__gte=now - MINUTE)
    return Summary(
        event_id=event_id,
        event_slug=room.event.slug,
        event_name=room.event.name,
        state=room.state,
        waiting=waiting.filter(number__isnull=False)[: COUNTED_MAX + 1].count(),
        away=entries.filter(status=QueueEntry.Status.AWAY)[: COUNTED_MAX + 1].count(),
        in_review=entries.filter(status=QueueEntry.Status.REVIEW)[: COUNTED_MAX + 1].count(),
        in_lobby=room.lobby_count if room.state == WaitingRoom.State.LOBBY else 0,
        marked=waiting.exclude(marked="").count(),
        active=active_count(event_id),
        active_max=room.active_max,
        head=room.head,
        last_number=room.next_number - 1,
        rate_per_second=room.rate_per_second,
        rate_now=room.rate_now,
        rate_floor=room.rate_floor,
        admitted_last_minute=batches.aggregate(sum=Sum("count"))["sum"] or 0,
        claim_seconds=room.claim_seconds,
        admission_seconds=room.admission_seconds,
        supply_available=room.supply_available,
        supply_held=room.supply_held,
        screening=room.screening,
        review_score=room.review_score,
        message=room.message,
        open_links=VipLink.objects.filter(
            event_id=event_id, used_at__isnull=True, revoked_at__isnull=True, expires_at__gt=now
        ).count(),
        ticked_at=room.ticked_at,
        seen_at=now,
        acts=tuple(RoomAct.objects.filter(event_id=event_id).order_by("-id")[:ACTS_SHOWN]),
        rate_changes=tuple(RateChange.objects.filter(event_id=event_id).order_by("-id")[:RATE_CHANGES_SHOWN]),
    )
