"""Queue entries as read-only views and as locked rows, and the effect of a visitor's arrival."""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from apps.queue.models import QueueEntry
from apps.queue.room.admission import BUSY_GRACE_SECONDS, RETURN_SECONDS


@dataclass(frozen=True, slots=True)
class EntryView:
    id: uuid.UUID
    event_id: int
    event_slug: str
    number: int | None
    """None in the lobby until the draw."""
    status: str
    admission_expires_at: datetime | None
    account_id: int | None
    visitor_id: str
    is_priority: bool = False
    """Admitted before all others as soon as a slot is free, whatever its number."""

    @property
    def is_ready(self) -> bool:
        return self.status == QueueEntry.Status.READY

    @property
    def waits(self) -> bool:
        """Whether the entry is in the queue, in review, or missed its turn and may return."""
        return self.status in (QueueEntry.Status.WAITING, QueueEntry.Status.AWAY, QueueEntry.Status.REVIEW)

    @property
    def is_in_review(self) -> bool:
        """Whether the entry keeps its number but is admitted only once the organizer has ended its review."""
        return self.status == QueueEntry.Status.REVIEW

    @property
    def buyer(self) -> str:
        """The buyer's key in purchase caps."""
        return f"account:{self.account_id}" if self.account_id is not None else f"visitor:{self.visitor_id}"


@dataclass(slots=True)
class Entry:
    """A locked row. Attributes as in the model, in the column order of the statements of `join.py`."""

    id: uuid.UUID
    event_id: int
    number: int | None
    in_lobby: bool
    account_id: int | None
    visitor_id: str
    status: str
    claim_expires_at: datetime | None
    admission_expires_at: datetime | None
    busy_until: datetime | None
    ended_at: datetime | None
    marked: str = ""


AnyEntry = Entry | QueueEntry


def view_of(entry: AnyEntry, event_slug: str, status: str | None = None) -> EntryView:
    """Return an immutable view of the entry. `status`, if given, replaces the outdated status of the row."""
    return EntryView(
        id=entry.id,
        event_id=entry.event_id,
        event_slug=event_slug,
        number=entry.number,
        status=status or str(entry.status),
        admission_expires_at=entry.admission_expires_at,
        account_id=entry.account_id,
        visitor_id=entry.visitor_id,
        is_priority=entry.marked != "",
    )


def apply_arrival(entry: AnyEntry, admission_seconds: int, now: datetime) -> bool:
    """Apply the visitor's arrival to a locked entry.

    The first arrival within the claim time claims the admission. A later arrival makes the entry wait again with its
    old number, so the next tick admits it first. After RETURN_SECONDS more, or after a claimed admission has lapsed,
    the entry expires. Returns whether status, admission_expires_at or ended_at changed; the caller saves them.
    """
    status = entry.status
    if status == QueueEntry.Status.READY and entry.admission_expires_at is None:
        if entry.claim_expires_at is not None and now < entry.claim_expires_at:
            entry.admission_expires_at = now + timedelta(seconds=admission_seconds)
            return True
        status = QueueEntry.Status.AWAY
    if status == QueueEntry.Status.AWAY:
        until = entry.claim_expires_at
        if until is None or now < until + timedelta(seconds=RETURN_SECONDS):
            entry.status = QueueEntry.Status.WAITING
        else:
            entry.status, entry.ended_at = QueueEntry.Status.EXPIRED, now
        return True
    if has_lapsed(entry, now):
        entry.status, entry.ended_at = QueueEntry.Status.EXPIRED, now
        return True
    return False


def has_lapsed(entry: AnyEntry, now: datetime) -> bool:
    """Return whether the claimed admission of an entry that is still ready has run out, without a live reservation."""
    return (
        entry.status == QueueEntry.Status.READY
        and entry.admission_expires_at is not None
        and entry.admission_expires_at <= now
        and (entry.busy_until is None or entry.busy_until + timedelta(seconds=BUSY_GRACE_SECONDS) <= now)
    )
