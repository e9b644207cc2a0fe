"""Erasure: replaces the personal data of orders, and of the reservations and queue entries behind them.

Amounts, times, statuses, seats and ids stay, so that the money can still be audited. Invoices stay unchanged for the
time that the law requires (`retention`). An erased order has a placeholder as its email address and is sent no mail.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.formatting import DATE, format_datetime
from apps.kernel.http import idempotency
from apps.orders.locks import lock_order
from apps.orders.models import (
    ERASED_DOMAIN,
    CodeUse,
    Order,
    OrderHistoryEntry,
    OrganizerMessage,
    Payment,
    ProviderMessage,
    Refund,
    Ticket,
    TicketTransfer,
    WebhookDelivery,
)
from apps.orders.privacy.person import Person, entries_of, history_in_orders_of_others
from apps.queue import facade as queue
from apps.reservations import facade as reservations

BATCH_MAX = 50
"""Queue entries that one transaction erases with their orders."""
AT_ONCE_MAX = 100
"""Rows of a person that a request erases at most. If a person has more, an outbox message erases all of them."""
EVENT_LASTS = timedelta(days=1)
"""An event counts as over this long after its start."""
NAME = "erased"
_erase_adjustments = sql.load("apps.orders", "erase_adjustments")

MayErase = Callable[[Order, datetime], bool]
OnBatch = Callable[[], object]
"""Called after each transaction, while none is open."""


def _do_nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Erasure:
    """What was erased: the numbers of the orders, and how many queue entries."""

    orders: tuple[str, ...] = ()
    entry_count: int = 0

    def __add__(self, other: "Erasure") -> "Erasure":
        return Erasure(self.orders + other.orders, self.entry_count + other.entry_count)


def has_much(person: Person) -> bool:
    """Return whether `erase_person` takes too long for a request. An account may join and leave any number of times, so
    this reads no more rows than it has to."""
    most = AT_ONCE_MAX + 1
    of_orders = (
        Order.objects.filter(person.own_orders),
        _received(person),
        history_in_orders_of_others(person),
    )
    count = queue.count_entries_of_accounts(person.account_ids, most)
    count += reservations.count_reservations_of_accounts(person.account_ids, most)
    return count + sum(rows.order_by()[:most].count() for rows in of_orders) > AT_ONCE_MAX


def erase_person(person: Person, on_batch: OnBatch = _do_nothing) -> Erasure:
    """Erase the person's orders, reservations and queue entries, and the person in tickets of others, except what is
    still needed (`find_needed`). Several transactions; it can be repeated, and continues where it was interrupted."""

    def may_erase(order: Order, now: datetime) -> bool:
        return person.owns(order) and is_settled(order, now) and not _has_kept_sale(person, order, now)

    done = erase(entries_of(person), may_erase, on_batch, person)
    _erase_received(person, on_batch)
    _erase_former_addresses(person, on_batch)
    queue.erase_sign_ups(person.account_ids, clock.now() - EVENT_LASTS)
    events.erase_searches(person.account_ids)
    for email in person.emails:
        reservations.delete_caps_of_email(email)
    return done


def _has_kept_sale(person: Person, order: Order, now: datetime) -> bool:
    """Return whether the person's other orders for the event are still needed. One buyer's sales get their new key
    together, so that the figures of the sale still count one buyer."""
    if order.confirmed_at is None:
        return False
    sales = Order.objects.filter(person.own_orders, event=order.event_id, buyer=order.buyer, confirmed_at__isnull=False)
    others = list(sales.exclude(pk=order.pk))
    busy = _orders_with_money_under_way([other.pk for other in others])
    return any(other.pk in busy or not is_settled(other, now) for other in others)


def _is_buyer_of_others(person: Person, order: Order) -> bool:
    """Return whether this order's browser or account has also bought an order for the event that is another person's:
    the figures of the sale count both as one buyer."""
    if order.confirmed_at is None:
        return False
    sales = Order.objects.filter(event=order.event_id, buyer=order.buyer, confirmed_at__isnull=False)
    return sales.exclude(person.own_orders).exclude(pk=order.pk).exists()


def find_needed(person: Person, *, of_accounts_only: bool = False) -> list[str]:
    """Return sentences that say which data is still needed; empty if `erase_person` erases, or has erased, everything.
    `of_accounts_only`: without the orders that only have one of the addresses, since a guest may type any address."""
    own_orders = Q(account__in=person.account_ids) if of_accounts_only else person.own_orders
    now = clock.now()
    payments, refunds = _money_under_way()
    has_money_under_way = Q(Exists(payments.filter(order=OuterRef("pk")))) | Q(
        Exists(refunds.filter(order=OuterRef("pk")))
    )
    # Without orders that ended long ago, of which there may be thousands.
    found = Order.objects.filter(own_orders).filter(Q(status__in=[*Order.OPEN, *Order.STANDING]) | has_money_under_way)
    orders = [order for order in found.order_by("placed_at", "pk") if not order.is_erased]
    busy = _orders_with_money_under_way([order.pk for order in orders])
    held = Ticket.objects.filter(transfer__in=_received(person), voided_at=None).exclude(
        order__in=[order.pk for order in orders]
    )
    others = Order.objects.filter(pk__in=held.values("order")).order_by("placed_at", "pk")
    # Read once: a person may have hundreds of orders for few events.
    found_events = events.get_events_by_id({order.event_id for order in (*orders, *others)})

    def needed_for(order: Order) -> str:
        """Return the event and its end for which the order is needed; empty if the order is settled."""
        event = found_events[order.event_id]
        ends_at = event.starts_at + EVENT_LASTS
        is_needed = order.status in Order.OPEN or (order.status in Order.STANDING and now < ends_at)
        return f"{event.name} until {format_datetime(ends_at, event.timezone, DATE)}" if is_needed else ""

    reasons = []
    for order in orders:
        if order.status in Order.OPEN:
            reasons.append(f"Order {order.number} is still being paid.")
        elif order.pk in busy:
            reasons.append(f"A payment or refund of order {order.number} is still under way.")
        elif event := needed_for(order):
            reasons.append(f"Order {order.number} is needed for {event}.")
    reasons += [f"A ticket from another person is needed for {event}." for event in map(needed_for, others) if event]
    entry_ids = Order.objects.filter(own_orders).values_list("entry_id", flat=True)
    names = queue.events_of_live_entries(entry_ids, person.account_ids, now - EVENT_LASTS)
    return reasons + [f"The place in line for {name} is still in use." for name in names]


def _received(person: Person) -> QuerySet[TicketTransfer]:
    return TicketTransfer.objects.filter(person.is_until("offered_at"), email__in=person.emails)


def _held_tickets(person: Person, order: Order) -> QuerySet[Ticket]:
    """Return the order's valid tickets that others passed to the person."""
    return Ticket.objects.filter(order=order, transfer__in=_received(person), voided_at=None)


def _erase_received(person: Person, on_batch: OnBatch) -> None:
    """Erase the person's addresses and name from tickets that others offered or passed on; open offers end. One
    transaction for each order. A valid ticket for an event that is not over keeps both."""
    order_ids = _received(person).order_by("ticket__order").values_list("ticket__order", flat=True)
    for order_id in order_ids.distinct():
        with transactions.write():
            order = lock_order(order_id)
            if is_settled(order, clock.now()) or not _held_tickets(person, order).exists():
                transfers = _received(person).filter(ticket__order=order)
                transfers.filter(accepted_at=None, ended_at=None).update(ended_at=clock.now())
                Ticket.objects.filter(transfer__in=transfers).update(holder=NAME)
                _erase_transfers(transfers)
        on_batch()


def _erase_former_addresses(person: Person, on_batch: OnBatch) -> None:
    """Erase the person's addresses from the history of others' orders, and from the messages about them to organizers.
    One transaction for each order. A person with a valid ticket for an event that is not over keeps the history."""
    order_ids = history_in_orders_of_others(person).order_by("order").values_list("order", flat=True).distinct()
    for order_id in order_ids:
        with transactions.write():
            order = lock_order(order_id)
            if not is_settled(order, clock.now()) and _held_tickets(person, order).exists():
                continue
            # Read again under the lock: the order may just have been corrected back to the address.
            history_in_orders_of_others(person).filter(order=order).update(address=order.erased_email)
            if order.email not in person.emails:
                _erase_former_buyer(person, order)
        on_batch()


def _erase_former_buyer(person: Person, order: Order) -> None:
    """Replace the person in the messages about an order that has been corrected to another buyer since. Joins the
    caller's transaction, which holds the order's lock."""
    messages = list(OrganizerMessage.objects.filter(order=order, body__order__email__in=list(person.emails)))
    for message in messages:
        former = message.body["order"]["name"]
        message.body["order"]["email"] = order.erased_email
        if former != order.name:
            message.body["order"]["name"] = NAME
            message.body["tickets"] = [
                ticket | ({"holder": NAME} if ticket["holder"] == former else {}) for ticket in message.body["tickets"]
            ]
    OrganizerMessage.objects.bulk_update(messages, ["body"])


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
    entry_ids: Sequence[UUID],
    may_erase: MayErase | None,
    on_batch: OnBatch = _do_nothing,
    person: Person | None = None,
) -> Erasure:
    """Erase those orders of these queue entries for which `may_erase` returns true (None: no order) and no money is
    under way, and the entries that have no other order and do not wait for an event to come. One transaction per
    BATCH_MAX entries.

    `person`: whose data is erased, if it is one person's. A buyer who also has an order of another person keeps the
    buyer key, until the orders of the event are erased because of their age. Entries of the person's accounts are also
    erased if staff gave their orders to others; these orders stay as they are."""
    done = Erasure()
    for start in range(0, len(entry_ids), BATCH_MAX):
        with transactions.write():
            done += _erase_batch(entry_ids[start : start + BATCH_MAX], may_erase, person)
        on_batch()
    return done


def _erase_batch(entry_ids: Sequence[UUID], may_erase: MayErase | None, person: Person | None) -> Erasure:
    # The order of all locks: entries, orders, reservations, cap rows.
    entries = queue.lock_entries_to_erase(entry_ids, clock.now() - EVENT_LASTS)
    rows = Order.objects.select_for_update(no_key=True).filter(entry__in=entry_ids).order_by("pk")
    found = [order for order in rows if not (order.is_erased and queue.is_erased_buyer(order.buyer))]
    now = clock.now()
    busy = _orders_with_money_under_way([order.pk for order in found])
    chosen = [order for order in found if may_erase is not None and order.pk not in busy and may_erase(order, now)]
    given = [] if person is None else _given_to_others(person, [order for order in found if order not in chosen])
    of_others = [order for order in chosen if person is not None and _is_buyer_of_others(person, order)]
    keep_buyer = {(order.event_id, order.buyer) for order in (*given, *of_others)}
    in_use = {order.entry_id for order in found if not (order.is_erased or order in chosen or order in given)}
    in_use |= reservations.entries_with_live_reservation(entries)
    free = [entry for entry in entries if entry not in in_use]
    queue.erase_entries(free)
    others = {order.reservation_id for order in given}
    buyers = reservations.erase_reservations([order.reservation_id for order in chosen], free, keep_buyer, others)
    _erase_orders(chosen, buyers)
    return Erasure(tuple(order.number for order in chosen), len(free))


def _given_to_others(person: Person, orders: Sequence[Order]) -> list[Order]:
    """Return which of these orders of the person's accounts staff have given to other people."""
    ids = [order.pk for order in orders if order.is_handed_over and not person.owns(order)]
    placed = Order.objects.filter(pk__in=ids, entry__account__in=person.account_ids)
    found = set(placed.values_list("pk", flat=True))
    return [order for order in orders if order.pk in found]


def _orders_with_money_under_way(order_ids: Collection[UUID]) -> set[UUID]:
    """Return which of these orders have a pending payment, or a refund that is not settled or that staff must still pay
    out."""
    return {
        order_id
        for rows in _money_under_way()
        for order_id in rows.filter(order__in=order_ids).values_list("order_id", flat=True)
    }


def _money_under_way() -> tuple[QuerySet[Payment], QuerySet[Refund]]:
    """Return the pending payments, and the refunds that are not settled or that staff must still pay out."""
    unsettled = Q(status__in=Refund.OPEN) | Q(status=Refund.Status.FAILED, replaced_by=None)
    return Payment.objects.filter(status=Payment.Status.PENDING), Refund.objects.filter(unsettled)


def _is_over(event_id: int, now: datetime) -> bool:
    return now >= events.get_event_by_id(event_id).starts_at + EVENT_LASTS


def _erase_orders(orders: Sequence[Order], buyers: dict[UUID, str]) -> None:
    """Replace the personal data of these locked orders. `buyers` are the buyer keys of their reservations."""
    if not orders:
        return
    ids = [order.pk for order in orders]
    uses = {use.order_id: use for use in CodeUse.objects.filter(order__in=ids)}
    scopes = [f"{act}:{order.buyer}" for order in orders for act in ("cancel", "refund")]
    old_buyers = {order.pk: order.buyer for order in orders}
    for order in orders:
        order.email, order.name, order.account_id = order.erased_email, NAME, None
        order.buyer = buyers[order.reservation_id]
        order.link_version += 1  # Links that were mailed, or opened in a browser, grant no access any more.
        if use := uses.get(order.pk):
            use.email, use.buyer = order.email, order.buyer
    Order.objects.bulk_update(orders, ["email", "name", "account", "buyer", "link_version"])
    CodeUse.objects.bulk_update(uses.values(), ["email", "buyer"])
    Ticket.objects.filter(order__in=ids).update(holder=NAME)
    for order in orders:
        OrderHistoryEntry.objects.filter(order=order).exclude(address="").update(address=order.email)
    _erase_transfers(TicketTransfer.objects.filter(ticket__order__in=ids))
    for order in orders:
        Refund.objects.filter(order=order, requested_by=old_buyers[order.pk]).update(requested_by=order.buyer)
    with connection.cursor() as cursor:
        new = {order.pk: order.buyer for order in orders if order.buyer != old_buyers[order.pk]}
        _erase_adjustments.count(cursor, order_ids=list(new), buyers=list(new.values()))
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
