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
    new_buyers: dict[tuple[int, str], str],
    keep_email: Collection[UUID] = (),
) -> dict[UUID, str]:
    """Replace the buyer and blank account and email of these reservations, and of all reservations of these queue
    entries, also in their ledger; delete the cap rows and stored responses of the replaced buyers. None of the
    reservations is live. Return each one's new buyer key. Joins the caller's transaction, which holds the locks of the
    entries and orders.

    `new_buyers` are the new keys by event and old key; those that are missing are added. With it, several reservations
    of one buyer stay those of one buyer, so that the figures of the sale stay the same. A key may stay as it is; then
    the account stays too.
    The reservations `keep_email` keep their address, which is another person's.
    """
    transactions.require_transaction()
    chosen = Q(pk__in=list(reservation_ids)) | Q(entry__in=list(entry_ids))
    rows = Reservation.objects.select_for_update(no_key=True).filter(chosen)
    found = [row for row in rows.order_by("pk") if not queue.is_erased_buyer(row.buyer)]
    caps, scopes = Q(pk=None), []
    with_account = _buyers_with_account(found)
    for row in found:
        erased_email = "" if row.pk in keep_email else row.email
        keys = [row.buyer, *([f"email:{erased_email}"] if erased_email else [])]
        caps |= Q(event=row.event_id, buyer__in=keys)
        scopes.append(hold_scope(row.event_id, row.buyer))
        old = (row.event_id, row.buyer)
        if old not in new_buyers:
            new_buyers[old] = queue.new_erased_buyer(had_account=old in with_account)
        if new_buyers[old] != row.buyer:
            row.buyer, row.account_id = new_buyers[old], None
        row.email = row.email if row.pk in keep_email else ""
    buyers = {row.pk: row.buyer for row in found}
    new = {reservation_id: buyer for reservation_id, buyer in buyers.items() if queue.is_erased_buyer(buyer)}
    Reservation.objects.bulk_update(found, ["buyer", "account", "email"])
    with connection.cursor() as cursor:
        _erase_actors.count(cursor, reservation_ids=list(new), buyers=list(new.values()))
    _delete_caps(PurchaseCap.objects.filter(caps))
    idempotency.forget_scopes(scopes)
    return buyers


def _buyers_with_account(rows: Collection[Reservation]) -> set[tuple[int, str]]:
    """Return event and buyer of these reservations, if any reservation of that buyer for the event has an account."""
    buyers = Reservation.objects.filter(
        event__in={row.event_id for row in rows}, buyer__in={row.buyer for row in rows}, account__isnull=False
    )
    return set(buyers.values_list("event_id", "buyer").distinct())


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
