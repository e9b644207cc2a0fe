"""Personal data of reservations: their export, and the replacement of the buyer."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.http import idempotency
from apps.queue import facade as queue
from apps.reservations.holds.requests import hold_scope
from apps.reservations.models import PurchaseCap, Reservation

_erase_actors = sql.load("apps.reservations", "erase_actors")


def count_reservations_of_accounts(account_ids: Collection[int], count_max: int) -> int:
    """Return the number of reservations of these accounts, at most `count_max`."""
    return Reservation.objects.filter(account__in=account_ids).order_by()[:count_max].count()


def export_reservations(entry_ids: Sequence[UUID], reservation_ids: Sequence[UUID]) -> list[dict[str, Any]]:
    """Return what is stored about these reservations and all of these queue entries, as JSON values."""
    reservations = Reservation.objects.select_related("event").order_by("created_at")
    reservations = reservations.filter(Q(entry__in=entry_ids) | Q(pk__in=reservation_ids))
    return [
        {
            "id": str(reservation.pk),
            "event": reservation.event.slug,
            "queue_entry": str(reservation.entry_id),
            "status": reservation.status,
            "buyer": reservation.buyer,
            "seat_count": reservation.seat_count,
            "total_minor": reservation.total_minor,
            "currency": reservation.currency,
            "created_at": clock.iso(reservation.created_at),
            "history": [
                {"status": step.to_status, "who": step.who, "why": step.why, "at": clock.iso(step.at)}
                for step in reservation.transitions.all()
            ],
        }
        for reservation in reservations.prefetch_related("transitions")
    ]


def entries_with_live_reservation(entry_ids: Sequence[UUID]) -> set[UUID]:
    """Return which of these locked entries have a live reservation. While an entry is locked, no hold begins."""
    live = Reservation.objects.filter(entry__in=entry_ids, status__in=Reservation.LIVE)
    return set(live.values_list("entry_id", flat=True))


def erase_reservations(
    reservation_ids: Sequence[UUID],
    entry_ids: Sequence[UUID],
    keep_buyer: Collection[tuple[int, str]] = (),
    keep_email: Collection[UUID] = (),
) -> dict[UUID, str]:
    """Replace the buyer and blank account and email of these reservations, and of all reservations of these queue
    entries, also in their ledger; delete the cap rows and stored responses of the replaced buyers. None of the
    reservations is live. Return each one's buyer key. Joins the caller's transaction, which holds the locks of the
    entries and orders.

    Buyers in `keep_buyer`, an event and a key each, keep their key and account: another person's sale has them too, and
    the figures of the sale would count one buyer as two. The reservations `keep_email` keep their address, which is
    another person's.
    """
    transactions.require_transaction()
    chosen = Q(pk__in=list(reservation_ids)) | Q(entry__in=list(entry_ids))
    rows = list(Reservation.objects.select_for_update(no_key=True).filter(chosen).order_by("pk"))
    found = [row for row in rows if not queue.is_erased_buyer(row.buyer)]
    new_buyers = _find_new_buyers({(row.event_id, row.buyer) for row in found}.difference(keep_buyer))
    caps, scopes, new = Q(pk=None), [], {}
    for row in found:
        erased_email = "" if row.pk in keep_email else row.email
        keys = [row.buyer, *([f"email:{erased_email}"] if erased_email else [])]
        caps |= Q(event=row.event_id, buyer__in=keys)
        scopes.append(hold_scope(row.event_id, row.buyer))
        if buyer := new_buyers.get((row.event_id, row.buyer)):
            new[row.pk] = row.buyer = buyer
            row.account_id = None
        row.email = row.email if row.pk in keep_email else ""
    Reservation.objects.bulk_update(found, ["buyer", "account", "email"])
    with connection.cursor() as cursor:
        _erase_actors.count(cursor, reservation_ids=list(new), buyers=list(new.values()))
    _delete_caps(PurchaseCap.objects.filter(caps))
    idempotency.forget_scopes(scopes)
    return {row.pk: row.buyer for row in rows}


def _find_new_buyers(old: Collection[tuple[int, str]]) -> dict[tuple[int, str], str]:
    """Return the new key of each of these events and keys. It says whether any reservation of the buyer for the event
    has an account, or had one when it was erased."""
    if_account = {one: queue.erased_buyer(*one, had_account=True) for one in old}
    named = Q(account__isnull=False, buyer__in=[buyer for _, buyer in old]) | Q(buyer__in=list(if_account.values()))
    known = Reservation.objects.filter(named, event__in={event_id for event_id, _ in old}) if old else ()
    with_account = {(row.event_id, row.buyer) for row in known}
    return {
        (event_id, buyer): key
        if {(event_id, buyer), (event_id, key)} & with_account
        else queue.erased_buyer(event_id, buyer, had_account=False)
        for (event_id, buyer), key in if_account.items()
    }


def delete_caps_of_email(email: str) -> None:
    """Delete the cap rows of this email address, also those of refused checkouts, and commit."""
    with transactions.write():
        _delete_caps(PurchaseCap.objects.filter(buyer=f"email:{email}"))


def delete_caps_of_event(event_id: int, limit: int) -> int:
    """Delete up to `limit` cap rows of the event, and commit. Return how many were deleted."""
    with transactions.write():
        return _delete_caps(PurchaseCap.objects.filter(event=event_id), limit)


def _delete_caps(caps: QuerySet[PurchaseCap], limit: int | None = None) -> int:
    """Delete cap rows, locked in id order. They store nothing: a hold or checkout that misses its row creates it."""
    ids = list(caps.select_for_update(no_key=True).order_by("pk").values_list("pk", flat=True)[:limit])
    PurchaseCap.objects.filter(pk__in=ids).delete()
    return len(ids)
