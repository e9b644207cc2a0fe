"""Finds the live queue entry of an account or a browser for the fast path, with batched reads of PostgreSQL."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from apps.kernel.db import arrays, sql
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.queue.identity.caller import Caller

_account_entries = sql.load("apps.queue", "account_entries")
_guest_entries = sql.load("apps.queue", "guest_entries")


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


def load_live_entry_ids(owners: Sequence[_Owner]) -> list[UUID | None]:
    """Return the id of each owner's live entry, in order. Blocks: call it in a thread."""
    found = load_guest_entry_ids([(owner.event_id, owner.visitor_id) for owner in owners if owner.account_id is None])
    entry_ids = {_Owner(event_id, None, visitor_id): entry_id for (event_id, visitor_id), entry_id in found.items()}
    accounts = [(owner.event_id, owner.account_id) for owner in owners if owner.account_id is not None]
    if accounts:
        event_ids, account_ids = map(arrays.numbers, zip(*accounts, strict=True))
        with connection.cursor() as cursor:
            rows = _account_entries.rows(cursor, event_ids=event_ids, account_ids=account_ids)
        entry_ids |= {_Owner(event_id, account_id, ""): entry_id for event_id, account_id, entry_id in rows}
    return [entry_ids.get(owner) for owner in owners]


def load_guest_entry_ids(keys: Sequence[tuple[int, str]]) -> dict[tuple[int, str], UUID]:
    """Return the ids of live guest entries by event and visitor id. Blocks: call it in a thread."""
    if not keys:
        return {}
    event_ids, visitor_ids = zip(*keys, strict=True)
    with connection.cursor() as cursor:
        rows = _guest_entries.rows(
            cursor, event_ids=arrays.numbers(event_ids), visitor_ids=arrays.texts(list(visitor_ids))
        )
    return {(event_id, visitor_id): entry_id for event_id, visitor_id, entry_id in rows}


_entry_id_loader: BatchLoader[_Owner, UUID | None] = BatchLoader(load_live_entry_ids)
