"""A guest in line who logs in: the place is the account's, and where both had one, the better of the two.

Under the room's lock, which every join takes first: nobody joins as this account or this browser meanwhile, and no tick
lets one of the two in between the choice and its commit. What a log-in could not merge (a join of the guest was still
under way, or somebody kept the locks) is merged when the account next joins or asks at its turn.
"""

import logging
from datetime import datetime, timedelta

from django.db import DatabaseError, connection
from django.db.models import QuerySet

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.queue.identity.caller import Caller
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.room.admission import BUSY_GRACE_SECONDS, RETURN_SECONDS
from apps.queue.room_row import Room, lock_room
from apps.queue.snapshot import exceptions

logger = logging.getLogger(__name__)

_Status = QueueEntry.Status
_rooms_of_guest = sql.load("apps.queue", "rooms_of_guest")


def merge_guest_entries(visitor_id: str, account_id: int) -> int:
    """What this browser had in line as a guest is the account's, in every event; in how many something changed.

    For the moment of a log-in. One transaction per event; what is too busy now is left for `merge_guest_entry`.
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
            logger.warning("a guest's place at event %s is merged later: %s", event_id, error)
    return changed


def merge_guest_entry(event_id: int, caller: Caller) -> bool:
    """Before a signed-in caller joins or comes at this event: should its browser still have a guest's place, that is
    the account's now; whether something changed. One indexed look where there is nothing to do."""
    if caller.account_id is None or not caller.visitor_id:
        return False
    if not _guest_entries(caller.visitor_id).filter(event_id=event_id).exists():
        return False
    return merge_entries(event_id, caller.visitor_id, caller.account_id)


def merge_entries(event_id: int, visitor_id: str, account_id: int) -> bool:
    """The account has the guest's place, or the one that it had, whichever is better, and the other has `left`; whether
    something changed. Nothing does while both hold a live reservation, or while the two are being drawn.

    The number decides, the lower stays, but: a place that holds something stays before any other, then one that is
    shopping, then one that is called, then one let through ahead of its turn. In an open lobby the account's own stays.
    """
    goes: QueueEntry | None = None
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        guest, own = _lock_both(event_id, visitor_id, account_id)
        if guest is None:
            return False
        now = clock.now()
        if own is not None:
            stays = _choose_entry(room, guest, own, now)
            if stays is None:
                return False
            goes = own if stays is guest else guest
            goes.status, goes.ended_at = _Status.LEFT, now
            goes.save(update_fields=["status", "ended_at"])
        if goes is not guest:
            # After the other has left: one live place per account is a constraint.
            guest.account_id, guest.visitor_id = account_id, ""
            guest.save(update_fields=["account", "visitor_id"])
    if goes is not None:
        exceptions.mark_exceptional(event_id, goes.number, goes.pk)
    return True


def _guest_entries(visitor_id: str) -> QuerySet[QueueEntry]:
    return QueueEntry.objects.filter(account=None, visitor_id=visitor_id, status__in=QueueEntry.LIVE)


def _lock_both(event_id: int, visitor_id: str, account_id: int) -> tuple[QueueEntry | None, QueueEntry | None]:
    """The live place of the guest and that of the account, as they are under their locks, taken in id order."""
    # Whose a place is, and that there is no second, is settled by the room's lock; how it stands only by its own.
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
    """Which of the two stays; None where that cannot be said yet."""
    if _is_busy(guest, now) and _is_busy(own, now):
        return None  # Both are being paid for. When one of them is over there is one place left, or a choice again.
    guests, owns = _progress_rank(guest, now), _progress_rank(own, now)
    if guests != owns:
        return guest if guests < owns else own
    if guest.number is None and own.number is None:
        # Nobody may pick the luckier of two draws while they can still be left; once they are sealed, the lower number
        # stays, and that is known when both are drawn.
        return own if room.state == WaitingRoom.State.LOBBY else None
    if guest.number is None or own.number is None:
        return guest if guest.number is None else own  # Whoever is in the draw comes before whoever came after it.
    return guest if guest.number < own.number else own


def _is_busy(entry: QueueEntry, now: datetime) -> bool:
    """Whether it holds a live reservation, or did a moment ago."""
    return entry.busy_until is not None and entry.busy_until + timedelta(seconds=BUSY_GRACE_SECONDS) > now


def _progress_rank(entry: QueueEntry, now: datetime) -> int:
    """How far the place has come; less is farther."""
    if _is_busy(entry, now):
        return 0
    if entry.status == _Status.READY:
        if entry.admission_expires_at is not None:
            return 1 if entry.admission_expires_at > now else 5
        return 2 if entry.claim_expires_at is not None and entry.claim_expires_at > now else 4
    if entry.status == _Status.AWAY and entry.claim_expires_at is not None:
        is_over = entry.claim_expires_at + timedelta(seconds=RETURN_SECONDS) <= now
        return 5 if is_over else 4
    return 3 if entry.marked else 4
