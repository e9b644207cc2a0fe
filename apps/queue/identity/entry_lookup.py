"""Finds the live queue entry of an account or a browser for the fast path, with batched reads of PostgreSQL."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from apps.kernel.db import arrays, reads, sql
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.queue.identity.caller import Caller

_account_entries = sql.load("apps.queue", "account_entries", prepared=True)
_guest_entries = sql.load("apps.queue", "guest_entries", prepared=True)


class _Owner(NamedTuple):
    event_id: int
    account_id: int | None
    visitor_id: str


async def find_live_entry_id(event_id: int, caller: Caller) -> UUID | None:
    """Return the id of the live entry of the account or, without an account, of the browser; None without an entry."""
    if caller.account_id is None and not caller.visitor_id:
        return None
    return await _entry_id_loader.ask(
        _Owner(event_id, caller.account_id, "" if caller.account_id else caller.visitor_id)
    )


def load_live_entry_ids(owners: Sequence[_Owner]) -> reads.Read[list[UUID | None]]:
    """Read the id of each owner's live entry, in order."""
    calls = guest_entries_calls([(owner.event_id, owner.visitor_id) for owner in owners if owner.account_id is None])
    of_guests = len(calls)
    accounts = [(owner.event_id, owner.account_id) for owner in owners if owner.account_id is not None]
    if accounts:
        event_ids, account_ids = map(arrays.numbers, zip(*accounts, strict=True))
        calls.append(_account_entries.call(event_ids=event_ids, account_ids=account_ids))
    results = [result.rows for result in (yield calls)]
    found = guest_entry_ids(row for rows in results[:of_guests] for row in rows)
    entry_ids = {_Owner(event_id, None, visitor_id): entry_id for (event_id, visitor_id), entry_id in found.items()}
    for event_id, account_id, entry_id in (row for rows in results[of_guests:] for row in rows):
        entry_ids[_Owner(event_id, account_id, "")] = entry_id
    return [entry_ids.get(owner) for owner in owners]


def guest_entries_calls(keys: Sequence[tuple[int, str]]) -> list[sql.Call]:
    """Return the statement, if there are keys, that reads the live guest entries of these events and visitor ids, for
    `guest_entry_ids`."""
    if not keys:
        return []
    event_ids, visitor_ids = zip(*keys, strict=True)
    return [_guest_entries.call(event_ids=arrays.numbers(event_ids), visitor_ids=arrays.texts(list(visitor_ids)))]


def guest_entry_ids(rows: Iterable[Sequence[Any]]) -> dict[tuple[int, str], UUID]:
    """Return the ids of live guest entries by event and visitor id."""
    return {(event_id, visitor_id): entry_id for event_id, visitor_id, entry_id in rows}


_entry_id_loader: BatchLoader[_Owner, UUID | None] = BatchLoader(load_live_entry_ids)
