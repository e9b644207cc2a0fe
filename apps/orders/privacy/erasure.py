"""Erasure: replaces the personal data of orders, and of the reservations and queue entries behind them.

Amounts, times, statuses, seats and ids stay, so that the money can still be audited. Invoices stay unchanged for the
time that the law requires (`retention`). An erased order has a placeholder as its email address and is sent no mail.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.http import idempotency
from apps.orders.checkout.buyer_details import normalize_email
from apps.orders.locks import lock_order
from apps.orders.models import (
    ERASED_DOMAIN,
    CodeUse,
    Order,
    OrganizerMessage,
    Payment,
    ProviderMessage,
    Refund,
    Ticket,
    TicketTransfer,
    WebhookDelivery,
)
from apps.orders.privacy.export import accounts_of, entries_of_person
from apps.queue import facade as queue
from apps.reservations import facade as reservations

BATCH_MAX = 50
"""Queue entries that one transaction erases with their orders."""
EVENT_LASTS = timedelta(days=1)
"""An event counts as over this long after its start."""
NAME = "erased"
_erase_adjustments = sql.load("apps.orders", "erase_adjustments")

MayErase = Callable[[Order, datetime], bool]


@dataclass(frozen=True, slots=True)
class Erasure:
    """What was erased: the numbers of the erased orders and of those that are still needed, and how many queue
    entries were erased and still wait or shop."""

    orders: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    entry_count: int = 0
    live_entry_count: int = 0

    def __add__(self, other: "Erasure") -> "Erasure":
        return Erasure(self.orders + other.orders, self.kept + other.kept, self.entry_count + other.entry_count)


def erase_person(email: str) -> Erasure:
    """Erase the orders of the person with this email address and of its accounts, except those that are still needed
    (`is_settled`). Several transactions; it can be repeated, and continues where it was interrupted."""
    email = normalize_email(email)
    account_ids = {account.pk for account in accounts_of(email)}

    def concerns(order: Order) -> bool:
        return order.email == email or order.account_id in account_ids

    entry_ids = entries_of_person(email)
    done = erase(entry_ids, lambda order, now: concerns(order) and is_settled(order, now), concerns=concerns)
    done += _erase_received(email)
    reservations.delete_caps_of_email(email)
    return replace(done, live_entry_count=queue.count_live_entries(entry_ids))


def _erase_received(email: str) -> Erasure:
    """Erase this address and its holder's name from tickets of other people's orders. One transaction per order; orders
    for events that are not over are kept while the ticket is valid, or the offer could still be accepted."""
    order_ids = TicketTransfer.objects.filter(email=email).order_by("ticket__order").values_list("ticket__order")
    kept = []
    for (order_id,) in order_ids.distinct():
        with transactions.write():
            order = lock_order(order_id)
            of_person = TicketTransfer.objects.filter(email=email, ticket__order=order)
            is_in_use = Q(accepted_at=None, ended_at=None, ticket__voided_at=None, expires_at__gt=clock.now())
            held = Ticket.objects.filter(transfer__in=of_person, voided_at=None)
            if not is_settled(order, clock.now()) and (of_person.filter(is_in_use).exists() or held.exists()):
                kept.append(order.number)
            else:
                Ticket.objects.filter(transfer__in=of_person).update(holder=NAME)
                _erase_transfers(of_person)
    return Erasure(kept=tuple(kept))


def _erase_transfers(transfers: QuerySet[TicketTransfer]) -> None:
    """Replace the recipients' addresses. Joins the caller's transaction, which holds the locks of the orders."""
    for transfer in transfers:
        transfer.email = f"{transfer.pk}{ERASED_DOMAIN}"
        transfer.save(update_fields=["email"])


def is_settled(order: Order, now: datetime) -> bool:
    """Return whether the order has ended, or its event is over."""
    if order.status in Order.OPEN:
        return False
    return order.status not in Order.STANDING or _is_over(order.event_id, now)


def erase(
    entry_ids: Sequence[UUID], may_erase: MayErase | None, *, concerns: Callable[[Order], bool] | None = None
) -> Erasure:
    """Erase those orders of these queue entries for which `may_erase` returns true (None: no order) and no money is
    under way, and the entries that have no other order and do not wait for an event to come. `concerns` selects the
    orders that the result names as kept. One transaction per BATCH_MAX entries."""
    done, new_buyers = Erasure(), dict[tuple[int, str], str]()
    for start in range(0, len(entry_ids), BATCH_MAX):
        batch = entry_ids[start : start + BATCH_MAX]
        with transactions.write():
            done += _erase_batch(batch, may_erase, concerns, new_buyers)
    return done


def _erase_batch(
    entry_ids: Sequence[UUID], may_erase: MayErase | None, concerns: Callable[[Order], bool] | None,
    new_buyers: dict[tuple[int, str], str],
) -> Erasure:  # fmt: skip
    # The order of all locks: entries, orders, reservations, cap rows.
    entries = queue.lock_entries_to_erase(entry_ids, clock.now() - EVENT_LASTS)
    rows = Order.objects.select_for_update(no_key=True).filter(entry__in=entry_ids).order_by("pk")
    found = [order for order in rows if not order.is_erased]
    now = clock.now()
    busy = _orders_with_money_under_way([order.pk for order in found])
    chosen = [order for order in found if may_erase is not None and order.pk not in busy and may_erase(order, now)]
    kept = [order for order in found if order not in chosen]
    in_use = {order.entry_id for order in kept} | reservations.entries_with_live_reservation(entries)
    free = [entry for entry in entries if entry not in in_use]
    queue.erase_entries(free)
    buyers = reservations.erase_reservations([order.reservation_id for order in chosen], free, new_buyers)
    _erase_orders(chosen, buyers)
    return Erasure(
        tuple(order.number for order in chosen),
        tuple(order.number for order in kept if concerns is None or concerns(order)),
        len(free),
    )


def _orders_with_money_under_way(order_ids: Collection[UUID]) -> set[UUID]:
    """Return which of these orders have a pending payment, or a refund that is not settled or that staff must still pay
    out."""
    payments = Payment.objects.filter(order__in=order_ids, status=Payment.Status.PENDING)
    unsettled = Q(status__in=Refund.OPEN) | Q(status=Refund.Status.FAILED, replaced_by=None)
    refunds = Refund.objects.filter(unsettled, order__in=order_ids)
    return {*payments.values_list("order_id", flat=True), *refunds.values_list("order_id", flat=True)}


def _is_over(event_id: int, now: datetime) -> bool:
    return now >= events.get_event_by_id(event_id).starts_at + EVENT_LASTS


def _erase_orders(orders: Sequence[Order], buyers: dict[UUID, str]) -> None:
    """Replace the personal data of these locked orders. `buyers` are the new buyer keys, by reservation."""
    if not orders:
        return
    ids = [order.pk for order in orders]
    uses = {use.order_id: use for use in CodeUse.objects.filter(order__in=ids)}
    scopes = [f"{act}:{order.buyer}" for order in orders for act in ("cancel", "refund")]
    old_buyers = {order.pk: order.buyer for order in orders}
    for order in orders:
        had_account = order.account_id is not None
        order.email, order.name, order.account_id = order.erased_email, NAME, None
        order.buyer = buyers.get(order.reservation_id) or queue.new_erased_buyer(had_account=had_account)
        if use := uses.get(order.pk):
            use.email, use.buyer = order.email, order.buyer
    Order.objects.bulk_update(orders, ["email", "name", "account", "buyer"])
    CodeUse.objects.bulk_update(uses.values(), ["email", "buyer"])
    Ticket.objects.filter(order__in=ids).update(holder=NAME)
    _erase_transfers(TicketTransfer.objects.filter(ticket__order__in=ids))
    for order in orders:
        Refund.objects.filter(order=order, requested_by=old_buyers[order.pk]).update(requested_by=order.buyer)
    with connection.cursor() as cursor:
        _erase_adjustments.count(cursor, order_ids=ids, buyers=[order.buyer for order in orders])
    _erase_messages(orders)
    # The stored response of a cancellation contains the order, that of a return the ticket codes.
    idempotency.forget_scopes(scopes)


def _erase_messages(orders: Sequence[Order]) -> None:
    """Replace the personal data in messages to organizers, and blank the payloads of providers."""
    by_id = {order.pk: order for order in orders}
    messages = list(OrganizerMessage.objects.filter(order__in=list(by_id)))
    for message in messages:
        order = by_id[message.order_id]
        message.body["order"] |= {"email": order.email, "name": NAME}
        message.body["tickets"] = [ticket | {"holder": NAME, "code": ""} for ticket in message.body["tickets"]]
    OrganizerMessage.objects.bulk_update(messages, ["body"])
    WebhookDelivery.objects.filter(message__in=messages).update(answer="")
    blank_payloads(ProviderMessage.objects.filter(payment__order__in=list(by_id)))


def blank_payloads(messages: QuerySet[ProviderMessage]) -> None:
    """Blank the payloads of these provider messages, locked in id order. Joins the caller's transaction."""
    ids = list(messages.select_for_update(no_key=True, of=("self",)).order_by("pk").values_list("pk", flat=True))
    ProviderMessage.objects.filter(pk__in=ids).update(raw=b"")
