"""Joining, in groups: a burst of joins is few transactions, and each place is committed before it is answered.

Who joins is decided on a connection of group commit, with plain statements. One transaction locks the rooms in id
order, then the standing entries of everybody who asks, decides in memory in the order of arrival, and writes once:
all new entries in one statement, each room in one. Two joins of one browser meet at the room's lock, and the second
sees what the first committed. The numbers and the published hash chain go on under that same lock.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import psycopg
from django.db import connection as django_connection

from apps.events import facade as events
from apps.kernel import clock, random_bytes
from apps.kernel.db import arrays, sql, transactions
from apps.kernel.group_commit.batcher import Batcher
from apps.kernel.http import problems
from apps.queue import proofs
from apps.queue.entries.entry import Entry, EntryView, apply_arrival, view_of
from apps.queue.errors import NotOnSale, RoomDrained
from apps.queue.identity.caller import Caller, check_visitor_id
from apps.queue.lobby.lobby import is_lobby_open, open_if_due
from apps.queue.models import AdmissionBatch, QueueEntry, WaitingRoom
from apps.queue.room.admission import admit_next
from apps.queue.room_row import Room, lock_rooms_call, rooms_from_rows, save_room_call

JOIN_TIMEOUT_MS = 10_000
JOIN_LOCK_MS = 4_000
"""A room is locked by a tick or an operator for some milliseconds. A batch that does not get it is tried once more;
then its callers are told to come back."""
JOIN_STATEMENT_MS = 5_000
COMMITTERS_MAX = 4
"""Batches of different events at once in one process, each with a connection."""

_PACKAGE = "apps.queue"
_identities = sql.load(_PACKAGE, "identities", prepared=True)
_lock_places = sql.load(_PACKAGE, "lock_places")
_lock_visitor_places = sql.load(_PACKAGE, "lock_visitor_places", prepared=True)
_lock_lobby_places = sql.load(_PACKAGE, "lock_lobby_places")
_save_arrivals = sql.load(_PACKAGE, "save_arrivals")
_insert_entries = sql.load(_PACKAGE, "insert_entries", prepared=True)
_lowest_waiting = sql.load(_PACKAGE, "lowest_waiting", prepared=True)
_entries_by_id = sql.load(_PACKAGE, "entries_by_id")


@dataclass(frozen=True, slots=True)
class JoinRequest:
    event: events.EventView
    caller: Caller
    entry_id: uuid.UUID = field(default_factory=random_bytes.new_uuid)
    """Of the entry, should there be a new one: known before, so that it can be looked for after a lost connection."""
    nonce: bytes = field(default_factory=random_bytes.next_bytes)


JoinOutcome = EntryView | problems.Problem
_Identity = tuple[int, int | None, str]
"""Event, account, browser: the last is empty for an account."""


def require_on_sale(event: events.EventView, at: datetime) -> None:
    """Returns while the event sells. Raises NotOnSale."""
    state = event.selling_state(at)
    if state == "upcoming":
        raise NotOnSale("Sales have not opened yet.", opens_at=event.policy.opens_at.isoformat())
    if state != "on_sale":
        raise NotOnSale("This event is canceled." if state == "canceled" else "Sales have closed.")


def join(event: events.EventView, caller: Caller) -> EntryView:
    """The caller has exactly one place in the event's line: the one it had, or a new one, committed. For threads.

    Raises TokenMissing for nobody, TokenInvalid, NotOnSale, RoomDrained; Busy when too many join at once, and when it
    is not known what became of it: joining again finds the place, should there be one.
    """
    request = _validate(JoinRequest(event, caller))
    try:
        outcome = joins.submit_sync(request, JOIN_TIMEOUT_MS)
    except psycopg.errors.ForeignKeyViolation as error:
        raise _foreign_key_problem(error) from error
    return _unwrap_outcome(outcome)


async def join_async(event: events.EventView, caller: Caller) -> EntryView:
    """The same for async handlers, on any loop."""
    request = _validate(JoinRequest(event, caller))
    try:
        outcome = await joins.submit(request)
    except psycopg.errors.ForeignKeyViolation as error:
        raise _foreign_key_problem(error) from error
    return _unwrap_outcome(outcome)


def join_many(requests: Sequence[JoinRequest]) -> list[JoinOutcome]:
    """Each caller has exactly one place, all committed in one transaction of this thread's own connection; one outcome
    per request, in their order. Not inside a transaction."""
    checked: list[JoinRequest | problems.Problem] = []
    for request in requests:
        try:
            checked.append(_validate(request))
        except problems.Problem as problem:
            checked.append(problem)
    to_decide = [request for request in checked if isinstance(request, JoinRequest)]
    outcomes: list[JoinOutcome] = []
    if to_decide:
        with transactions.write(), django_connection.cursor() as at:
            outcomes = _decide_on_cursor(at, to_decide)
    decided = iter(outcomes)
    return [next(decided) if isinstance(request, JoinRequest) else request for request in checked]


def _validate(request: JoinRequest) -> JoinRequest:
    """The request, if it can be decided at all: what the database could not even store would spoil a whole batch."""
    caller = request.caller
    if not caller.is_known:
        raise problems.TokenMissing
    if caller.entry_id is None and caller.account_id is None:
        check_visitor_id(caller.visitor_id)
    return request


def _unwrap_outcome(outcome: JoinOutcome) -> EntryView:
    if isinstance(outcome, problems.Problem):
        raise outcome
    return outcome


def _foreign_key_problem(error: psycopg.Error) -> problems.Problem:
    # The session or token outlived its account, or the event was deleted under it.
    is_account = "account" in (error.diag.constraint_name or "")
    return problems.TokenInvalid("This account no longer exists.") if is_account else problems.NotFound()


def _decide(connection: psycopg.Connection[Any], requests: Sequence[JoinRequest]) -> list[JoinOutcome]:
    with transactions.write_on(connection, lock_ms=JOIN_LOCK_MS, statement_ms=JOIN_STATEMENT_MS) as cursor:
        return _decide_on_cursor(cursor, requests)


def _decide_on_cursor(cursor: sql.Cursor, requests: Sequence[JoinRequest]) -> list[JoinOutcome]:
    batch = _JoinBatch(requests)
    batch.lock(cursor)
    places: list[Entry | problems.Problem] = []
    for request in requests:
        try:
            places.append(batch.entry_for(request))
        except problems.Problem as problem:
            places.append(problem)
    batch.write(cursor)
    return [
        place if isinstance(place, problems.Problem) else view_of(place, request.event.slug)
        for place, request in zip(places, requests, strict=True)
    ]


def _find_committed(connection: psycopg.Connection[Any], requests: Sequence[JoinRequest]) -> Mapping[int, JoinOutcome]:
    """New places that an earlier attempt committed. Who was given a standing one is given it again."""
    with transactions.write_on(connection) as cursor:
        rows = _entries_by_id.rows(cursor, entry_ids=[request.entry_id for request in requests])
    found = {entry[0]: Entry(*entry) for *entry, _ in rows}
    return {
        index: view_of(found[request.entry_id], request.event.slug)
        for index, request in enumerate(requests)
        if request.entry_id in found
    }


joins: Batcher[JoinRequest, JoinOutcome] = Batcher(
    "joins",
    _decide,
    find_committed=_find_committed,
    # Never mixed: a batch begins with the room's lock, which a long act on one room may keep for a while.
    key=lambda request: request.event.id,
    committers_max=COMMITTERS_MAX,
)


class _JoinBatch:
    """What one transaction of joins knows. Its methods run in the order of the locks they take."""

    def __init__(self, requests: Sequence[JoinRequest]) -> None:
        self.requests = requests
        self.events = {request.event.id: request.event for request in requests}
        self.rooms: dict[int, Room] = {}
        self.as_read: dict[int, Room] = {}
        self.identities_of_tokens: dict[uuid.UUID, _Identity] = {}
        self.live_entries: dict[_Identity, Entry] = {}
        self.ended_in_lobby: dict[_Identity, Entry] = {}
        self.arrived: dict[uuid.UUID, Entry] = {}
        self.new: dict[int, list[Entry]] = {}
        self.nonces: dict[uuid.UUID, bytes] = {}
        self.lowest: dict[int, int | None] = {}
        """Who waits longest in each room, by number, before this batch."""
        self.now = datetime.min

    def lock(self, cursor: sql.Cursor) -> None:
        """The rooms, then the live entries of everyone who asks, are locked; the clock is read under the locks, and
        rooms whose time has come are open."""
        lock = lock_rooms_call(list(self.events))
        tokens = [request.caller.entry_id for request in self.requests if request.caller.entry_id is not None]
        if tokens:
            # Read without a lock: whose an entry is changes under the room's lock only.
            locked, owners = sql.execute_batch(cursor, [lock, _identities.call(entry_ids=arrays.uuids(tokens))])
            self.identities_of_tokens = {row[0]: (row[1], row[2], row[3]) for row in owners.rows}
        asked = {identity for request in self.requests if (identity := self._identity(request)) is not None}
        reading = [_lock_entries_call(asked), clock.now_call()]
        reading += [_lowest_waiting.call(event_id=event_id) for event_id in self.events]
        if tokens:
            places, moment, *lowest = sql.execute_batch(cursor, reading)
        else:
            locked, places, moment, *lowest = sql.execute_batch(cursor, [lock, *reading])
        self.rooms = rooms_from_rows(locked.rows)
        self.as_read = {event_id: replace(room) for event_id, room in self.rooms.items()}
        self.live_entries = _by_identity(places.rows)
        ((self.now,),) = moment.rows
        self.lowest = {event_id: one.rows[0][0] for event_id, one in zip(self.events, lowest, strict=True)}
        for event_id, room in self.rooms.items():
            open_if_due(cursor, room, self.events[event_id], self.now)
        in_lobby = {one for one in asked if one[0] in self.rooms and _is_lobby(self.rooms[one[0]])}
        if in_lobby - self.live_entries.keys():
            rows = _lock_lobby_places.rows(cursor, **_columns_of(in_lobby - self.live_entries.keys()))
            self.ended_in_lobby = _by_identity(rows)

    def _identity(self, request: JoinRequest) -> _Identity | None:
        """Whose place is meant: the caller's, or whoever a token speaks for. None: a token of no entry here, or
        nobody."""
        caller, event_id = request.caller, request.event.id
        if caller.entry_id is not None:
            identity = self.identities_of_tokens.get(caller.entry_id)
            return identity if identity is not None and identity[0] == event_id else None
        if caller.account_id is not None:
            return (event_id, caller.account_id, "")
        return (event_id, None, caller.visitor_id) if caller.visitor_id else None

    def entry_for(self, request: JoinRequest) -> Entry:
        """The one place of who asks: standing, taken up again, or new. Raises the problem that refuses it."""
        identity = self._identity(request)
        if identity is None:
            raise problems.TokenMissing if request.caller.entry_id is None else problems.TokenInvalid
        room = self.rooms.get(request.event.id)
        if room is None or not is_lobby_open(room, request.event, self.now):
            require_on_sale(request.event, self.now)
        if room is None:
            raise NotOnSale
        entry = self.live_entries.get(identity)
        if entry is not None and entry.id not in self.nonces and apply_arrival(entry, room.admission_seconds, self.now):
            self.arrived[entry.id] = entry
        if room.state == WaitingRoom.State.DRAINED and (entry is None or entry.status != QueueEntry.Status.READY):
            raise RoomDrained
        if entry is None or entry.status not in QueueEntry.LIVE:
            entry = self._reopen_lobby_entry(identity) or self._new_entry(request, room, identity)
            self.live_entries[identity] = entry
        return entry

    def _reopen_lobby_entry(self, identity: _Identity) -> Entry | None:
        """Who left the lobby and comes back while it is open has the same entry again: nobody draws twice."""
        entry = self.ended_in_lobby.get(identity)
        if entry is not None:
            entry.status, entry.ended_at = QueueEntry.Status.WAITING, None
            self.arrived[entry.id] = entry
        return entry

    def _new_entry(self, request: JoinRequest, room: Room, identity: _Identity) -> Entry:
        event_id, account_id, visitor_id = identity
        in_lobby = _is_lobby(room)
        number = None if in_lobby else room.next_number
        # In the lobby the numbers up to its count are the draw's, so the next one to hand out is always above them.
        room.next_number += 1
        if number is None:
            room.lobby_count += 1
        else:
            previous = room.chain_head or proofs.genesis(request.event.slug)
            room.chain_head = proofs.link(previous, number, proofs.leaf(request.entry_id, request.nonce))
        entry = Entry(
            request.entry_id, event_id, number, in_lobby, account_id, visitor_id, QueueEntry.Status.WAITING,
            claim_expires_at=None, admission_expires_at=None, busy_until=None, ended_at=None,
        )  # fmt: skip
        self.nonces[entry.id] = request.nonce
        self.new.setdefault(event_id, []).append(entry)
        return entry

    def write(self, cursor: sql.Cursor) -> None:
        """Everything decided is written, each row once; where nobody waits ahead of the new ones they are let in within
        the caps."""
        letting_in = [self.rooms[one] for one, entries in self.new.items() if self._can_admit(entries[0])]
        writes = [
            *self._save_arrivals_calls(),
            *self._insert_entries_calls([entry for entries in self.new.values() for entry in entries]),
            *[
                (1, save_room_call(room))
                for event_id, room in self.rooms.items()
                if room != self.as_read[event_id] and room not in letting_in
            ],
        ]
        done = sql.execute_batch(cursor, [call for _, call in writes])
        for (expected, _), one in zip(writes, done, strict=True):
            if one.touched != expected:
                raise RuntimeError(f"{one.touched} of {expected} rows written")
        for room in letting_in:
            self._admit_new(cursor, room)

    def _admit_new(self, cursor: sql.Cursor, room: Room) -> None:
        entries = self.new[room.event_id]
        present = [entry.id for entry in entries]
        admitted = admit_next(cursor, room, self.now, reason=AdmissionBatch.Reason.EMPTY_LINE, present=present).numbers
        for entry in entries:
            if entry.id in admitted:
                # As the statement wrote it.
                entry.status = QueueEntry.Status.READY
                entry.admission_expires_at = self.now + timedelta(seconds=room.admission_seconds)

    def _save_arrivals_calls(self) -> list[tuple[int, sql.Call]]:
        """How many rows it has to touch, and the statement."""
        if not self.arrived:
            return []
        entries = list(self.arrived.values())
        call = _save_arrivals.call(
            entry_ids=arrays.uuids([entry.id for entry in entries]),
            statuses=[str(entry.status) for entry in entries],
            admissions=[entry.admission_expires_at for entry in entries],
            ends=[entry.ended_at for entry in entries],
        )
        return [(len(entries), call)]

    def _insert_entries_calls(self, entries: Sequence[Entry]) -> list[tuple[int, sql.Call]]:
        if not entries:
            return []
        call = _insert_entries.call(
            ids=arrays.uuids([entry.id for entry in entries]),
            event_ids=arrays.numbers([entry.event_id for entry in entries]),
            numbers=arrays.numbers([entry.number for entry in entries]),
            in_lobby=arrays.flags([entry.in_lobby for entry in entries]),
            nonces=arrays.byte_strings([self.nonces[entry.id] for entry in entries]),
            account_ids=arrays.numbers([entry.account_id for entry in entries]),
            visitor_ids=arrays.texts([entry.visitor_id for entry in entries]),
            joined_at=self.now,
        )
        return [(len(entries), call)]

    def _can_admit(self, first: Entry) -> bool:
        """Whether a join should try to let in: nobody is ahead, which for a room that is off does not matter. (It would
        overtake nobody in any case, since the lowest numbers go first; with a line ahead the tick does it, and the join
        stays cheap.)"""
        room = self.rooms[first.event_id]
        if first.number is None or room.numbered_through is not None:
            return False
        if room.state == WaitingRoom.State.OPEN:
            waiting = [self.lowest[first.event_id], *self._returned_numbers(first.event_id)]
            return not any(number is not None and number < first.number for number in waiting)
        return room.state == WaitingRoom.State.OFF

    def _returned_numbers(self, event_id: int) -> list[int | None]:
        """Whoever waits again because this batch brought it, and did not when the line was looked at."""
        return [
            entry.number
            for entry in self.arrived.values()
            if entry.event_id == event_id and entry.status == QueueEntry.Status.WAITING
        ]


def _is_lobby(room: Room) -> bool:
    return room.state == WaitingRoom.State.LOBBY


def _by_identity(rows: Sequence[tuple[Any, ...]]) -> dict[_Identity, Entry]:
    entries = [Entry(*row) for row in rows]
    return {(entry.event_id, entry.account_id, entry.visitor_id): entry for entry in entries}


def _lock_entries_call(asked: set[_Identity]) -> sql.Call:
    """The lock on the live entries of all these; of browsers at one event, which a crowd is, in a plainer statement."""
    event_ids = {event_id for event_id, _, _ in asked}
    if len(event_ids) != 1 or any(account is not None for _, account, _ in asked):
        return _lock_places.call(**_columns_of(asked))
    visitor_ids = arrays.texts(sorted([visitor for _, _, visitor in asked]))
    return _lock_visitor_places.call(event_id=event_ids.pop(), visitor_ids=visitor_ids)


def _columns_of(identities: set[_Identity]) -> dict[str, arrays.Array]:
    accounts = sorted((event_id, account) for event_id, account, _ in identities if account is not None)
    visitors = sorted((event_id, visitor) for event_id, account, visitor in identities if account is None)
    return {
        "account_event_ids": arrays.numbers([event_id for event_id, _ in accounts]),
        "account_ids": arrays.numbers([account for _, account in accounts]),
        "visitor_event_ids": arrays.numbers([event_id for event_id, _ in visitors]),
        "visitor_ids": arrays.texts([visitor for _, visitor in visitors]),
    }
