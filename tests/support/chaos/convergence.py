"""The oracle, which checks the end of every chaos run: our rows, the provider's records and the messages that
organizers received must agree, and nothing may be unfinished. Expected amounts are computed from rows that are written
once: lines, adjustments, tickets, invoices, refunds."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from apps.kernel.outbox.models import OutboxMessage
from apps.orders import topics
from apps.orders.models import (
    EventCancellation,
    Invoice,
    InvoiceCounter,
    Order,
    OrderAdjustment,
    OrderLine,
    OrganizerMessage,
    Payment,
    PaymentDifference,
    ProviderMessage,
    Refund,
    Ticket,
    WebhookDelivery,
)
from apps.reservations.models import Reservation, ReservationLine, SeatInventory
from tests.support.chaos.provider_ledger import FakeProvider
from tests.support.chaos.webhook_receiver import Organizer
from tests.support.factories import audit_breaches

NEEDS_STAFF = {
    "unknown_capture": "money without a payment of ours: staff must find its buyer",
    "unknown_refund": "a manual partial refund: only staff knows for which tickets",
    "failed_refund": "the bank rejected the refund: staff must pay the buyer another way",
    "dispute": "the buyer's bank inquires: staff answers at the provider",
    "disputed_money": "the bank has withdrawn the money: staff writes it off or refunds the order",
}
"""Differences that the system cannot settle by itself. An open difference of any other kind is an error. One of these
kinds is an error too, unless the run has caused it on purpose and allows its kind."""
LAST_MESSAGES = {
    "confirmed": ("order.confirmed", "ticket.reissued"), "partly_refunded": ("order.partly_refunded",),
    "refunded": ("order.refunded",), "canceled": ("order.canceled",), "failed": (),
}  # fmt: skip

Row = TypeVar("Row")


def assert_money_converged(
    provider: FakeProvider, organizer: Organizer, labels: Mapping[UUID, str], needs_staff: Collection[str] = ()
) -> None:
    """Assert that `find_errors` finds nothing."""
    errors = list(find_errors(provider, organizer, labels, needs_staff))
    assert not errors, f"{len(errors)} errors:\n" + "\n".join(errors[:40])


def find_errors(
    provider: FakeProvider, organizer: Organizer, labels: Mapping[UUID, str], needs_staff: Collection[str] = ()
) -> Iterator[str]:
    """Return every error: a ticket without money, money without a ticket or refund, or a second charge that was kept;
    an order whose status is not final; a message that is unprocessed or was given up; an open difference; invoices
    with wrong sums; a message not sent to an organizer; a breach that the auditor finds.

    `labels` names the orders in the output. `needs_staff`: kinds of differences that the run left open on purpose.
    """
    assert NEEDS_STAFF.keys() >= set(needs_staff)
    accounts, received = _accounts(), {message_id: number for number, message_id in enumerate(organizer.received)}
    for account in accounts:
        label = labels.get(account.order.pk, account.order.number)
        for problem in _check_account(account, provider, received):
            yield f"{label}: {account.order.status} {account.order.reason}: {problem}"
    yield from _check_sums(accounts, provider)
    yield from _check_ownership(provider)
    yield from _check_invoice_numbers()
    yield from _check_differences(needs_staff)
    yield from _check_queues()
    yield from _check_cancellations()
    yield from audit_breaches()


@dataclass
class Account:
    """Everything that belongs to an order."""

    order: Order
    payments: list[Payment] = field(default_factory=list)
    refunds: list[Refund] = field(default_factory=list)
    lines: list[OrderLine] = field(default_factory=list)
    adjustments: list[OrderAdjustment] = field(default_factory=list)
    tickets: list[Ticket] = field(default_factory=list)
    documents: list[Invoice] = field(default_factory=list)
    messages: list[OrganizerMessage] = field(default_factory=list)
    deliveries: list[WebhookDelivery] = field(default_factory=list)

    @property
    def stands(self) -> bool:
        return self.order.status in ("confirmed", "partly_refunded")

    @property
    def owed_minor(self) -> int:
        """Return what the buyer owes for the order's uncanceled lines and its adjustments; 0 if the order was never
        confirmed."""
        if not self.stands and self.order.status != "refunded":
            return 0
        standing_minor = sum(line.total_minor for line in self.lines if line.canceled_at is None)
        return standing_minor + sum(one.amount_minor for one in self.adjustments)


def _accounts() -> list[Account]:
    accounts = {order.pk: Account(order) for order in Order.objects.select_related("reservation")}

    def add(name: str, rows: Sequence[Row]) -> None:
        for row in rows:
            getattr(accounts[row.order_id], name).append(row)  # type: ignore[attr-defined]

    add("payments", Payment.objects.order_by("attempt"))
    add("refunds", Refund.objects.order_by("requested_at"))
    add("lines", OrderLine.objects.order_by("pk"))
    add("adjustments", OrderAdjustment.objects.all())
    valid = Ticket.objects.filter(voided_at=None)
    add("tickets", valid.select_related("order_line", "line", "seat"))
    add("documents", Invoice.objects.order_by("pk"))
    # Sorted as written: each delivery was written under the lock of its order.
    deliveries = WebhookDelivery.objects.select_related("message").order_by("pk")
    for delivery in deliveries:
        accounts[delivery.message.order_id].deliveries.append(delivery)
    add("messages", OrganizerMessage.objects.order_by("created_at"))
    return list(accounts.values())


def _check_account(account: Account, provider: FakeProvider, first_received: Mapping[UUID, int]) -> Iterator[str]:
    if account.order.status not in LAST_MESSAGES:
        yield "has not ended"
    yield from _check_money(account, provider)
    yield from _check_tickets(account)
    yield from _check_documents(account)
    yield from _check_organizer_messages(account, first_received)


def _check_money(account: Account, provider: FakeProvider) -> Iterator[str]:
    kept = []
    refunds = defaultdict[UUID, list[Refund]](list)
    for refund in account.refunds:
        refunds[refund.payment_id].append(refund)
        if refund.status != Refund.Status.SUCCEEDED:
            yield f"a refund of {refund.amount_minor} is {refund.status}"
    for payment in account.payments:
        charge, name = provider.charges.get(str(payment.pk)), f"attempt {payment.attempt}"
        taken, left = (0, 0) if charge is None else (charge.captured_minor, charge.kept_minor)
        if payment.status == Payment.Status.PENDING and (charge is None or charge.is_settled):
            yield f"{name} is still pending"
        if payment.captured_minor != taken:
            yield f"{name}: the provider took {taken}, we recorded {payment.captured_minor} ({payment.status})"
        by_payments = payment.captured_minor - payment.refunded_minor
        if by_payments != left:
            yield f"{name}: the provider keeps {left}, by our rows {by_payments}"
        sent = {} if charge is None else {key: amount for key, (amount, _) in charge.refunds.items()}
        requested = {str(refund.pk): refund.amount_minor for refund in refunds[payment.pk]}
        if sent != requested:
            yield f"{name}: we requested the refunds {requested}, the provider has {sent}"
        if left:
            kept.append(left)
    if sum(kept) != account.owed_minor or len(kept) > 1:
        yield f"its lines and adjustments amount to {account.owed_minor}, the provider keeps {kept}"


def _check_tickets(account: Account) -> Iterator[str]:
    standing = {line.pk for line in account.lines if line.kind == "place" and line.canceled_at is None}
    expected = standing if account.stands else set()
    if sorted(ticket.order_line_id for ticket in account.tickets) != sorted(expected):
        yield f"{len(account.tickets)} valid tickets for {len(expected)} uncanceled lines"
    reservation = account.order.reservation
    if account.stands and reservation.seat_count != len(standing):
        yield f"{len(standing)} uncanceled ticket lines, but {reservation.seat_count} tickets are sold"
    if (reservation.status == Reservation.Status.CONFIRMED) != account.stands:
        yield f"its reservation is {reservation.status}"
    for ticket in account.tickets:
        if ticket.order_line.canceled_at is not None or ticket.line.returned_at is not None:
            yield f"a valid ticket of {ticket.label}, which was returned"
        seat = ticket.seat
        if seat is not None and (seat.status, seat.reservation_id) != (SeatInventory.Status.SOLD, reservation.pk):
            yield f"a valid ticket of {ticket.label}, whose seat is not its buyer's"


def _check_documents(account: Account) -> Iterator[str]:
    invoices = [paper for paper in account.documents if paper.kind == "invoice"]
    notes = [paper for paper in account.documents if paper.kind == "credit_note"]
    if len(invoices) != (1 if account.order.confirmed_at and account.order.total_minor else 0):
        yield f"{len(invoices)} invoices"
    for invoice in invoices:
        back_minor = invoice.total_minor - account.owed_minor
        if invoice.total_minor != account.order.total_minor:
            yield f"an invoice over {invoice.total_minor}, its total is {account.order.total_minor}"
        if sum(note.total_minor for note in notes) != back_minor:
            yield f"credit notes over {[note.total_minor for note in notes]}, {back_minor} was refunded"
        if not account.owed_minor and sum(note.tax_minor for note in notes) != invoice.tax_minor:
            yield f"tax of {[note.tax_minor for note in notes]} refunded, {invoice.tax_minor} was included"
    for paper in account.documents:
        if paper.total_minor != sum(row["total_minor"] for row in paper.paper["lines"]):
            yield f"{paper.number} is over {paper.total_minor}, its rows have a different sum"
        if paper.tax_minor != sum(row["tax_minor"] for row in paper.paper["lines"]):
            yield f"{paper.number} has {paper.tax_minor} of tax, its rows have a different sum"


def _check_organizer_messages(account: Account, first_received: Mapping[UUID, int]) -> Iterator[str]:
    """Check that every change of the order produced a message, and that the organizer received each message at least
    once, in the order of the changes, unless the message is still queued or was given up."""
    kinds = [message.kind for message in account.messages]
    last = LAST_MESSAGES.get(account.order.status, ())
    is_last_as_expected = kinds[-1] in last if kinds else not last
    if not is_last_as_expected or kinds.count("order.confirmed") != (1 if account.order.confirmed_at else 0):
        yield f"messages to organizers: {kinds}"
    if len(account.deliveries) != len(kinds):
        yield f"{len(kinds)} messages, {len(account.deliveries)} deliveries"
    received = []
    for delivery in account.deliveries:
        is_received = delivery.message_id in first_received
        if is_received:
            received.append(first_received[delivery.message_id])
        if delivery.status == WebhookDelivery.Status.DELIVERED and not is_received:
            yield f"{delivery.message.kind} is marked as delivered but never received"
        if delivery.status == WebhookDelivery.Status.PENDING and not _waits(delivery):
            yield f"{delivery.message.kind} was not delivered and has no outbox row"
    if received != sorted(received):
        yield f"its messages {kinds} were received in another order"


def _waits(delivery: WebhookDelivery) -> bool:
    waiting = OutboxMessage.objects.filter(topic=topics.WEBHOOK, done_at=None, dead_at=None)
    return waiting.filter(body__delivery=delivery.pk).exists()


def _check_sums(accounts: Sequence[Account], provider: FakeProvider) -> Iterator[str]:
    """Check the totals: what the provider keeps is what our payments captured minus what they refunded, and is also
    what all orders' lines and adjustments amount to."""
    by_provider = sum(charge.kept_minor for charge in provider.charges.values())
    by_payments = sum(one.captured_minor - one.refunded_minor for account in accounts for one in account.payments)
    owed = sum(account.owed_minor for account in accounts)
    if not by_provider == by_payments == owed:
        yield f"in all the provider keeps {by_provider}, by our payments {by_payments}, by the orders' lines {owed}"


def _check_ownership(provider: FakeProvider) -> Iterator[str]:
    """Check that every charge belongs to a payment, and that no returned seat still belongs to its buyer."""
    payment_ids = {str(pk) for pk in Payment.objects.values_list("pk", flat=True)}
    for charge in provider.charges.values():
        if charge.key not in payment_ids:
            yield f"charge {charge.reference} belongs to no payment"
    for line in ReservationLine.objects.filter(returned_at__isnull=False, seat__isnull=False):
        seat = SeatInventory.objects.get(pk=line.seat_id)
        if seat.reservation_id == line.reservation_id:
            yield f"seat {seat.pk} was returned and still belongs to its buyer"


def _check_invoice_numbers() -> Iterator[str]:
    """Check that invoices are numbered from 1 without a gap."""
    given = defaultdict[tuple[str, str, int], list[int]](list)
    for kind, series, year, sequence in Invoice.objects.values_list("kind", "series", "year", "sequence"):
        given[kind, series, year].append(sequence)
    for counter in InvoiceCounter.objects.all():
        name = (counter.kind, counter.series, counter.year)
        if sorted(given.pop(name, [])) != list(range(1, counter.last + 1)):
            yield f"{counter} has a gap"
    yield from (f"{name} has no counter" for name in given)


def _check_differences(needs_staff: Collection[str]) -> Iterator[str]:
    for one in PaymentDifference.objects.filter(settled_at=None):
        if one.kind not in needs_staff:
            why = NEEDS_STAFF.get(one.kind, "nothing settles it")
            yield f"difference left open: {one.kind} {one.reference}: {why}"


def _check_queues() -> Iterator[str]:
    """Check that every message in the outbox and every stored message of a provider was processed."""
    given_up = set(WebhookDelivery.objects.filter(status=WebhookDelivery.Status.GIVEN_UP).values_list("pk", flat=True))
    for message in OutboxMessage.objects.filter(done_at=None):
        # A webhook delivery that was given up is no error: staff can send it again from the admin.
        if message.dead_at is None or message.body.get("delivery") not in given_up:
            state = "dead" if message.dead_at else "waits"
            yield f"outbox: {message.topic} {message.body} {state}: {message.last_error}"
    for stored in ProviderMessage.objects.filter(processed_at=None):
        yield f"inbox: {stored} was never processed"


def _check_cancellations() -> Iterator[str]:
    """Check that the cancellation of every canceled event is finished, and that each of the event's reservations is
    canceled or expired."""
    for canceled in EventCancellation.objects.all():
        if canceled.finished_at is None or canceled.orders_left or canceled.orders_failed:
            yield f"the cancellation of {canceled.event} is not done: {canceled}"
        live = Reservation.objects.filter(event=canceled.event_id).exclude(status__in=("canceled", "expired"))
        yield from (f"{canceled.event} was canceled, reservation {one.pk} is {one.status}" for one in live)
