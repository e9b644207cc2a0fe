"""The oracle of every chaos run: our ledger, the provider's books and what organizers heard tell the same story, and it
has an end. It reckons from rows that are written once: lines, adjustments, tickets, papers, refunds."""

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
from tests.support.chaos.provider_ledger import Books
from tests.support.chaos.webhook_receiver import Organizer
from tests.support.factories import audit_breaches

FOR_A_PERSON = {
    "unknown_capture": "money there that no buyer of ours paid: whose it is a person finds out",
    "unknown_refund": "a part sent back by hand: only who sent it knows for which places",
    "failed_refund": "the bank sent the money back: somebody must pay the buyer otherwise",
    "dispute": "the buyer's bank asks: staff answers it at the provider",
    "disputed_money": "the bank has withdrawn the money: staff writes it off or gives the order back",
}
"""Differences that nothing here could settle by itself. Any other left open is a fault; these too, unless the run made
one on purpose and says so."""
_TOLD_LAST = {
    "confirmed": ("order.confirmed", "ticket.reissued"), "partly_refunded": ("order.partly_refunded",),
    "refunded": ("order.refunded",), "canceled": ("order.canceled",), "failed": (),
}  # fmt: skip

Row = TypeVar("Row")


def assert_money_converged(
    books: Books, organizer: Organizer, labels: Mapping[UUID, str], for_a_person: Collection[str] = ()
) -> None:
    """`find_wrong` finds nothing."""
    wrong = list(find_wrong(books, organizer, labels, for_a_person))
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:40])


def find_wrong(
    books: Books, organizer: Organizer, labels: Mapping[UUID, str], for_a_person: Collection[str] = ()
) -> Iterator[str]:
    """What should not be: a ticket without money, money without ticket or refund, a second charge kept; an order that
    has neither ended nor stands; something on its way still, or given up; a difference that nobody can settle; papers
    that do not add up; an organizer who was not told; a breach that the auditor finds.

    `labels` names the orders a reader is told of. `for_a_person`: kinds of differences that the run left open on
    purpose.
    """
    assert FOR_A_PERSON.keys() >= set(for_a_person)
    accounts, heard = _accounts(), {message_id: number for number, message_id in enumerate(organizer.told)}
    for account in accounts:
        label = labels.get(account.order.pk, account.order.number)
        for problem in _judge(account, books, heard):
            yield f"{label}: {account.order.status} {account.order.reason}: {problem}"
    yield from _sums(accounts, books)
    yield from _strays(books)
    yield from _numbers()
    yield from _differences(for_a_person)
    yield from _messages()
    yield from _cancellations()
    yield from audit_breaches()


@dataclass
class Account:
    """All that an order came to."""

    order: Order
    payments: list[Payment] = field(default_factory=list)
    refunds: list[Refund] = field(default_factory=list)
    lines: list[OrderLine] = field(default_factory=list)
    adjustments: list[OrderAdjustment] = field(default_factory=list)
    tickets: list[Ticket] = field(default_factory=list)
    papers: list[Invoice] = field(default_factory=list)
    told: list[OrganizerMessage] = field(default_factory=list)
    deliveries: list[WebhookDelivery] = field(default_factory=list)

    @property
    def stands(self) -> bool:
        return self.order.status in ("confirmed", "partly_refunded")

    @property
    def owed_minor(self) -> int:
        """By its lines, if it ever stood."""
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
    add("papers", Invoice.objects.order_by("pk"))
    # In the order in which they were written, each under its order's lock.
    deliveries = WebhookDelivery.objects.select_related("message").order_by("pk")
    for delivery in deliveries:
        accounts[delivery.message.order_id].deliveries.append(delivery)
    add("told", OrganizerMessage.objects.order_by("created_at"))
    return list(accounts.values())


def _judge(account: Account, books: Books, first_heard: Mapping[UUID, int]) -> Iterator[str]:
    if account.order.status not in _TOLD_LAST:
        yield "has not ended"
    yield from _judge_money(account, books)
    yield from _judge_tickets(account)
    yield from _judge_papers(account)
    yield from _judge_words(account, first_heard)


def _judge_money(account: Account, books: Books) -> Iterator[str]:
    kept = []
    refunds = defaultdict[UUID, list[Refund]](list)
    for refund in account.refunds:
        refunds[refund.payment_id].append(refund)
        if refund.status != Refund.Status.SUCCEEDED:
            yield f"a refund of {refund.amount_minor} is {refund.status}"
    for payment in account.payments:
        charge, name = books.charges.get(str(payment.pk)), f"attempt {payment.attempt}"
        taken, left = (0, 0) if charge is None else (charge.captured_minor, charge.kept_minor)
        if payment.status == Payment.Status.PENDING and (charge is None or charge.is_settled):
            yield f"{name} is still pending"
        if payment.captured_minor != taken:
            yield f"{name}: {taken} were taken, we know of {payment.captured_minor} ({payment.status})"
        ours = payment.captured_minor - payment.refunded_minor
        if ours != left:
            yield f"{name}: the provider keeps {left}, by our ledger {ours}"
        sent = {} if charge is None else {key: amount for key, (amount, _) in charge.refunds.items()}
        asked = {str(refund.pk): refund.amount_minor for refund in refunds[payment.pk]}
        if sent != asked:
            yield f"{name}: refunds of ours {asked}, of theirs {sent}"
        if left:
            kept.append(left)
    if sum(kept) != account.owed_minor or len(kept) > 1:
        yield f"owes {account.owed_minor} by its lines, {kept} is kept"


def _judge_tickets(account: Account) -> Iterator[str]:
    standing = {line.pk for line in account.lines if line.kind == "place" and line.canceled_at is None}
    expected = standing if account.stands else set()
    if sorted(ticket.order_line_id for ticket in account.tickets) != sorted(expected):
        yield f"{len(account.tickets)} valid tickets for {len(expected)} places that stand"
    reservation = account.order.reservation
    if account.stands and reservation.seat_count != len(standing):
        yield f"{len(standing)} places stand, {reservation.seat_count} are sold"
    if (reservation.status == Reservation.Status.CONFIRMED) != account.stands:
        yield f"its reservation is {reservation.status}"
    for ticket in account.tickets:
        if ticket.order_line.canceled_at is not None or ticket.line.returned_at is not None:
            yield f"a valid ticket of {ticket.label}, which was returned"
        seat = ticket.seat
        if seat is not None and (seat.status, seat.reservation_id) != (SeatInventory.Status.SOLD, reservation.pk):
            yield f"a valid ticket of {ticket.label}, which is not its buyer's"


def _judge_papers(account: Account) -> Iterator[str]:
    invoices = [paper for paper in account.papers if paper.kind == "invoice"]
    notes = [paper for paper in account.papers if paper.kind == "credit_note"]
    if len(invoices) != (1 if account.order.confirmed_at and account.order.total_minor else 0):
        yield f"{len(invoices)} invoices"
    for invoice in invoices:
        back_minor = invoice.total_minor - account.owed_minor
        if invoice.total_minor != account.order.total_minor:
            yield f"an invoice over {invoice.total_minor}, its total is {account.order.total_minor}"
        if sum(note.total_minor for note in notes) != back_minor:
            yield f"credit notes over {[note.total_minor for note in notes]}, {back_minor} went back"
        if not account.owed_minor and sum(note.tax_minor for note in notes) != invoice.tax_minor:
            yield f"tax of {[note.tax_minor for note in notes]} given back, {invoice.tax_minor} was in it"
    for paper in account.papers:
        if paper.total_minor != sum(row["total_minor"] for row in paper.paper["lines"]):
            yield f"{paper.number} is over {paper.total_minor}, its rows are not"
        if paper.tax_minor != sum(row["tax_minor"] for row in paper.paper["lines"]):
            yield f"{paper.number} has {paper.tax_minor} of tax, its rows have not"


def _judge_words(account: Account, first_heard: Mapping[UUID, int]) -> Iterator[str]:
    """Everything that happened was told; and heard at least once, in that order, or it waits, or was put aside."""
    kinds = [message.kind for message in account.told]
    last = _TOLD_LAST.get(account.order.status, ())
    is_last_told = kinds[-1] in last if kinds else not last
    if not is_last_told or kinds.count("order.confirmed") != (1 if account.order.confirmed_at else 0):
        yield f"organizers were told {kinds}"
    if len(account.deliveries) != len(kinds):
        yield f"{len(kinds)} messages, {len(account.deliveries)} deliveries"
    heard = []
    for delivery in account.deliveries:
        is_heard = delivery.message_id in first_heard
        if is_heard:
            heard.append(first_heard[delivery.message_id])
        if delivery.status == WebhookDelivery.Status.DELIVERED and not is_heard:
            yield f"{delivery.message.kind} is said to be delivered, nobody heard it"
        if delivery.status == WebhookDelivery.Status.PENDING and not _waits(delivery):
            yield f"{delivery.message.kind} was not delivered, and nothing waits to be"
    if heard != sorted(heard):
        yield f"its messages {kinds} were heard in another order"


def _waits(delivery: WebhookDelivery) -> bool:
    waiting = OutboxMessage.objects.filter(topic=topics.WEBHOOK, done_at=None, dead_at=None)
    return waiting.filter(body__delivery=delivery.pk).exists()


def _sums(accounts: Sequence[Account], books: Books) -> Iterator[str]:
    """In all: what the provider keeps is what was captured less refunded, and what the orders owe by their lines."""
    theirs = sum(charge.kept_minor for charge in books.charges.values())
    ours = sum(one.captured_minor - one.refunded_minor for account in accounts for one in account.payments)
    owed = sum(account.owed_minor for account in accounts)
    if not theirs == ours == owed:
        yield f"in all the provider keeps {theirs}, by our payments {ours}, by the orders' lines {owed}"


def _strays(books: Books) -> Iterator[str]:
    ours = {str(pk) for pk in Payment.objects.values_list("pk", flat=True)}
    for charge in books.charges.values():
        if charge.key not in ours:
            yield f"charge {charge.reference} is of no payment"
    for line in ReservationLine.objects.filter(returned_at__isnull=False, seat__isnull=False):
        seat = SeatInventory.objects.get(pk=line.seat_id)
        if seat.reservation_id == line.reservation_id:
            yield f"seat {seat.pk} was returned and is its buyer's still"


def _numbers() -> Iterator[str]:
    """Papers are numbered from 1 without a gap."""
    given = defaultdict[tuple[str, str, int], list[int]](list)
    for kind, series, year, sequence in Invoice.objects.values_list("kind", "series", "year", "sequence"):
        given[kind, series, year].append(sequence)
    for counter in InvoiceCounter.objects.all():
        name = (counter.kind, counter.series, counter.year)
        if sorted(given.pop(name, [])) != list(range(1, counter.last + 1)):
            yield f"{counter} has a gap"
    yield from (f"papers {name} were never counted" for name in given)


def _differences(for_a_person: Collection[str]) -> Iterator[str]:
    for one in PaymentDifference.objects.filter(settled_at=None):
        if one.kind not in for_a_person:
            why = FOR_A_PERSON.get(one.kind, "nobody can settle it")
            yield f"difference left open: {one.kind} {one.reference}: {why}"


def _messages() -> Iterator[str]:
    given_up = set(WebhookDelivery.objects.filter(status=WebhookDelivery.Status.GIVEN_UP).values_list("pk", flat=True))
    for message in OutboxMessage.objects.filter(done_at=None):
        # An organizer who never takes a message has it in the admin, to be sent again.
        if message.dead_at is None or message.body.get("delivery") not in given_up:
            state = "dead" if message.dead_at else "waits"
            yield f"outbox: {message.topic} {message.body} {state}: {message.last_error}"
    for stored in ProviderMessage.objects.filter(processed_at=None):
        yield f"inbox: {stored} was never processed"


def _cancellations() -> Iterator[str]:
    """A canceled event keeps nobody: no order of it stands or is open, nothing of it is held or sold."""
    for canceled in EventCancellation.objects.all():
        if canceled.finished_at is None or canceled.orders_left or canceled.orders_failed:
            yield f"the cancellation of {canceled.event} is not done: {canceled}"
        live = Reservation.objects.filter(event=canceled.event_id).exclude(status__in=("canceled", "expired"))
        yield from (f"{canceled.event} was canceled, reservation {one.pk} is {one.status}" for one in live)
