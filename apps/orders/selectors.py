"""Read models of orders and tickets: frozen values and their API form."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection
from django.db.models import Case, Model, Q, QuerySet, When
from django.urls import reverse

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import model_rows, sql
from apps.kernel.http.problems import Problem
from apps.orders import return_quotes
from apps.orders.absolute_urls import absolute_url
from apps.orders.errors import InvoiceNotFound, OrderNotFound, TicketNotFound
from apps.orders.lines import bill_from_lines
from apps.orders.models import ATTEMPTS_MAX, Invoice, InvoiceKind, Order, OrderLine, Payment, Refund, Ticket
from apps.orders.terms import transfer_terms
from apps.orders.terms.transfer_terms import TransferTerms, TransferView
from apps.queue import facade as queue
from apps.reservations import facade as reservations

_orders_by_id = sql.load("apps.orders", "orders_by_id", prepared=True)
_payments = sql.load("apps.orders", "payments_of_orders", prepared=True)
_lines = sql.load("apps.orders", "lines_of_orders", prepared=True)
_tickets = sql.load("apps.orders", "tickets_of_orders", prepared=True)
_papers = sql.load("apps.orders", "paper_titles_of_orders", prepared=True)
_refunds = sql.load("apps.orders", "refunds_of_orders")
_received_of_emails = sql.load("apps.orders", "received_of_emails")

ORDERS_SHOWN_MAX = 100
Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class TicketView:
    code: str = field(repr=False)
    label: str
    section: str
    row: str
    number: str
    category: str
    price_minor: int
    currency: str
    holder: str
    checked_in_at: datetime | None
    valid: bool
    order_id: UUID
    replaced_at: datetime | None = None
    replaced_by: str = ""
    """The requester of the replacement: `buyer`, `staff:ID` or `transfer`; empty if the ticket was not replaced."""
    is_transferred: bool = False
    """Whether it is a recipient's. The buyer then sees neither its code nor its holder."""
    offer: TransferView | None = None
    """The buyer's offer of this ticket that its recipient may still accept."""

    @property
    def url(self) -> str:
        return "" if not self.code else reverse("orders:ticket", args=[self.code])

    @property
    def qr_url(self) -> str:
        return reverse("orders:ticket_qr", args=[self.code])

    def contract(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "label": self.label,
            "section": self.section,
            "row": self.row,
            "number": self.number,
            "category": self.category,
            "price_minor": self.price_minor,
            "holder": self.holder,
            "valid": self.valid,
            "transferred": self.is_transferred,
            "checked_in_at": None if self.checked_in_at is None else clock.iso(self.checked_in_at),
            "url": absolute_url(self.url) if self.code else "",
        }


@dataclass(frozen=True, slots=True)
class PaymentView:
    """The latest payment attempt. `state` is pending, succeeded, declined or abandoned; `none` for a free order."""

    provider: str
    method: str
    state: str
    attempt: int
    """The number of the current try; calls without a response count as tries."""
    refunded_minor: int
    faults_count: int = 0
    next_action: dict[str, str] | None = field(default=None, repr=False)
    """What the buyer must do while the payment is pending."""

    def contract(self) -> dict[str, Any]:
        return {
            "provider": self.provider,
            "method": self.method,
            "state": self.state,
            "attempt": self.attempt,
            "attempts_left": max(ATTEMPTS_MAX - self.attempt, 0),
            "refunded_minor": self.refunded_minor,
            "next_action": self.next_action,
        }


@dataclass(frozen=True, slots=True)
class RefundView:
    """A refund. `state` is requested, pending, succeeded, failed or paid_out."""

    id: UUID
    amount_minor: int
    currency: str
    state: str
    requested_at: datetime
    settled_at: datetime | None
    failure: str = ""
    """The provider's reason, for staff."""
    paid_out: str = ""
    """For staff: how the refund was paid out by other means, and which staff member recorded it."""

    @property
    def words(self) -> str:
        return _REFUND_MESSAGES[Refund.Status(self.state)]

    def contract(self) -> dict[str, Any]:
        return {
            "refund_id": str(self.id),
            "amount_minor": self.amount_minor,
            "state": self.state,
            "requested_at": clock.iso(self.requested_at),
            "settled_at": None if self.settled_at is None else clock.iso(self.settled_at),
        }


_REFUND_MESSAGES = {
    Refund.Status.REQUESTED: "On its way.",
    Refund.Status.PENDING: "Your bank is processing it.",
    Refund.Status.SUCCEEDED: "Sent. It can take a few days to appear on your statement.",
    Refund.Status.FAILED: "Your bank rejected the refund. The organizer will contact you.",
    Refund.Status.PAID_OUT: "Your bank rejected the refund, so the organizer paid you by other means.",
}


@dataclass(frozen=True, slots=True)
class InvoiceView:
    """An invoice, or a credit note for a refund."""

    order_id: UUID
    number: str
    kind: str
    issued_at: datetime
    total_minor: int

    @property
    def name(self) -> str:
        return InvoiceKind(self.kind).label.capitalize()

    @property
    def url(self) -> str:
        return reverse("orders:paper", args=[self.order_id, self.number])

    def contract(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "kind": self.kind,
            "issued_at": clock.iso(self.issued_at),
            "total_minor": self.total_minor,
            "url": absolute_url(self.url),
        }


_REFUND_REASONS = {
    Order.Reason.LATE: "Your payment arrived too late.",
    Order.Reason.WRONG_AMOUNT: "The amount paid did not match the order total.",
    Order.Reason.OVER_LIMIT: "Other orders with your email address have the most tickets that one buyer may have.",
    Order.Reason.CANCELED_BY_BUYER: "The order was canceled before the payment arrived.",
    Order.Reason.CANCELED_BY_STAFF: "The organizer canceled the order.",
    Order.Reason.RETURNED: "You returned the tickets.",
    Order.Reason.EVENT_CANCELED: "The organizer canceled the event.",
}
_NO_PAYMENT = PaymentView("", "", "none", 0, 0)


@dataclass(frozen=True, slots=True)
class OrderView:
    id: UUID
    number: str
    status: str
    reason: str
    email: str = field(repr=False)
    name: str = field(repr=False)
    total_minor: int
    currency: str
    event: events.EventView
    entry_id: UUID
    reservation_id: UUID
    account_id: int | None
    placed_at: datetime
    pay_deadline: datetime
    payment: PaymentView
    bill: events.Bill
    papers: tuple[InvoiceView, ...]
    tickets: tuple[TicketView, ...]
    can_try_again: bool
    """Whether the last attempt was declined and enough tries and time are left for another."""
    refunds: tuple[RefundView, ...] = ()
    """In the order of their requests; failed refunds that were replaced are left out."""
    returns: return_quotes.ReturnOffer | None = None
    """The terms for returning the order's tickets; None if the event allows no returns."""
    transfer_terms: TransferTerms | None = None
    """The terms for passing tickets to other people; None if the event allows no transfers."""
    transfers: tuple[TransferView, ...] = ()
    """Those that the buyer has started, oldest first."""
    earlier_start: datetime | None = None
    """When the event was to start according to the order, if it has been moved since."""
    tickets_sent_at: datetime | None = None
    """When the mail with the tickets was sent last."""
    link_version: int = 0
    """Of the links that are mailed to `email`: an order whose address was corrected since has another."""
    is_handed_over: bool = False
    """Staff have given it to another person: neither its account nor its queue entry grants access."""

    @property
    def is_standing(self) -> bool:
        return self.status in Order.STANDING

    @property
    def may_choose_again(self) -> bool:
        """Whether the payment was late or of a wrong amount, so that the buyer may want to hold other seats."""
        return self.reason in (Order.Reason.LATE, Order.Reason.WRONG_AMOUNT)

    @property
    def valid_tickets(self) -> list[TicketView]:
        """The valid tickets that the buyer has; those of recipients are not among them."""
        return [ticket for ticket in self.tickets if ticket.valid and not ticket.is_transferred]

    @property
    def may_return(self) -> bool:
        """Whether the buyer may return a ticket now: the terms allow it, and a ticket is neither passed on nor used."""
        is_open = self.returns is not None and self.returns.is_open
        return is_open and any(ticket.checked_in_at is None for ticket in self.valid_tickets)

    @property
    def message(self) -> str:
        """The message for the buyer; empty when all is well."""
        if self.can_try_again:
            left = ATTEMPTS_MAX - self.payment.attempt
            return (
                "Your payment was declined, and you were not charged. Your tickets are still reserved: you can try "
                f"{_times(left)} more."
            )
        if self.status == Order.Status.PLACED and self.payment.state == Payment.Status.DECLINED:
            return (
                "Your payment was declined, and you were not charged. There is not enough time left for another "
                "attempt, so your tickets are about to go back on sale."
            )
        if self.status == Order.Status.REFUNDED:
            return _REFUND_REASONS[Order.Reason(self.reason)]
        if self.status == Order.Status.FAILED:
            if self.reason == Order.Reason.DECLINED:
                return "Your payment was declined, so your tickets were released. You were not charged."
            if self.reason == Order.Reason.PROVIDER_AWAY:
                return (
                    "The payment company did not answer, so your tickets were released. "
                    "If you were charged, you will be refunded automatically."
                )
            return (
                "Your payment was not confirmed in time, so your tickets were released. "
                "If you were charged, you will be refunded automatically."
            )
        if self.status == Order.Status.CANCELED:
            return "Your tickets were released. If a payment still goes through, it will be refunded automatically."
        return ""

    @property
    def url(self) -> str:
        return reverse("orders:order", args=[self.id])

    def checkout_contract(self) -> dict[str, Any]:
        return _checkout_contract(self, self.bill, self.payment)

    def contract(self) -> dict[str, Any]:
        return {
            **self.checkout_contract(),
            "number": self.number,
            "reservation_id": str(self.reservation_id),
            "event_id": self.event.slug,
            "email": self.email,
            "name": self.name,
            "placed_at": clock.iso(self.placed_at),
            "pay_deadline": clock.iso(self.pay_deadline),
            "can_try_again": self.can_try_again,
            "message": self.message,
            "refunds": [refund.contract() for refund in self.refunds],
            "returns": None if self.returns is None else self.returns.contract(),
            "transfer_terms": None if self.transfer_terms is None else self.transfer_terms.contract(),
            "transfers": [transfer.contract() for transfer in self.transfers],
            "invoices": [paper.contract() for paper in self.papers],
            "tickets": [ticket.contract() for ticket in self.tickets],
        }


def _checkout_contract(order: "OrderView | Order", bill: events.Bill, payment: PaymentView) -> dict[str, Any]:
    return {
        "order_id": str(order.id),
        "status": order.status,
        "total_minor": order.total_minor,
        "currency": order.currency,
        "bill": bill.contract(),
        "payment": payment.contract(),
    }


def placed_contract(order: Order, payment: Payment | None, bill: events.Bill) -> dict[str, Any]:
    """Return the checkout response for an order just placed with this bill and first payment."""
    return _checkout_contract(order, bill, _payment_view(order, payment, 0))


def _payment_view(order: Order, last: Payment | None, refunded_minor: int) -> PaymentView:
    if last is None:
        return _NO_PAYMENT
    return PaymentView(
        provider=last.provider,
        method=last.method,
        state=last.status,
        attempt=min(last.tries, ATTEMPTS_MAX),
        faults_count=last.faults_count,
        refunded_minor=refunded_minor,
        # An order that has ended asks nothing of its buyer, even while a charge is still pending at the provider.
        next_action=last.next_action if order.status in Order.OPEN else None,
    )


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"


def order_view(order: Order) -> OrderView:
    """Return the view of this order row, with its payments and tickets as they are now."""
    return _views([order])[0]


def get_order_to_send(order_id: UUID) -> tuple[OrderView, bool]:
    """Return the order for the mail with its tickets, and whether they were sent already. Its invoices, refunds and
    return terms are not loaded. Raises OrderNotFound."""
    with connection.cursor() as cursor:
        rows = model_rows.build_instances(Order, _orders_by_id.rows(cursor, order_ids=[order_id]))
    if not rows:
        raise OrderNotFound
    return _views(rows, is_whole=False)[0], rows[0].tickets_sent_at is not None


def get_order(order_id: UUID) -> OrderView:
    """Return the order with this id. Raises OrderNotFound."""
    return order_view(_find(Order.objects.filter(pk=order_id), OrderNotFound))


def find_orders(order_ids: Collection[UUID]) -> dict[UUID, OrderView]:
    """Return these orders by id, without unknown ids."""
    with connection.cursor() as cursor:
        rows = model_rows.build_instances(Order, _orders_by_id.rows(cursor, order_ids=list(order_ids)))
    return {view.id: view for view in _views(rows, is_fresh=True)}


def order_of_reservation(reservation_id: UUID) -> OrderView | None:
    """Return the reservation's order, or None."""
    order = Order.objects.filter(reservation_id=reservation_id).first()
    return None if order is None else order_view(order)


def numbers_by_reservation(reservation_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the order numbers of these reservations; those without an order are omitted."""
    rows = Order.objects.filter(reservation_id__in=list(reservation_ids))
    return dict(rows.values_list("reservation_id", "number"))


def count_received_tickets(cursor: sql.Cursor, addresses: Sequence[tuple[int, str]]) -> list[int]:
    """For each of these pairs of an event's id and an address, return how many valid tickets of the event the address
    has received from other buyers, and not passed on."""
    rows = _received_of_emails.rows(
        cursor, event_ids=[event_id for event_id, _ in addresses], emails=[email for _, email in addresses]
    )
    return [count for _, count in rows]


def list_orders(caller: queue.Caller, also: Iterable[UUID] = ()) -> list[OrderView]:
    """Return the latest orders of the caller's account, browser and queue entry, and those in `also`, newest first.

    A browser and a guest's token list orders without an account only: computers are shared, and an account's orders end
    with its log-out. Orders in `Order.LOST_OWNER` are not listed.
    """
    without_account = Q(account=None) & ~Order.LOST_OWNER
    usable = without_account
    if caller.proven_account_id is not None:
        usable |= Q(account=caller.proven_account_id)
    owned = Q(pk__in=list(also))
    if caller.account_id is not None:
        owned |= Q(account=caller.account_id)
    if caller.visitor_id:
        owned |= Q(buyer=f"visitor:{caller.visitor_id}") & without_account
    if caller.entry_id is not None:
        owned |= Q(entry_id=caller.entry_id) & usable
    return _views(list(Order.objects.filter(owned).order_by("-placed_at")[:ORDERS_SHOWN_MAX]))


def list_orders_of_address(email: str, now: datetime, limit: int) -> list[OrderView]:
    """Return up to `limit` orders with this normalized address: first the valid ones of events to come, those that were
    paid for before free ones, then other valid ones, then the newest. Their invoices, refunds and return terms are not
    loaded. A stranger can place any number of free orders with the address."""
    is_to_come = Q(status__in=Order.STANDING, event__starts_at__gte=now - timedelta(days=1))
    rank = Case(
        When(is_to_come, total_minor__gt=0, then=0),
        When(is_to_come, then=1),
        When(status__in=Order.STANDING, then=2),
        default=3,
    )
    return _views(list(Order.objects.filter(email=email).order_by(rank, "-placed_at")[:limit]), is_whole=False)


def get_ticket(code: str) -> TicketView:
    """Return the ticket with this code. Raises TicketNotFound."""
    ticket = _find(Ticket.objects.select_related("order").filter(code=code), TicketNotFound)
    return _ticket_view(ticket, ticket.order)


def get_invoice(order_id: UUID, number: str) -> Invoice:
    """Return the order's invoice or credit note with this number. Raises InvoiceNotFound."""
    return _find(Invoice.objects.filter(order=order_id, number=number), InvoiceNotFound)


def _find(rows: QuerySet[Row], missing: type[Problem]) -> Row:
    """Return the first row. Raises `missing` if there is none."""
    row = rows.first()
    if row is None:
        raise missing
    return row


def _buyer_tickets(tickets: Iterable[Ticket], order: Order, transfers: Iterable[TransferView]) -> list[TicketView]:
    """Return the views for the buyer: without codes and holders of transferred tickets, and with pending offers."""
    offers = {transfer.code: transfer for transfer in transfers if transfer.state == "offered"}
    views = (_ticket_view(ticket, order) for ticket in tickets)
    return [
        replace(view, code="", holder="") if view.is_transferred else replace(view, offer=offers.get(view.code))
        for view in views
    ]


def _ticket_view(ticket: Ticket, order: Order) -> TicketView:
    return TicketView(
        code=ticket.code,
        label=ticket.label,
        section=ticket.section,
        row=ticket.row,
        number=ticket.number,
        category=ticket.category,
        price_minor=ticket.price_minor,
        currency=order.currency,
        holder="" if ticket.voided_at is not None and order.is_of_former_owner(ticket.issued_at) else ticket.holder,
        checked_in_at=ticket.checked_in_at,
        valid=ticket.voided_at is None,
        order_id=order.pk,
        replaced_at=ticket.voided_at if ticket.replaced_by else None,
        replaced_by=ticket.replaced_by,
        is_transferred=ticket.transfer_id is not None,
    )


def _refund_view(refund: Refund) -> RefundView:
    return RefundView(
        refund.pk,
        refund.amount_minor,
        refund.currency,
        refund.status,
        refund.requested_at,
        refund.settled_at,
        refund.failure,
        f"by {refund.paid_out_by}: {refund.paid_out_note}" if refund.paid_out_note else "",
    )


def _read(
    ids: Sequence[UUID], sold_ids: Sequence[UUID], event_ids: Sequence[int], *, is_whole: bool
) -> dict[str, Sequence[tuple[Any, ...]]]:
    """Return the rows that belong to these orders, in one round trip."""
    calls = {
        "payments": _payments.call(order_ids=ids),
        "lines": _lines.call(order_ids=ids),
        "events": events.events_call(event_ids),
    }
    if is_whole:
        calls["refunds"] = _refunds.call(order_ids=ids)
        calls["return_policies"], calls["notices"] = return_quotes.terms_calls(event_ids)
        calls["transfer_policies"] = transfer_terms.terms_call(event_ids)
        calls["clock"] = clock.now_call()
    if sold_ids:
        if is_whole:
            calls["papers"] = _papers.call(order_ids=sold_ids)
            # Before the tickets, so that each transfer's ticket is among them.
            calls["transfers"] = transfer_terms.transfers_call(sold_ids)
        calls["tickets"] = _tickets.call(order_ids=sold_ids)
    with connection.cursor() as cursor:
        results = sql.execute_batch(cursor, list(calls.values()))
    return {name: result.rows for name, result in zip(calls, results, strict=True)}


def _by_order(rows: Iterable[Any]) -> dict[UUID, list[Any]]:
    grouped = defaultdict[UUID, list[Any]](list)
    for row in rows:
        grouped[row.order_id].append(row)
    return grouped


def _held_times(orders: Iterable[Order], terms: Mapping[int, return_quotes.ReturnTerms]) -> dict[UUID, datetime]:
    """Return when the seats of these orders were held, by reservation: only of events with another date, since no other
    terms depend on it."""
    moved = [order.reservation_id for order in orders if order.event_id in terms and terms[order.event_id].is_moved]
    return reservations.held_times(moved) if moved else {}


def _views(orders: list[Order], *, is_whole: bool = True, is_fresh: bool = False) -> list[OrderView]:
    """Return the views of these rows, with a single round trip in most cases. `is_fresh`: the rows were just read, so
    those that were never confirmed have neither tickets nor invoices, and these are not read."""
    if not orders:
        return []
    ids = [order.pk for order in orders]
    sold_ids = [order.pk for order in orders if order.confirmed_at is not None or not is_fresh]
    read = _read(ids, sold_ids, list({order.event_id for order in orders}), is_whole=is_whole)
    payments = _by_order(model_rows.build_instances(Payment, read["payments"]))
    lines = _by_order(model_rows.build_instances(OrderLine, read["lines"]))
    all_tickets = model_rows.build_instances(Ticket, read.get("tickets", ()))
    tickets = _by_order(all_tickets)
    paper_views = _by_order(InvoiceView(*paper) for paper in read.get("papers", ()))
    refund_rows = _by_order(model_rows.build_instances(Refund, read.get("refunds", ())))
    found = events.read_events(read["events"])
    # Read the clock only if needed: for return terms, or for an order whose payment can be retried.
    now = clock.now() if not is_whole and any(order.status == Order.Status.PLACED for order in orders) else None
    offers: dict[int, return_quotes.ReturnTerms] = {}
    terms: dict[int, TransferTerms] = {}
    transfers: dict[UUID, list[TransferView]] = {}
    if is_whole:
        ((now,),) = read["clock"]
        assert now is not None
        offers = return_quotes.read_terms(found.values(), now, read["return_policies"], read["notices"])
        terms = transfer_terms.read_terms(found.values(), now, read["transfer_policies"])
        transfers = transfer_terms.read_transfers(read.get("transfers", ()), all_tickets, now)
    held_times = _held_times(orders, offers)

    def held_at(order: Order) -> datetime:
        return held_times.get(order.reservation_id, order.placed_at)

    views = []
    for order in orders:
        last = payments[order.pk][-1] if payments[order.pk] else None
        views.append(
            OrderView(
                id=order.pk,
                number=order.number,
                status=order.status,
                reason=order.reason,
                email=order.email,
                name=order.name,
                total_minor=order.total_minor,
                currency=order.currency,
                event=found[order.event_id],
                entry_id=order.entry_id,
                reservation_id=order.reservation_id,
                account_id=order.account_id,
                placed_at=order.placed_at,
                pay_deadline=order.pay_deadline,
                payment=_payment_view(order, last, sum(payment.refunded_minor for payment in payments[order.pk])),
                bill=bill_from_lines(lines[order.pk]),
                papers=() if order.is_handed_over else tuple(paper_views[order.pk]),
                tickets=tuple(_buyer_tickets(tickets[order.pk], order, transfers.get(order.pk, ()))),
                can_try_again=order.status == Order.Status.PLACED
                and last is not None
                and last.status == Payment.Status.DECLINED
                and last.tries < ATTEMPTS_MAX
                and now is not None
                and order.has_time_for_attempt(now),
                refunds=tuple(_refund_view(refund) for refund in refund_rows[order.pk]),
                returns=offers[order.event_id].of_order(held_at(order)) if order.event_id in offers else None,
                transfer_terms=terms.get(order.event_id),
                transfers=tuple(transfers.get(order.pk, ())),
                tickets_sent_at=order.tickets_sent_at,
                link_version=order.link_version,
                is_handed_over=order.is_handed_over,
                earlier_start=offers[order.event_id].earlier_start(held_at(order))
                if order.event_id in offers
                else None,
            )
        )
    return views
