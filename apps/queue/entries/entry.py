"""One place in line: the row as decisions read it, and what coming does to it."""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from apps.queue.models import QueueEntry
from apps.queue.room.admission import BUSY_GRACE_SECONDS, RETURN_SECONDS


@dataclass(frozen=True, slots=True)
class EntryView:
    id: uuid.UUID
    event_id: int
    event_slug: str
    number: int | None
    """None in the lobby, until it is drawn."""
    status: str
    admission_expires_at: datetime | None
    account_id: int | None
    visitor_id: str
    is_priority: bool = False
    """Let in before all others as soon as there is room, whatever its number."""

    @property
    def is_ready(self) -> bool:
        return self.status == QueueEntry.Status.READY

    @property
    def waits(self) -> bool:
        """In line, or away from it for a moment."""
        return self.status in (QueueEntry.Status.WAITING, QueueEntry.Status.AWAY)

    @property
    def buyer(self) -> str:
        """Who buys, as purchase caps know them."""
        return f"account:{self.account_id}" if self.account_id is not None else f"visitor:{self.visitor_id}"


@dataclass(slots=True)
class Entry:
    """A row under its lock, in the order in which the statements of joining give it. A model instance has the same
    names, so that either can come, lapse and be shown."""

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


class AnyEntry(Protocol):
    """An Entry or a QueueEntry."""

    id: uuid.UUID
    event_id: int
    number: int | None
    account_id: int | None
    visitor_id: str
    status: str
    claim_expires_at: datetime | None
    admission_expires_at: datetime | None
    busy_until: datetime | None
    ended_at: datetime | None
    marked: str


def view_of(entry: AnyEntry, event_slug: str, status: str | None = None) -> EntryView:
    """The entry for those who decide nothing by it; with a status of its own where the row's is behind."""
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
    """What coming does to a locked entry: the first time after its turn it is claimed; too late, it has its old number
    back (the next tick admits it first), and after RETURN_SECONDS it is over. A lapsed admission is over as well.

    Whether it has changed, in status, admission_expires_at or ended_at; whoever locked it saves these.
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
    """Whether its admission is over, ended by anybody or not yet, and no reservation keeps it."""
    return (
        entry.status == QueueEntry.Status.READY
        and entry.admission_expires_at is not None
        and entry.admission_expires_at <= now
        and (entry.busy_until is None or entry.busy_until + timedelta(seconds=BUSY_GRACE_SECONDS) <= now)
    )
