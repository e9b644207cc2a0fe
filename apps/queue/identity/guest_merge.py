"""Merges a guest's queue entry into the account at log-in. If both have an entry, the better one stays.

A merge holds the room's lock, which every join and tick takes first: meanwhile no join of this account or browser
commits, and no tick admits one of the two entries between the choice and its commit. If the log-in could not merge (the
guest was just joining, or the locks were taken), the account's next join merges, or its first poll when its turn comes.
"""

import logging
from datetime import datetime, timedelta

from django.db import DatabaseError, connection
from django.db.models import QuerySet
from django.http import HttpRequest

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.queue.identity.caller import Caller, visitor_id_of
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.room.admission import BUSY_GRACE_SECONDS, RETURN_SECONDS
from apps.queue.room_row import Room, lock_room
from apps.queue.snapshot import exceptions

logger = logging.getLogger(__name__)

_Status = QueueEntry.Status
_rooms_of_guest = sql.load("apps.queue", "rooms_of_guest")


def merge_guest_entries_of_browser(request: HttpRequest, account_id: int) -> None:
    """Merge the guest entries of the request's browser into the account, at log-in."""
    merge_guest_entries(visitor_id_of(request), account_id)


def merge_guest_entries(visitor_id: str, account_id: int) -> int:
    """Merge this browser's guest entries into the account, in all events. Returns the number of changed events.

    Called at log-in. One transaction per event; `merge_guest_entry` handles events whose locks are taken now.
    """
    if not visitor_id:
        return 0
    with connection.cursor() as cursor:
        event_ids = [row[0] for row in _rooms_of_guest.rows(cursor, visitor_id=visitor_id)]
    changed = 0
    for event_id in event_ids:
        try:
            changed += merge_entries(event_id, visitor_id, account_id)
        except DatabaseError as error:
            if not transactions.is_transient(error):
                raise
            logger.warning("the guest entry at event %s is merged later: %s", event_id, error)
    return changed


def merge_guest_entry(event_id: int, caller: Caller) -> bool:
    """Merge the guest entry of a signed-in caller's browser, if there is one, before the caller joins or claims; return
    whether something changed. Costs one indexed query if there is nothing to merge."""
    if caller.account_id is None or not caller.visitor_id:
        return False
    if not _guest_entries(caller.visitor_id).filter(event_id=event_id).exists():
        return False
    return merge_entries(event_id, caller.visitor_id, caller.account_id)


def merge_entries(event_id: int, visitor_id: str, account_id: int) -> bool:
    """Give the account the better of the guest's entry and its own; the other becomes `left`. Returns whether something
    changed. Nothing changes while both entries have a live reservation, while both wait for their drawn numbers, or
    after the sale is over: its report counts whether an entry has an account.

    An entry with a live reservation is best, then one that is shopping, one with an unclaimed admission, and one with
    priority. Otherwise the lower number is better. In an open lobby the account's own entry stays.
    """
    left: QueueEntry | None = None
    event = events.get_event_by_id(event_id)
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        guest, own = _lock_both(event_id, visitor_id, account_id)
        if guest is None:
            return False
        now = clock.now()
        if event.is_over(now):
            return False
        if own is not None:
            stays = _choose_entry(room, guest, own, now)
            if stays is None:
                return False
            left = own if stays is guest else guest
            left.status, left.ended_at = _Status.LEFT, now
            left.save(update_fields=["status", "ended_at"])
        if left is not guest:
            # Saved after the other entry has left: a constraint allows one live entry per account.
            guest.account_id, guest.visitor_id = account_id, ""
            guest.save(update_fields=["account", "visitor_id"])
    if left is not None:
        exceptions.mark_exceptional(event_id, left.number, left.pk)
    return True


def _guest_entries(visitor_id: str) -> QuerySet[QueueEntry]:
    return QueueEntry.objects.filter(account=None, visitor_id=visitor_id, status__in=QueueEntry.LIVE)


def _lock_both(event_id: int, visitor_id: str, account_id: int) -> tuple[QueueEntry | None, QueueEntry | None]:
    """Lock the live entries of the guest and of the account in id order, and return both."""
    # Under the room's lock no owner changes, and each has one live entry. A status is fixed by the entry's lock.
    found = [
        *_guest_entries(visitor_id).filter(event_id=event_id).values_list("pk", flat=True),
        *QueueEntry.objects.filter(event_id=event_id, account=account_id, status__in=QueueEntry.LIVE).values_list(
            "pk", flat=True
        ),
    ]
    locked = QueueEntry.objects.select_for_update(no_key=True).filter(pk__in=found).order_by("pk")
    live = [entry for entry in locked if entry.status in QueueEntry.LIVE]
    guest = next((entry for entry in live if entry.account_id is None), None)
    own = next((entry for entry in live if entry.account_id is not None), None)
    return guest, own


def _choose_entry(room: Room, guest: QueueEntry, own: QueueEntry, now: datetime) -> QueueEntry | None:
    """Return the entry that stays; None if it cannot be chosen yet."""
    if _is_busy(guest, now) and _is_busy(own, now):
        return None  # Both have reservations. Once one of these has ended, the entries can be compared again.
    guests, owns = _progress_rank(guest, now), _progress_rank(own, now)
    if guests != owns:
        return guest if guests < owns else own
    if guest.number is None and own.number is None:
        # In an open lobby the account's entry stays, so that no visitor gets the better of two draws. In a closed one
        # the lower number stays; it is known once both are drawn.
        return own if room.state == WaitingRoom.State.LOBBY else None
    if guest.number is None or own.number is None:
        return guest if guest.number is None else own  # The lobby's numbers are lowest.
    return guest if guest.number < own.number else own


def _is_busy(entry: QueueEntry, now: datetime) -> bool:
    """Return whether the entry has a live reservation, or had one a moment ago."""
    return entry.busy_until is not None and entry.busy_until + timedelta(seconds=BUSY_GRACE_SECONDS) > now


def _progress_rank(entry: QueueEntry, now: datetime) -> int:
    """Return the entry's rank; lower is better."""
    if _is_busy(entry, now):
        return 0
    if entry.status == _Status.READY:
        if entry.admission_expires_at is not None:
            return 1 if entry.admission_expires_at > now else 5
        return 2 if entry.claim_expires_at is not None and entry.claim_expires_at > now else 4
    if entry.status == _Status.AWAY and entry.claim_expires_at is not None:
        is_over = entry.claim_expires_at + timedelta(seconds=RETURN_SECONDS) <= now
        return 5 if is_over else 4
    if entry.status == _Status.REVIEW:
        return 5
    return 3 if entry.marked else 4
