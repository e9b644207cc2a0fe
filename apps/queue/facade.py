"""The interface of the queue app for the apps above it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from apps.kernel.db import arrays, sql
from apps.kernel.db.transactions import require_transaction
from apps.kernel.http import problems
from apps.queue import proofs
from apps.queue.entries.positions import (
    EntryView,
    JoinOutcome,
    JoinRequest,
    claim_or_get_entry,
    entries_by_id,
    entry_by_id,
    join,
    join_async,
    join_many,
    require_on_sale,
)
from apps.queue.entries.presale import PresaleAccess, presale_refusal, provide_presale_codes
from apps.queue.entries.rejoin import rejoin_without_line
from apps.queue.entries.vip_links import has_vip_link
from apps.queue.errors import AdmissionExpired, NotAdmitted, NotOnSale, PresaleCodeInUse
from apps.queue.identity import erasure, networks
from apps.queue.identity.async_caller import authenticate as authenticate_async
from apps.queue.identity.caller import (
    Caller,
    authenticate,
    delete_place_cookies,
    new_visitor_secret,
    sends_visitor_cookie,
    set_visitor_cookie,
    visitor_id_of,
)
from apps.queue.identity.guest_merge import merge_guest_entries
from apps.queue.models import QueueEntry
from apps.queue.room.health import observe_hold, payment_faults
from apps.queue.room.operations import report_supplies, rooms_in_use
from apps.queue.status.async_status import (
    LoadedEntry,
    claim_or_get_loaded,
    get_room_progress,
    load_entries,
)
from apps.queue.status.async_status import claim_or_get_entry as claim_or_get_entry_async

__all__ = [
    "AdmissionExpired",
    "Caller",
    "EntryState",
    "EntryView",
    "JoinOutcome",
    "JoinRequest",
    "LoadedEntry",
    "NotAdmitted",
    "NotOnSale",
    "PresaleAccess",
    "PresaleCodeInUse",
    "authenticate",
    "authenticate_async",
    "canonical",
    "claim_or_get_entry",
    "claim_or_get_entry_async",
    "claim_or_get_loaded",
    "complete_entries",
    "delete_place_cookies",
    "entries_by_id",
    "entry_by_id",
    "entry_states_from_rows",
    "get_room_progress",
    "has_vip_link",
    "join",
    "join_async",
    "join_many",
    "load_entries",
    "lock_entries",
    "lock_entries_call",
    "merge_guest_entries",
    "new_visitor_secret",
    "observe_hold",
    "owns",
    "owns_without_lookup",
    "payment_faults",
    "presale_refusal",
    "provide_presale_codes",
    "read_room_counts",
    "rejoin_without_line",
    "report_figures",
    "report_supplies",
    "require_entry",
    "require_on_sale",
    "require_owner",
    "rooms_in_use",
    "sends_visitor_cookie",
    "set_busy_until",
    "set_busy_until_call",
    "set_visitor_cookie",
    "visitor_id_of",
]

# Personal data; see apps/queue/identity/erasure.py.
entries_of_accounts = erasure.entries_of_accounts
count_entries_of_accounts = erasure.count_entries_of_accounts
export_entries = erasure.export_entries
export_numbers = erasure.export_numbers
export_sign_ups = erasure.export_sign_ups
erase_sign_ups = erasure.erase_sign_ups
events_of_sign_ups = erasure.events_of_sign_ups
lock_entries_to_erase = erasure.lock_entries
events_of_live_entries = erasure.events_of_live_entries
erase_entries = erasure.erase_entries
erased_buyer = erasure.erased_buyer
ERASED_BUYER = erasure.ERASED_BUYER
is_erased_buyer = erasure.is_erased_buyer
events_to_erase = erasure.events_to_erase
entries_of_event = erasure.entries_of_event
finish_event_erasure = erasure.finish_event
# The networks of entries; see apps/queue/identity/networks.py.
delete_network_key = networks.delete_key
blank_networks = networks.blank_digests
erase_networks = networks.erase_networks
has_network_key = networks.has_key
kind_of_network = networks.kind_of
NETWORKS_KEPT_DAYS = networks.KEPT_DAYS
canonical = proofs.canonical
"""The canonical JSON that is hashed and signed."""


def report_figures() -> Any:
    """Return the module that counts and verifies a line for the report of a sale. Imported here because the fast path
    needs none of it."""
    from apps.queue.fairness import figures

    return figures


def read_room_counts(event_id: int) -> Any:
    """Return how many visitors wait and shop at an event (`RoomCounts`); None without a waiting room. Imported here
    because the fast path needs none of it."""
    from apps.queue.room import summary

    return summary.read_room_counts(event_id)


_lock_entries = sql.load("apps.queue", "lock_entries", prepared=True)
_lock_entries_skipping = sql.load("apps.queue", "lock_entries_skipping", prepared=True)
_complete_entries = sql.load("apps.queue", "complete_entries", prepared=True)
_set_busy_until = sql.load("apps.queue", "set_busy_until")
_setting_busy_until = sql.load("apps.queue", "set_busy_until", prepared=True, exactly=True)


_id_sort_key = attrgetter("int")
"""The sort key for PostgreSQL's order of ids, which is the lock order. Ten times as fast as comparing UUID objects."""


class EntryState(NamedTuple):
    """A locked entry."""

    id: UUID
    status: str
    admission_expires_at: datetime | None
    busy_until: datetime | None
    account_id: int | None
    visitor_id: str
    event_id: int

    def refusal(self, now: datetime) -> problems.Problem | None:
        """Return why this entry may not start a reservation now, or None if it may."""
        if self.status in (QueueEntry.Status.WAITING, QueueEntry.Status.AWAY, QueueEntry.Status.REVIEW):
            return NotAdmitted()
        if self.status != QueueEntry.Status.READY:
            return AdmissionExpired()
        if self.admission_expires_at is None:
            return NotAdmitted()  # The admission is not claimed yet; the next poll claims it.
        if self.admission_expires_at <= now:
            return AdmissionExpired()
        return None


def lock_entries(cursor: sql.Cursor, entry_ids: Sequence[UUID], *, waiting: bool = True) -> dict[UUID, EntryState]:
    """Lock these entries in id order until the caller's transaction ends; without `waiting`, skip those locked by other
    transactions. Joins the caller's transaction."""
    require_transaction(cursor)
    (done,) = sql.execute_batch(cursor, [lock_entries_call(entry_ids, waiting=waiting)])
    return entry_states_from_rows(done.rows)


def lock_entries_call(entry_ids: Sequence[UUID], *, waiting: bool = True) -> sql.Call:
    """Return the statement of `lock_entries`, to be sent in a batch with others; `entry_states_from_rows` parses its
    rows."""
    lock = _lock_entries if waiting else _lock_entries_skipping
    return lock.call(entry_ids=arrays.uuids(sorted(entry_ids, key=_id_sort_key)))


def entry_states_from_rows(rows: Iterable[tuple[Any, ...]]) -> dict[UUID, EntryState]:
    """Parse the rows of `lock_entries_call`."""
    return {row[0]: EntryState(*row) for row in rows}


def set_busy_until_call(entry_ids: arrays.Array, moments: arrays.Array, count: int) -> sql.Call:
    """Return the statement of `set_busy_until` for `count` entries, to be sent in a batch with others; it fails unless
    it updates all of them."""
    return _setting_busy_until.call(entry_ids=entry_ids, moments=moments, rows=count)


def set_busy_until(cursor: sql.Cursor, moments: Mapping[UUID, datetime | None]) -> None:
    """Set the time until which each entry's slot is occupied, or None. The caller holds the entries' locks."""
    require_transaction(cursor)
    ids = sorted(moments)
    touched = _set_busy_until.count(cursor, entry_ids=ids, moments=[moments[entry_id] for entry_id in ids])
    if touched != len(ids):
        raise RuntimeError(f"{touched} of {len(ids)} entries updated")


def complete_entries(cursor: sql.Cursor, entry_ids: Sequence[UUID]) -> None:
    """Mark these entries completed: their admissions were used. The caller holds the entries' locks."""
    require_transaction(cursor)
    if entry_ids:
        _complete_entries.count(cursor, entry_ids=entry_ids)


def require_entry(event_id: int, entry: EntryView | None) -> EntryView:
    """Return the caller's entry if it may shop now. Raises NotAdmitted or AdmissionExpired. This check only saves work:
    the hold checks the entry again under its lock."""
    if entry is None or entry.event_id != event_id or entry.waits:
        raise NotAdmitted
    if not entry.is_ready:
        raise AdmissionExpired
    return entry


def owns(caller: Caller, entry: EntryView) -> bool:
    """Return whether the entry belongs to the caller: by its token, account or browser.

    A token of another entry of the same buyer counts as well: a visitor who left the queue with a reservation and
    joined again has a token of the new entry. A guest's token does not count for an entry that was merged into an
    account.
    """
    if caller.entry_id is None or caller.entry_id == entry.id:
        return owns_without_lookup(caller, entry)
    named = entry_by_id(caller.entry_id)
    if named is None or not caller.may_use_account(named.account_id):
        return False
    return (named.event_id, named.buyer) == (entry.event_id, entry.buyer)


def owns_without_lookup(caller: Caller, entry: EntryView) -> bool:
    """Return whether the entry belongs to the caller, without looking up another entry that the caller's token names.
    For the event loop."""
    if caller.entry_id is not None:
        return caller.entry_id == entry.id and caller.may_use_account(entry.account_id)
    if caller.account_id is not None and caller.account_id == entry.account_id:
        return True
    return bool(caller.visitor_id) and caller.visitor_id == entry.visitor_id


def require_owner(caller: Caller, entry: EntryView) -> None:
    """Raise TokenMissing for an unidentified caller, and NotOwner for any caller but the entry's owner."""
    if not caller.is_known:
        raise problems.TokenMissing
    if not owns(caller, entry):
        raise problems.NotOwner
