"""Joining, coming when it is one's turn, leaving, and where one stands. With the room off everyone who joins is ready
at once, by the same path."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import connection

from apps.events import facade as events
from apps.queue import exceptional
from apps.queue.admitting import BUSY_GRACE_SECONDS, RETURN_SECONDS, admit_next
from apps.queue.errors import NoPlace, NotOnSale, RoomDrained
from apps.queue.identity import Caller
from apps.queue.lobby import open_if_due
from apps.queue.models import AdmissionBatch, QueueEntry, WaitingRoom
from apps.queue.room import Room, lock_rooms, save_room
from ticketing.kernel import clock, problems, sql, transactions

_lock_places = sql.load("apps.queue", "lock_places")


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


@dataclass(frozen=True, slots=True)
class JoinRequest:
    event: events.EventView
    caller: Caller
    entry_id: uuid.UUID = field(default_factory=uuid.uuid4)
    """Of the entry, should there be a new one: known before, so that it can be looked for after a lost connection."""


JoinOutcome = EntryView | problems.Problem


def _view(entry: QueueEntry, event_slug: str, status: str | None = None) -> EntryView:
    return EntryView(
        id=entry.pk,
        event_id=entry.event_id,
        event_slug=event_slug,
        number=entry.number,
        status=status or entry.status,
        admission_expires_at=entry.admission_expires_at,
        account_id=entry.account_id,
        visitor_id=entry.visitor_id,
    )


def require_on_sale(event: events.EventView, at: datetime) -> None:
    """Returns while the event sells. Raises NotOnSale."""
    state = event.selling_state(at)
    if state == "upcoming":
        raise NotOnSale("Sales have not opened yet.", opens_at=event.policy.opens_at.isoformat())
    if state != "on_sale":
        raise NotOnSale("This event is canceled." if state == "canceled" else "Sales have closed.")


def join(event: events.EventView, caller: Caller) -> EntryView:
    """The caller has exactly one place in the event's line: the one it had, or a new one, committed.

    Raises TokenMissing for nobody, TokenInvalid, NotOnSale, RoomDrained.
    """
    (outcome,) = join_many([JoinRequest(event, caller)])
    if isinstance(outcome, problems.Problem):
        raise outcome
    return outcome


def join_many(requests: Sequence[JoinRequest]) -> list[JoinOutcome]:
    """Each caller has exactly one place, all committed in one transaction; one outcome per request, in their order.

    The rooms are locked first, in id order, and numbers taken from their rows in the order of arrival: two joins of one
    browser meet there, and the second sees what the first committed. Who joins a line in which nobody waits is let in
    by this same transaction, as far as the caps allow.
    """
    with transactions.write(), connection.cursor() as cursor:
        batch = _Joining(requests)
        batch.lock(cursor)
        for index, request in enumerate(requests):
            try:
                batch.outcomes[index] = batch.place_of(request)
            except problems.Problem as problem:
                batch.outcomes[index] = problem
        batch.write(cursor)
    return [
        outcome if isinstance(outcome, problems.Problem) else _view(outcome, request.event.slug)
        for outcome, request in zip(batch.outcomes, requests, strict=True)
    ]


_Identity = tuple[int, int | None, str]
"""Event, account, browser: the last is empty for an account."""


class _Joining:
    """What the transaction of `join_many` knows. Its methods run in the order of the locks they take."""

    def __init__(self, requests: Sequence[JoinRequest]) -> None:
        self.requests = requests
        self.outcomes: list[QueueEntry | problems.Problem] = [problems.TokenMissing()] * len(requests)
        self.rooms: dict[int, Room] = {}
        self.entries_of_tokens: dict[uuid.UUID, QueueEntry] = {}
        self.standing: dict[_Identity, QueueEntry] = {}
        self.new: dict[int, list[QueueEntry]] = {}
        self.now = datetime.min

    def lock(self, cursor: sql.Cursor) -> None:
        """The rooms, then the live entries of everyone who asks, are locked; the clock is read under the locks."""
        self.rooms = lock_rooms(cursor, [request.event.id for request in self.requests])
        tokens = [request.caller.entry_id for request in self.requests if request.caller.entry_id is not None]
        self.entries_of_tokens = QueueEntry.objects.in_bulk(tokens) if tokens else {}
        asked = {identity for request in self.requests if (identity := self._identity(request)) is not None}
        accounts = [(event_id, account) for event_id, account, _ in asked if account is not None]
        visitors = [(event_id, visitor) for event_id, account, visitor in asked if account is None]
        locked = _lock_places.rows(
            cursor,
            account_event_ids=[event_id for event_id, _ in accounts],
            account_ids=[account for _, account in accounts],
            visitor_event_ids=[event_id for event_id, _ in visitors],
            visitor_ids=[visitor for _, visitor in visitors],
        )
        if locked:
            for entry in QueueEntry.objects.filter(pk__in=[row[0] for row in locked]):
                self.standing[(entry.event_id, entry.account_id, entry.visitor_id)] = entry
        self.now = clock.now_on(cursor)
        for request in self.requests:
            room = self.rooms.get(request.event.id)
            if room is not None:
                before = room.state
                open_if_due(cursor, room, request.event, self.now)
                if room.state != before:
                    save_room(cursor, room)

    def _identity(self, request: JoinRequest) -> _Identity | None:
        """Whose place is meant: the caller's, or whoever a token speaks for. None: a token of no entry here, or
        nobody."""
        caller, event_id = request.caller, request.event.id
        if caller.entry_id is not None:
            entry = self.entries_of_tokens.get(caller.entry_id)
            if entry is None or entry.event_id != event_id:
                return None
            return (event_id, entry.account_id, entry.visitor_id)
        if caller.account_id is not None:
            return (event_id, caller.account_id, "")
        return (event_id, None, caller.visitor_id) if caller.visitor_id else None

    def place_of(self, request: JoinRequest) -> QueueEntry:
        """The one place of who asks: standing, or new and unsaved. Raises the problem that refuses it."""
        identity = self._identity(request)
        if identity is None:
            raise problems.TokenMissing if request.caller.entry_id is None else problems.TokenInvalid
        room = self.rooms.get(request.event.id)
        require_on_sale(request.event, self.now)
        if room is None:
            raise NotOnSale
        entry = self.standing.get(identity)
        if entry is not None and not entry._state.adding:
            _come(entry, room, self.now)
        if room.state == WaitingRoom.State.DRAINED and (entry is None or entry.status != QueueEntry.Status.READY):
            raise RoomDrained
        if entry is not None and entry.status in QueueEntry.LIVE:
            return entry
        entry = QueueEntry(
            id=request.entry_id,
            event_id=request.event.id,
            number=room.next_number,
            account_id=identity[1],
            visitor_id=identity[2],
            status=QueueEntry.Status.WAITING,
            joined_at=self.now,
        )
        room.next_number += 1
        self.standing[identity] = entry
        self.new.setdefault(room.event_id, []).append(entry)
        return entry

    def write(self, cursor: sql.Cursor) -> None:
        """New entries are inserted; where nobody waits ahead of them they are let in within the caps."""
        QueueEntry.objects.bulk_create([entry for entries in self.new.values() for entry in entries])
        for event_id, entries in self.new.items():
            room = self.rooms[event_id]
            if not _lets_in_at_once(room, entries[0].number or 0):
                save_room(cursor, room)
                continue
            present = [entry.pk for entry in entries]
            admitted = admit_next(
                cursor, room, self.now, reason=AdmissionBatch.Reason.EMPTY_LINE, present=present
            ).numbers
            for entry in entries:
                if entry.pk in admitted:
                    # As the statement wrote it.
                    entry.status, entry.ready_at = QueueEntry.Status.READY, self.now
                    entry.admission_expires_at = self.now + timedelta(seconds=room.admission_seconds)


def _lets_in_at_once(room: Room, first_number: int) -> bool:
    """Whether a join should try to let in: nobody is ahead. (It would overtake nobody in any case, since the lowest
    numbers go first; with a line ahead the tick does it, and the join stays cheap.)"""
    if room.state == WaitingRoom.State.OFF:
        return True
    if room.state != WaitingRoom.State.OPEN:
        return False
    ahead = QueueEntry.objects.filter(event_id=room.event_id, status=QueueEntry.Status.WAITING, number__lt=first_number)
    return not ahead.exists()


def _come(entry: QueueEntry, room: Room | WaitingRoom, now: datetime) -> None:
    """What coming does to a locked entry: the first time after its turn it is claimed; too late, it has its old number
    back (the next tick admits it first), and after RETURN_SECONDS it is over. A lapsed admission is over as well."""
    status = entry.status
    if status == QueueEntry.Status.READY and entry.admission_expires_at is None:
        if entry.claim_expires_at is not None and now < entry.claim_expires_at:
            entry.admission_expires_at = now + timedelta(seconds=room.admission_seconds)
            entry.save(update_fields=["admission_expires_at"])
            return
        status = QueueEntry.Status.AWAY
    if status == QueueEntry.Status.AWAY:
        until = entry.claim_expires_at
        if until is None or now < until + timedelta(seconds=RETURN_SECONDS):
            entry.status = QueueEntry.Status.WAITING
        else:
            entry.status, entry.ended_at = QueueEntry.Status.EXPIRED, now
        entry.save(update_fields=["status", "ended_at"])
    elif _has_lapsed(entry, now):
        entry.status, entry.ended_at = QueueEntry.Status.EXPIRED, now
        entry.save(update_fields=["status", "ended_at"])


def leave(event: events.EventView, caller: Caller) -> EntryView:
    """The caller's place is given up. A reservation already held stays its owner's until it ends.

    Raises TokenMissing for nobody, NoPlace when the caller has none.
    """
    if not caller.is_known:
        raise problems.TokenMissing
    with transactions.write():
        entry = _find(event.id, caller, lock=True)
        if entry is None:
            raise NoPlace
        if entry.status in QueueEntry.LIVE:
            entry.status, entry.ended_at = QueueEntry.Status.LEFT, clock.now()
            entry.save(update_fields=["status", "ended_at"])
    exceptional.note(event.id, entry.number, entry.pk)
    return _view(entry, event.slug)


def status(event: events.EventView, caller: Caller) -> EntryView | None:
    """Where the caller stands, or None without a place. A lapsed admission reads as expired before anyone swept it.

    Asking is coming: who has been let in claims the admission by it, who was away is in line again.
    """
    entry = _find(event.id, caller)
    if entry is None:
        return None
    unclaimed = entry.status == QueueEntry.Status.READY and entry.admission_expires_at is None
    if unclaimed or entry.status == QueueEntry.Status.AWAY:
        entry = _arrive(entry.pk)
    return _view(entry, event.slug, QueueEntry.Status.EXPIRED if _has_lapsed(entry, clock.now()) else None)


def _arrive(entry_id: uuid.UUID) -> QueueEntry:
    # Without the room's lock: coming fills no slot (an unclaimed one counts already) and only ever frees one.
    with transactions.write():
        entry = QueueEntry.objects.select_for_update(no_key=True).get(pk=entry_id)
        if entry.status in QueueEntry.LIVE:
            _come(entry, WaitingRoom.objects.get(event_id=entry.event_id), clock.now())
    return entry


def entry_by_id(entry_id: uuid.UUID) -> EntryView | None:
    entry = QueueEntry.objects.select_related("event").filter(pk=entry_id).first()
    return None if entry is None else _view(entry, entry.event.slug)


def find_place(event_id: int, caller: Caller) -> QueueEntry | None:
    """The caller's entry as it stands, or None. Nothing changes by it: looking is not coming."""
    return _find(event_id, caller)


def _has_lapsed(entry: QueueEntry, now: datetime) -> bool:
    return (
        entry.status == QueueEntry.Status.READY
        and entry.admission_expires_at is not None
        and entry.admission_expires_at <= now
        and (entry.busy_until is None or entry.busy_until + timedelta(seconds=BUSY_GRACE_SECONDS) <= now)
    )


def _find(event_id: int, caller: Caller, lock: bool = False) -> QueueEntry | None:
    """The entry a token names; else the live one of the account or browser; else its latest."""
    rows = QueueEntry.objects.filter(event_id=event_id)
    if lock:
        rows = rows.select_for_update(no_key=True)
    if caller.entry_id is not None:
        return rows.filter(pk=caller.entry_id).first()
    if caller.account_id is not None:
        mine = rows.filter(account_id=caller.account_id)
    elif caller.visitor_id:
        mine = rows.filter(account__isnull=True, visitor_id=caller.visitor_id)
    else:
        return None
    return mine.filter(status__in=QueueEntry.LIVE).first() or mine.order_by("-number").first()
