"""Joining by group commit: a burst of joins takes few transactions, and each entry is committed before its response.

A batch runs on a connection of group commit. Its transaction locks the rooms in id order, then the live entries of all
callers. The joins are decided in memory, in the order of arrival. Then one statement writes all new entries, and one
writes each changed room. Two joins of one browser serialize on the room's lock, and the second sees the first one's
entry. The numbers and the published hash chain advance under the same lock.
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
from apps.kernel.proof_of_work.challenges import WorkRequired
from apps.queue import proofs
from apps.queue.entries.entry import Entry, EntryView, apply_arrival, view_of
from apps.queue.entries.presale import PresaleAccess, codes_left_call, presale_refusal
from apps.queue.errors import NotOnSale, PresaleCodeInUse, RoomDrained
from apps.queue.identity import networks
from apps.queue.identity.caller import Caller, check_visitor_secret
from apps.queue.lobby.lobby import is_lobby_open, open_if_due
from apps.queue.models import AdmissionBatch, QueueEntry, WaitingRoom
from apps.queue.room.admission import admit_next
from apps.queue.room_row import Room, lock_rooms_call, rooms_from_rows, save_room_call
from apps.queue.screening.result import UNSCREENED, Screening
from apps.queue.snapshot import exceptions

JOIN_TIMEOUT_MS = 10_000
JOIN_LOCK_MS = 4_000
"""The limit of each wait for a lock. Ticks and operators lock a room for some milliseconds. A batch that exceeds the
limit is retried once; after a second failure its callers receive Busy."""
JOIN_STATEMENT_MS = 5_000
COMMITTERS_MAX = 4
"""Concurrent batches of one process, each for a different event and on its own connection."""

_PACKAGE = "apps.queue"
_identities = sql.load(_PACKAGE, "identities", prepared=True)
_lock_live_entries = sql.load(_PACKAGE, "lock_live_entries")
_lock_visitor_entries = sql.load(_PACKAGE, "lock_visitor_entries", prepared=True)
_lock_lobby_entries = sql.load(_PACKAGE, "lock_lobby_entries")
_save_arrivals = sql.load(_PACKAGE, "save_arrivals")
_insert_entries = sql.load(_PACKAGE, "insert_entries", prepared=True)
_insert_checked_entries = sql.load(_PACKAGE, "insert_checked_entries")
_set_presale_keys = sql.load(_PACKAGE, "set_presale_keys")
_used_works = sql.load(_PACKAGE, "used_works")
_lowest_waiting = sql.load(_PACKAGE, "lowest_waiting", prepared=True)
_entries_by_id = sql.load(_PACKAGE, "entries_by_id", prepared=True)


@dataclass(frozen=True, slots=True)
class JoinRequest:
    event: events.EventView
    caller: Caller
    entry_id: uuid.UUID = field(default_factory=random_bytes.new_uuid)
    """The id of a new entry, generated here so that it can be found after a lost connection."""
    nonce: bytes = field(default_factory=random_bytes.next_bytes)
    access: PresaleAccess | None = None
    """How the caller meets the condition of the event's presale; None: not at all."""
    screening: Screening = UNSCREENED
    network: bytes | None = None
    """Where the request comes from (`networks.recorded_network`), for the report of the sale; None: not recorded."""


JoinOutcome = EntryView | problems.Problem
_Identity = tuple[int, int | None, str]
"""Event id, account id and visitor id. The visitor id is empty for an account."""


def require_on_sale(event: events.EventView, at: datetime) -> None:
    """Raise NotOnSale unless the event is on sale."""
    state = event.selling_state(at)
    if state == "upcoming":
        raise NotOnSale("Sales have not opened yet.", opens_at=event.policy.opens_at.isoformat())
    if state != "on_sale":
        raise NotOnSale("This event is canceled." if state == "canceled" else "Sales have closed.")


def join(
    event: events.EventView,
    caller: Caller,
    screening: Screening = UNSCREENED,
    *,
    access: PresaleAccess | None = None,
    network: bytes | None = None,
) -> EntryView:
    """Return the caller's only entry in the event's queue, existing or new, after the commit. Blocks.

    Raises TokenMissing for an unidentified caller, TokenInvalid, NotOnSale, RoomDrained, WorkRequired (without a
    challenge) if a new entry needs work that the caller has not done or has used up, and Busy under overload or if the
    outcome is unknown. If the entry was created nevertheless, joining again returns it. In a presale, a new entry
    without `access` raises PresaleOnly, and one with it the refusal of `access`, or PresaleCodeInUse if live entries
    and reservations take all uses of its code. A new entry keeps a digest of `network`, if it is given.
    """
    request = _validate(JoinRequest(event, caller, access=access, screening=screening, network=network))
    try:
        outcome = joins.submit_sync(request, JOIN_TIMEOUT_MS)
    except psycopg.errors.ForeignKeyViolation as error:
        raise _foreign_key_problem(error) from error
    return _unwrap_outcome(outcome)


async def join_async(
    event: events.EventView,
    caller: Caller,
    screening: Screening = UNSCREENED,
    *,
    access: PresaleAccess | None = None,
    network: bytes | None = None,
) -> EntryView:
    """`join` for async handlers, on any event loop."""
    request = _validate(JoinRequest(event, caller, access=access, screening=screening, network=network))
    try:
        outcome = await joins.submit(request)
    except psycopg.errors.ForeignKeyViolation as error:
        raise _foreign_key_problem(error) from error
    return _unwrap_outcome(outcome)


def join_on_cursor(
    cursor: sql.Cursor,
    event: events.EventView,
    caller: Caller,
    *,
    access: PresaleAccess | None = None,
    network: bytes | None = None,
) -> EntryView:
    """`join` without screening, in the caller's transaction, which locks the room and the caller's entries."""
    transactions.require_transaction(cursor)
    request = _validate(JoinRequest(event, caller, access=access, network=network))
    (outcome,) = _decide_on_cursor(cursor, [request])
    return _unwrap_outcome(outcome)


def join_many(requests: Sequence[JoinRequest]) -> list[JoinOutcome]:
    """Join several callers in one transaction on this thread's connection; return one outcome per request, in order.
    Not to be called inside a transaction."""
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
    """Return the request unchanged. Raises a problem if it is invalid: a value that the database cannot store would
    fail the whole batch."""
    caller = request.caller
    if not caller.is_known:
        raise problems.TokenMissing
    if caller.entry_id is None and caller.account_id is None:
        check_visitor_secret(caller.visitor_id)  # A visitor id has the same form.
    return request


def _unwrap_outcome(outcome: JoinOutcome) -> EntryView:
    if isinstance(outcome, problems.Problem):
        raise outcome
    if outcome.is_in_review:
        exceptions.mark_exceptional(outcome.event_id, outcome.number, outcome.id)
    return outcome


def _foreign_key_problem(error: psycopg.Error) -> problems.Problem:
    # The account or the event was deleted while its session or token was still in use.
    is_account = "account" in (error.diag.constraint_name or "")
    return problems.TokenInvalid("This account no longer exists.") if is_account else problems.NotFound()


def _decide(connection: psycopg.Connection[Any], requests: Sequence[JoinRequest]) -> list[JoinOutcome]:
    with transactions.write_on(connection, lock_ms=JOIN_LOCK_MS, statement_ms=JOIN_STATEMENT_MS) as cursor:
        return _decide_on_cursor(cursor, requests)


def _decide_on_cursor(cursor: sql.Cursor, requests: Sequence[JoinRequest]) -> list[JoinOutcome]:
    batch = _JoinBatch(requests)
    batch.lock(cursor)
    entries: list[Entry | problems.Problem] = []
    for request in requests:
        try:
            entries.append(batch.entry_for(request))
        except problems.Problem as problem:
            entries.append(problem)
    batch.write(cursor)
    return [
        entry if isinstance(entry, problems.Problem) else view_of(entry, request.event.slug)
        for entry, request in zip(entries, requests, strict=True)
    ]


def _find_committed(connection: psycopg.Connection[Any], requests: Sequence[JoinRequest]) -> Mapping[int, JoinOutcome]:
    """Return the new entries that an earlier attempt committed. Requests that found an existing entry are simply
    decided again."""
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
    # One event per batch: a batch begins with the room's lock, and a long operation on one room must not delay the
    # joins of other events.
    key=lambda request: request.event.id,
    committers_max=COMMITTERS_MAX,
)


class _JoinBatch:
    """The state of one transaction of joins. Its methods are called in this order: `lock`, `entry_for` for each
    request, `write`."""

    def __init__(self, requests: Sequence[JoinRequest]) -> None:
        self.requests = requests
        self.events = {request.event.id: request.event for request in requests}
        self.rooms: dict[int, Room] = {}
        self.as_read: dict[int, Room] = {}
        """The rooms as they were when they were locked, to find those that changed."""
        self.identities_of_tokens: dict[uuid.UUID, _Identity] = {}
        self.live_entries: dict[_Identity, Entry] = {}
        self.ended_in_lobby: dict[_Identity, Entry] = {}
        self.suspect: set[uuid.UUID] = set()
        """The ids of those of these entries whose stored score asks for a review."""
        self.arrived: dict[uuid.UUID, Entry] = {}
        """Existing entries that this batch has changed."""
        self.new: dict[int, list[Entry]] = {}
        self.nonces: dict[uuid.UUID, bytes] = {}
        self.screenings: dict[uuid.UUID, Screening] = {}
        """Those of new entries, unless the room has no screening."""
        self.networks: dict[uuid.UUID, bytes] = {}
        """The digests of new entries' networks, where they are recorded."""
        self.used_works: set[tuple[int, bytes]] = set()
        """Of the solutions in this batch, with the event: those that an entry has used up."""
        self.codes_left: dict[bytes, int] = {}
        """How many more entries each presale code with a limit may open, less those of this batch."""
        self.presale_keys: dict[uuid.UUID, bytes] = {}
        """The codes that opened new and reopened entries."""
        self.lowest: dict[int, int | None] = {}
        """The lowest waiting number of each room before this batch."""
        self.now = datetime.min

    def lock(self, cursor: sql.Cursor) -> None:
        """Lock the rooms, then the live entries of all callers; read the clock under the locks; open due rooms."""
        lock = lock_rooms_call(list(self.events))
        tokens = [request.caller.entry_id for request in self.requests if request.caller.entry_id is not None]
        if tokens:
            # The owners are read without locking the entries: an owner changes only under the room's lock.
            locked, owners = sql.execute_batch(cursor, [lock, _identities.call(entry_ids=arrays.uuids(tokens))])
            self.identities_of_tokens = {row[0]: (row[1], row[2], row[3]) for row in owners.rows}
        identities = {identity for request in self.requests if (identity := self._identity(request)) is not None}
        reading = [_lock_entries_call(identities), clock.now_call()]
        reading += [_lowest_waiting.call(event_id=event_id) for event_id in self.events]
        works = self._works_by_event()
        reading += [
            _used_works.call(event_id=event_id, works=arrays.byte_strings(works[event_id])) for event_id in works
        ]
        if tokens:
            entries, moment, *rest = sql.execute_batch(cursor, reading)
        else:
            locked, entries, moment, *rest = sql.execute_batch(cursor, [lock, *reading])
        lowest, used = rest[: len(self.events)], rest[len(self.events) :]
        self.rooms = rooms_from_rows(locked.rows)
        self.as_read = {event_id: replace(room) for event_id, room in self.rooms.items()}
        self.live_entries = _by_identity(entries.rows)
        ((self.now,),) = moment.rows
        self.lowest = {event_id: one.rows[0][0] for event_id, one in zip(self.events, lowest, strict=True)}
        self.used_works = {(one, row[0]) for one, found in zip(works, used, strict=True) for row in found.rows}
        for event_id, room in self.rooms.items():
            open_if_due(cursor, room, self.events[event_id], self.now)
        in_lobby = {one for one in identities if one[0] in self.rooms and _is_lobby(self.rooms[one[0]])}
        if in_lobby - self.live_entries.keys():
            rows = _lock_lobby_entries.rows(cursor, **_columns_of(in_lobby - self.live_entries.keys()))
            self.ended_in_lobby = _by_identity([row[:-1] for row in rows])
            self.suspect = {row[0] for row in rows if row[-1]}
        keys = {request.access.key for request in self.requests if request.access is not None and request.access.key}
        if keys:
            # Under the room's lock, as every insertion and reopening of an entry of these codes.
            ended = [entry.id for entry in self.live_entries.values() if self._ends_by_arrival(entry)]
            (left,) = sql.execute_batch(cursor, [codes_left_call(sorted(keys), ended)])
            self.codes_left = dict(left.rows)

    def _ends_by_arrival(self, entry: Entry) -> bool:
        arrived = replace(entry)
        apply_arrival(arrived, self.rooms[entry.event_id].admission_seconds, self.now)
        return arrived.status not in QueueEntry.LIVE

    def _works_by_event(self) -> dict[int, list[bytes]]:
        works: dict[int, list[bytes]] = {}
        for request in self.requests:
            if request.screening.work is not None:
                works.setdefault(request.event.id, []).append(request.screening.work)
        return works

    def _identity(self, request: JoinRequest) -> _Identity | None:
        """Return the identity for which the request joins: the caller's own, or that of the owner of the token's entry.
        None if the token has no entry of this event that it may use, or if the caller is unidentified."""
        caller, event_id = request.caller, request.event.id
        if caller.entry_id is not None:
            identity = self.identities_of_tokens.get(caller.entry_id)
            if identity is None or identity[0] != event_id or not caller.may_use_account(identity[1]):
                return None
            return identity
        if caller.account_id is not None:
            return (event_id, caller.account_id, "")
        return (event_id, None, caller.visitor_id) if caller.visitor_id else None

    def entry_for(self, request: JoinRequest) -> Entry:
        """Return the caller's entry: existing, reopened or new. Raises the problem that refuses the join."""
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
            key = self._check_presale(request)
            entry = self._reopen_lobby_entry(request, identity) or self._new_entry(request, room, identity)
            self.live_entries[identity] = entry
            if key:
                self.presale_keys[entry.id] = key
                if key in self.codes_left:
                    self.codes_left[key] -= 1
        return entry

    def _check_presale(self, request: JoinRequest) -> bytes:
        """Return the key of the code that lets the request open an entry in the presale; empty if it needs none.
        Raises the problem that refuses it: PresaleOnly, that of its code, or PresaleCodeInUse."""
        presale, access = request.event.presale_at(self.now), request.access
        if presale is None:
            return b""
        if access is None:
            raise presale_refusal(presale, self.now)
        if access.refusal is not None:
            raise access.refusal
        if access.key in self.codes_left and self.codes_left[access.key] <= 0:
            raise PresaleCodeInUse(
                "All uses of this access code are taken, by orders or by visitors in line. Try again later: a visitor "
                "who leaves without tickets returns one."
            )
        return access.key

    def _reopen_lobby_entry(self, request: JoinRequest, identity: _Identity) -> Entry | None:
        """Reopen the entry of a visitor who left the open lobby, so that no visitor has two entries in the draw. It
        goes to review if its stored score or that of this request asks for one: otherwise leaving and joining again
        would end a review, or undo a refusal. It needs no work."""
        entry = self.ended_in_lobby.get(identity)
        if entry is not None:
            screening = request.screening
            if screening is not UNSCREENED and entry.id in self.suspect:
                screening = screening._replace(for_review=True)
            entry.status, entry.ended_at = _first_status(screening), None
            self.arrived[entry.id] = entry
        return entry

    def _new_entry(self, request: JoinRequest, room: Room, identity: _Identity) -> Entry:
        event_id, account_id, visitor_id = identity
        screening = request.screening
        if screening is not UNSCREENED:
            self._use_work(event_id, screening)
        in_lobby = _is_lobby(room)
        number = None if in_lobby else room.next_number
        # The draw assigns the numbers up to the lobby's count, so the room's next number is always above that count.
        room.next_number += 1
        if number is None:
            room.lobby_count += 1
        else:
            previous = room.chain_head or proofs.genesis(request.event.slug)
            room.chain_head = proofs.link(previous, number, proofs.leaf(request.entry_id, request.nonce))
        entry = Entry(
            request.entry_id, event_id, number, in_lobby, account_id, visitor_id,
            _first_status(screening), claim_expires_at=None, admission_expires_at=None, busy_until=None, ended_at=None,
        )  # fmt: skip
        self.nonces[entry.id] = request.nonce
        if screening is not UNSCREENED:
            self.screenings[entry.id] = screening
        if request.network is not None and room.network_key is not None:
            # Under the room's lock, as the deletion of the key: once that is committed, no join writes a digest.
            room.network_key = room.network_key or networks.new_key()
            self.networks[entry.id] = networks.digest(room.network_key, request.network)
        self.new.setdefault(event_id, []).append(entry)
        return entry

    def _use_work(self, event_id: int, screening: Screening) -> None:
        """Record that this batch uses the work up. Raises WorkRequired if there is none, or if it is used up already:
        by a committed entry, or by a request before this one in the batch."""
        used = (event_id, screening.work)
        if screening.work is None:
            if screening.needs_work:
                raise WorkRequired
        elif used in self.used_works:
            raise WorkRequired("This proof has been used for an earlier join.")
        else:
            self.used_works.add((event_id, screening.work))

    def write(self, cursor: sql.Cursor) -> None:
        """Write all changes, each row once, and admit new entries within the caps if no entry waits ahead of them."""
        admitting = [self.rooms[one] for one, entries in self.new.items() if self._can_admit(entries[0])]
        writes = [
            *self._save_arrivals_calls(),
            *self._set_presale_keys_calls(),
            *self._insert_entries_calls([entry for entries in self.new.values() for entry in entries]),
            *[
                (1, save_room_call(room))
                for event_id, room in self.rooms.items()
                if room != self.as_read[event_id] and room not in admitting
            ],
        ]
        done = sql.execute_batch(cursor, [call for _, call in writes])
        for (expected, _), one in zip(writes, done, strict=True):
            if one.touched != expected:
                raise RuntimeError(f"{one.touched} of {expected} rows written")
        for room in admitting:
            self._admit_new(cursor, room)

    def _admit_new(self, cursor: sql.Cursor, room: Room) -> None:
        entries = self.new[room.event_id]
        present = [entry.id for entry in entries]
        admitted = admit_next(cursor, room, self.now, reason=AdmissionBatch.Reason.EMPTY_LINE, present=present)
        for entry in entries:
            if entry.id in admitted:
                # As the admission has written them to the row.
                entry.status = QueueEntry.Status.READY
                entry.admission_expires_at = self.now + timedelta(seconds=room.admission_seconds)

    def _save_arrivals_calls(self) -> list[tuple[int, sql.Call]]:
        """Return the statement, if any, with the number of rows that it must change."""
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

    def _set_presale_keys_calls(self) -> list[tuple[int, sql.Call]]:
        """Return the statement, if any, for the entries that a code has reopened. New ones are inserted with theirs."""
        reopened = [one for one in self.presale_keys if one not in self.nonces]
        if not reopened:
            return []
        keys = arrays.byte_strings([self.presale_keys[one] for one in reopened])
        return [(len(reopened), _set_presale_keys.call(entry_ids=arrays.uuids(reopened), keys=keys))]

    def _insert_entries_calls(self, entries: Sequence[Entry]) -> list[tuple[int, sql.Call]]:
        checked_ids = self.screenings.keys() | self.presale_keys.keys()
        checked = [entry for entry in entries if entry.id in checked_ids] if checked_ids else []
        plain = [entry for entry in entries if entry.id not in checked_ids] if checked else entries
        calls = []
        if plain:
            calls.append((len(plain), _insert_entries.call(**self._columns(plain))))
        if checked:
            screenings = [self.screenings.get(entry.id, UNSCREENED) for entry in checked]
            call = _insert_checked_entries.call(
                **self._columns(checked),
                statuses=[str(entry.status) for entry in checked],
                works=arrays.byte_strings([one.work for one in screenings]),
                scores=arrays.numbers([one.score for one in screenings]),
                reasons=arrays.texts([one.reasons for one in screenings]),
                presale_keys=arrays.byte_strings([self.presale_keys.get(entry.id) for entry in checked]),
            )
            calls.append((len(checked), call))
        return calls

    def _columns(self, entries: Sequence[Entry]) -> dict[str, Any]:
        ids = [entry.id for entry in entries]
        return {
            "ids": arrays.uuids(ids),
            "event_ids": arrays.numbers([entry.event_id for entry in entries]),
            "numbers": arrays.numbers([entry.number for entry in entries]),
            "in_lobby": arrays.flags([entry.in_lobby for entry in entries]),
            "nonces": arrays.byte_strings([self.nonces[one] for one in ids]),
            "account_ids": arrays.numbers([entry.account_id for entry in entries]),
            "visitor_ids": arrays.texts([entry.visitor_id for entry in entries]),
            "joined_at": self.now,
            # Missing elements are NULL.
            "networks": arrays.byte_strings(map(self.networks.get, ids) if self.networks else ()),
        }

    def _can_admit(self, first: Entry) -> bool:
        """Return whether this batch should admit: no entry waits ahead, or the room is off.

        Admission takes the lowest numbers first, so admitting here could never overtake an entry. But while entries
        wait ahead, admission is left to the next tick, so that a join stays cheap.
        """
        room = self.rooms[first.event_id]
        if first.number is None or room.numbered_through is not None:
            return False
        if room.state == WaitingRoom.State.OPEN:
            waiting = [self.lowest[first.event_id], *self._returned_numbers(first.event_id)]
            return not any(number is not None and number < first.number for number in waiting)
        return room.state == WaitingRoom.State.OFF

    def _returned_numbers(self, event_id: int) -> list[int | None]:
        """Return the numbers of the entries that this batch has made wait again. `lowest`, which was read before, does
        not include them."""
        return [
            entry.number
            for entry in self.arrived.values()
            if entry.event_id == event_id and entry.status == QueueEntry.Status.WAITING
        ]


def _first_status(screening: Screening) -> QueueEntry.Status:
    return QueueEntry.Status.REVIEW if screening.for_review else QueueEntry.Status.WAITING


def _is_lobby(room: Room) -> bool:
    return room.state == WaitingRoom.State.LOBBY


def _by_identity(rows: Sequence[tuple[Any, ...]]) -> dict[_Identity, Entry]:
    entries = [Entry(*row) for row in rows]
    return {(entry.event_id, entry.account_id, entry.visitor_id): entry for entry in entries}


def _lock_entries_call(identities: set[_Identity]) -> sql.Call:
    """Return the statement that locks these live entries. In the usual case, guests of one event, a simpler statement
    suffices."""
    event_ids = {event_id for event_id, _, _ in identities}
    if len(event_ids) != 1 or any(account is not None for _, account, _ in identities):
        return _lock_live_entries.call(**_columns_of(identities))
    visitor_ids = arrays.texts(sorted([visitor for _, _, visitor in identities]))
    return _lock_visitor_entries.call(event_id=event_ids.pop(), visitor_ids=visitor_ids)


def _columns_of(identities: set[_Identity]) -> dict[str, arrays.Array]:
    accounts = sorted((event_id, account) for event_id, account, _ in identities if account is not None)
    visitors = sorted((event_id, visitor) for event_id, account, visitor in identities if account is None)
    return {
        "account_event_ids": arrays.numbers([event_id for event_id, _ in accounts]),
        "account_ids": arrays.numbers([account for _, account in accounts]),
        "visitor_event_ids": arrays.numbers([event_id for event_id, _ in visitors]),
        "visitor_ids": arrays.texts([visitor for _, visitor in visitors]),
    }
