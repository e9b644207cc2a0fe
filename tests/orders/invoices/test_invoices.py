"""Invoices for payments and credit notes for refunds, numbered without gaps."""

import io
import re
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from django.core import mail
from django.db import IntegrityError, transaction
from django.test import Client
from pypdf import PdfReader

from apps.events.facade import EventView, PricePolicy
from apps.kernel import clock
from apps.kernel.db.transactions import violated_constraint
from apps.kernel.outbox import facade as outbox
from apps.orders.cancellation import order_cancellation
from apps.orders.invoices import invoice_pdf, invoices
from apps.orders.models import Invoice, InvoiceCounter, InvoiceKind, Order, Payment
from apps.orders.payments.providers import sandbox
from apps.orders.returns import returns
from apps.reservations import facade as reservations
from tests.support.factories import assert_audit_clean, audit_breaches, hold, join, make_event
from tests.support.orders.sale import (
    SAME_ORIGIN,
    backdate_pay_deadline,
    buy,
    deliver_outbox,
    joined_browser,
    late_webhook,
    place_order,
    receive_webhook,
)
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)
POLICY = PricePolicy(ticket_fee_minor=250, order_fee_minor=100, tax_rate=1_900)


def sold(seats: tuple[str, ...] = ("hall-A-1", "hall-A-2"), slug: str = "concert") -> Order:
    return buy(hold(make_event(slug, price_policy=POLICY), seats=list(seats)))


def the_invoice(order: Order) -> Invoice:
    return Invoice.objects.get(order=order, kind=InvoiceKind.INVOICE)


def test_a_paid_order_has_one_invoice_with_its_lines_and_parties() -> None:
    order = sold()
    invoice = the_invoice(order)
    assert invoice.number == f"FG-{clock.now().year}-000001"
    assert (invoice.total_minor, invoice.currency) == (10_600, "USD")
    paper = invoice.paper
    assert paper["buyer"] == {"name": "Ada Buyer", "email": "buyer@example.org"}
    assert paper["order"] == order.number
    assert [line["description"] for line in paper["lines"]] == [
        "Hall, row A, seat 1",
        "Hall, row A, seat 2",
        "Order fee",
    ]
    assert sum(line["total_minor"] for line in paper["lines"]) == invoice.total_minor
    assert paper["taxes"] == [{"rate": 1_900, "net_minor": 10_600 - invoice.tax_minor, "tax_minor": invoice.tax_minor}]
    for _ in range(2):
        assert invoices.issue(order.pk) == []
    assert_audit_clean()


def test_the_order_is_locked_before_the_counter_and_no_row_after_it(
    django_assert_max_num_queries: Callable[..., Any],
) -> None:
    """A transaction that has locked a counter waits for no other row, so the counter is locked only briefly."""
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    for message in outbox.claim(10):
        outbox.hand_over(message)
    with django_assert_max_num_queries(40) as queries:
        (paper,) = invoices.issue(order.pk)
    statements = [" ".join(query["sql"].split()) for query in queries.captured_queries]
    locks = [sql for sql in statements if "FOR NO KEY UPDATE" in sql]
    tables = [re.search(r"FROM \"?(\w+)", sql).group(1) for sql in locks]  # type: ignore[union-attr]
    assert tables == ["orders_order"]
    # One statement creates, or locks and increments, the counter; after it only the document is written.
    (counted,) = [index for index, sql in enumerate(statements) if "INTO orders_invoicecounter" in sql]
    assert counted > statements.index(locks[0])
    after = [sql.split(" (")[0] for sql in statements[counted + 1 :] if sql != "COMMIT"]
    assert after == ['INSERT INTO "orders_invoice"']
    assert not [sql for sql in statements if "FOR UPDATE" in sql]
    assert paper.sequence == 1


def test_the_order_page_and_the_api_link_only_the_documents_of_the_order() -> None:
    browser = joined_browser(make_event(price_policy=POLICY, name="Späte Förderung & 東京").slug)
    response = browser.post(
        "/api/events/concert/reservations",
        {"seats": ["hall-A-1"]},
        content_type="application/json",
        headers=SAME_ORIGIN | {"idempotency-key": "hold"},
    ).json()
    order = buy(reservations.get_reservation(UUID(response["reservation_id"])))
    order_cancellation.refund_order(order.pk, "staff:1")
    page = browser.get(f"/orders/{order.pk}/").content.decode()
    listed = browser.get(f"/api/orders/{order.pk}").json()["invoices"]
    assert [paper["kind"] for paper in listed] == ["invoice"]
    deliver_outbox()
    assert "credit note" in mail.outbox[-1].body
    listed = browser.get(f"/api/orders/{order.pk}").json()["invoices"]
    assert [paper["kind"] for paper in listed] == ["invoice", "credit_note"]
    page = browser.get(f"/orders/{order.pk}/").content.decode()
    for paper in listed:
        path = urlsplit(paper["url"]).path
        assert path in page
        shown = browser.get(path)
        assert shown.headers["Content-Type"] == "application/pdf"
        assert shown.content == browser.get(path).content
        text = "".join(part.extract_text() for part in PdfReader(io.BytesIO(shown.content)).pages)
        for word in (paper["number"], order.number, "Ada Buyer", "Hall, row A, seat 1", "Order fee", "$53.50", "19%"):
            assert word in text
        assert Client().get(path).status_code == 401
    assert browser.get(f"/orders/{order.pk}/invoices/FG-2000-000001.pdf").status_code == 404


def test_a_long_invoice_continues_on_the_next_page() -> None:
    event = make_event(rows=0, general_admission=100, seats_per_reservation_max=60)
    order = buy(hold(event, ga_section="floor", ga_quantity=60))
    pages = PdfReader(io.BytesIO(invoice_pdf.render_invoice(the_invoice(order)))).pages
    assert len(pages) == 3
    assert "Floor, 60 of 60" in pages[-1].extract_text()
    assert "Page 3 of 3" in pages[-1].extract_text()
    assert "$1,500.00" in pages[-1].extract_text()


def test_a_free_order_and_an_unpaid_one_have_no_invoice() -> None:
    buy(hold(make_event("free", price_minor=0), seats=["hall-A-1"]))
    declined = buy(hold(make_event("dear"), seats=["hall-A-1"]), sandbox.DECLINES)
    assert invoices.issue(declined.pk) == []
    assert not Invoice.objects.exists()
    assert_audit_clean()


def test_a_late_payment_that_is_refunded_has_no_invoice() -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    deliver_outbox()
    backdate_pay_deadline(order, seconds=600)
    receive_webhook(late_webhook(order, clock.now()))
    order.refresh_from_db()
    assert order.status == Order.Status.REFUNDED
    assert not Invoice.objects.exists()
    assert_audit_clean()


def test_a_refund_has_a_credit_note_that_credits_the_invoice_exactly() -> None:
    order = sold()
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    invoice = the_invoice(order)
    note = Invoice.objects.get(kind=InvoiceKind.CREDIT_NOTE)
    assert note.number == f"FGC-{clock.now().year}-000001"
    assert note.refers_to == invoice
    assert note.paper["refers_to"] == invoice.number
    assert (note.total_minor, note.tax_minor) == (invoice.total_minor, invoice.tax_minor)
    assert invoices.issue(order.pk) == []
    assert_audit_clean()


def test_an_order_refunded_before_its_invoice_was_written_has_an_invoice_and_a_credit_note() -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    for message in outbox.claim(10):
        outbox.hand_over(message)
    assert not Invoice.objects.exists()
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    assert list(Invoice.objects.values_list("kind", "total_minor")) == [("invoice", 5_000), ("credit_note", 5_000)]
    assert_audit_clean()


def test_lines_refunded_one_after_the_other_are_each_credited_once() -> None:
    order = sold(("hall-A-1", "hall-A-2", "hall-A-3"))
    invoice, credited = the_invoice(order), []
    for line in order.lines.all():
        order.lines.filter(pk=line.pk).update(canceled_at=clock.now())
        (note,) = invoices.issue(order.pk)
        assert [row["description"] for row in note.paper["lines"] if row["order_line"]] == [line.description]
        assert note.total_minor == line.total_minor
        credited.append(note)
    assert sum(note.total_minor for note in credited) == invoice.total_minor
    assert sum(note.tax_minor for note in credited) == invoice.tax_minor


def test_an_invoice_cannot_be_changed_or_deleted() -> None:
    order = sold()
    for harm in (
        lambda: Invoice.objects.update(total_minor=1),
        lambda: Invoice.objects.all()._raw_delete("default"),
    ):
        with pytest.raises(IntegrityError) as refused, transaction.atomic():
            harm()
        assert violated_constraint(refused.value) == "invoice_append_only"
    assert the_invoice(order).total_minor == 10_600


def test_the_auditor_finds_a_missing_number() -> None:
    sold()
    assert_audit_clean()
    InvoiceCounter.objects.update(last=2)
    assert any("the counter is at 2, 1 documents" in breach for breach in audit_breaches())


def test_a_number_whose_document_was_not_committed_is_reused(monkeypatch) -> None:
    """A increments the counter to 1 and is interrupted before its commit, so B increments it from 0 to 1 as well."""
    event = make_event()
    orders = [place_order(hold(event, join(event), seats=[f"hall-A-{seat}"])) for seat in (1, 2)]

    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    for message in outbox.claim(10):
        outbox.hand_over(message)
    with monkeypatch.context() as patch:
        patch.setattr(invoices, "_invoice_document", interrupt)
        with pytest.raises(KeyboardInterrupt):
            invoices.issue(orders[0].pk)
    (paper,) = invoices.issue(orders[1].pk)
    assert paper.sequence == 1
    deliver_outbox()
    assert sorted(Invoice.objects.values_list("sequence", flat=True)) == [1, 2]
    assert_audit_clean()


def test_control_without_the_lock_two_documents_get_the_same_number() -> None:
    """Naive code reads the highest number and takes the next one. Here both threads read before either writes, so both
    take the same number, and only the constraint refuses the second document."""
    event = make_event()
    orders = [sold_to(event, seat) for seat in (1, 2)]
    first = the_invoice(orders[0])
    both_have_read = threading.Barrier(2)

    def naive(number: int) -> int:
        highest = Invoice.objects.filter(kind="invoice").order_by("-sequence").values_list("sequence", flat=True)[0]
        both_have_read.wait(timeout=10)
        Invoice.objects.create(
            kind="credit_note", series="NAIVE", year=first.year, sequence=highest + 1, number=f"naive-{number}",
            order=orders[number], refers_to=the_invoice(orders[number]), issued_at=clock.now(), currency="USD",
            total_minor=1, tax_minor=0, paper={},
        )  # fmt: skip
        return highest + 1

    outcomes = storm(2, naive)
    assert sum(isinstance(outcome.error, IntegrityError) for outcome in outcomes) == 1


def sold_to(event: EventView, seat: int) -> Order:
    return buy(hold(event, join(event), seats=[f"hall-A-{seat}"]))


@pytest.mark.slow
def test_two_hundred_orders_confirmed_at_once_are_numbered_from_1_to_200() -> None:
    """Workers deliver charges and invoices of all orders concurrently; each invoice waits for the one before it."""
    event = make_event(rows=0, general_admission=200)
    for _ in range(200):
        place_order(hold(event, join(event), ga_section="floor", ga_quantity=1))

    def work(number: int) -> int:
        delivered = 0
        while count := outbox.deliver():
            delivered += count
        return delivered

    values(storm(8, work, seconds_max=300))
    deliver_outbox()
    assert Order.objects.filter(status=Order.Status.CONFIRMED).count() == 200
    papers = Invoice.objects.order_by("sequence")
    assert [paper.sequence for paper in papers] == list(range(1, 201))
    assert [paper.issued_at for paper in papers] == sorted(paper.issued_at for paper in papers)
    assert_audit_clean()


def test_each_of_several_partial_refunds_has_a_credit_note_of_its_amount() -> None:
    """Three refunds: a returned ticket without its fee, goodwill, and the rest. Each credit note has its refund's
    amount."""
    order = sold()
    invoice, kept_minor = the_invoice(order), 250
    (first, _) = order.tickets.order_by("id")
    returns.return_by_staff(order.pk, [first.code], [], who="staff:1", why="ill")
    deliver_outbox()
    returns.give_goodwill(order.pk, 300, who="staff:1", why="a pillar")
    deliver_outbox()
    notes = list(Invoice.objects.filter(refers_to=invoice))
    assert [note.total_minor for note in notes] == [5_000, 300]
    assert [(row["description"], row["total_minor"]) for row in notes[0].paper["lines"]] == [
        ("Hall, row A, seat 1", 5_250),
        ("Not refunded", -250),
    ]
    assert notes[1].paper["lines"][0]["description"] == "Other refund"
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    credited_minor = sum(Invoice.objects.filter(refers_to=invoice).values_list("total_minor", flat=True))
    assert credited_minor == Payment.objects.get().refunded_minor
    assert credited_minor in (invoice.total_minor, invoice.total_minor - kept_minor)
    assert_audit_clean()
