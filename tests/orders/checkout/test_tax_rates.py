"""A category with its own tax rate: shown, stored, charged, and listed by rate on every invoice and credit note."""

from collections import Counter
from html import unescape

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.events.creation import EventDiffers, EventRefused
from apps.events.facade import PricePolicy
from apps.events.models import Category, Event
from apps.orders import return_quotes
from apps.orders.invoices import invoices
from apps.orders.models import Invoice, InvoiceKind, Order, Ticket
from apps.orders.returns import returns
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import buy, deliver_outbox, joined_browser
from tests.support.tiers import examples

pytestmark = pytest.mark.django_db(transaction=True)
# Seats of 50.00 at 19%, floor tickets of 25.00 at 7%, fees of 1.00 each at the ticket's rate; order fee 1.50 at 19%.
ADDED = PricePolicy(ticket_fee_minor=100, order_fee_minor=150, tax_rate=1_900, tax_included=False)
INCLUDED = PricePolicy(ticket_fee_minor=100, order_fee_minor=150, tax_rate=1_900)
SEAT, PLACE, ORDER_FEE = 6_069, 2_782, 179  # 5,100 × 1.19, 2,600 × 1.07, 150 × 1.19


def sold(policy: PricePolicy = ADDED, floor_count: int = 2) -> Order:
    event = make_event(general_admission=10, price_policy=policy, tax_rates={"Floor": 700})
    return buy(hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=floor_count))


def by_rate(paper: Invoice) -> Counter[tuple[int, str]]:
    """Return net and tax of each rate in the document."""
    sums = Counter[tuple[int, str]]()
    for tax in paper.paper["taxes"]:
        sums[tax["rate"], "net"] += tax["net_minor"]
        sums[tax["rate"], "tax"] += tax["tax_minor"]
    return sums


def codes(order: Order) -> list[str]:
    return list(Ticket.objects.filter(order=order, voided_at=None).order_by("id").values_list("code", flat=True))


def papers(order: Order) -> tuple[Invoice, list[Invoice]]:
    return (
        Invoice.objects.get(order=order, kind=InvoiceKind.INVOICE),
        list(Invoice.objects.filter(order=order, kind=InvoiceKind.CREDIT_NOTE)),
    )


def test_each_ticket_is_charged_and_stored_at_its_categorys_rate() -> None:
    order = sold()
    frozen = list(order.lines.values_list("tax_rate", "tax_minor", "total_minor"))
    assert frozen == [(1_900, 969, SEAT), (700, 182, PLACE), (700, 182, PLACE), (1_900, 29, ORDER_FEE)]
    assert order.total_minor == SEAT + 2 * PLACE + ORDER_FEE
    Category.objects.update(tax_rate=0)
    assert list(order.lines.values_list("tax_rate", "tax_minor", "total_minor")) == frozen
    assert_audit_clean()


def test_the_invoice_lists_tax_by_rate() -> None:
    order = sold()
    invoice, _ = papers(order)
    assert invoice.paper["taxes"] == [
        {"rate": 1_900, "net_minor": 5_250, "tax_minor": 998},
        {"rate": 700, "net_minor": 5_200, "tax_minor": 364},
    ]
    assert invoice.tax_minor == 998 + 364


def test_a_refund_is_credited_at_the_rate_of_the_sale() -> None:
    """A ticket at 7% is refunded without its fee, which stays at 7%."""
    order = sold()
    place = Ticket.objects.get(order=order, code=codes(order)[1])
    assert place.order_line.tax_rate == 700
    returns.return_by_staff(order.pk, [place.code], (), who="staff:7", why="")
    deliver_outbox()
    _, (note,) = papers(order)
    assert note.total_minor == PLACE - 107
    assert [tax["rate"] for tax in note.paper["taxes"]] == [700]
    assert note.tax_minor == 182 - 7
    assert_audit_clean()


def test_goodwill_is_credited_at_the_rates_that_the_order_owes() -> None:
    order = sold()
    returns.give_goodwill(order.pk, 1_000, who="staff:7", why="")
    deliver_outbox()
    _, (note,) = papers(order)
    assert note.total_minor == 1_000
    shares = {row["tax_rate"]: row["total_minor"] for row in note.paper["lines"]}
    assert shares == {1_900: 529, 700: 471}  # As 6,248 to 5,564.


@pytest.mark.slow
@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_all_credit_notes_together_equal_the_invoice_at_every_rate(data: st.DataObject) -> None:
    """Tickets are returned in any order, with or without fees, with goodwill in between: every rate ends at zero."""
    Event.objects.filter(slug="concert").update(slug=f"concert-{Event.objects.count()}")
    order = sold(data.draw(st.sampled_from([ADDED, INCLUDED])), floor_count=3)
    for code in data.draw(st.permutations(codes(order))):
        if data.draw(st.booleans()):
            left = return_quotes.owed_minor(order)
            returns.give_goodwill(order.pk, data.draw(st.integers(1, min(left, 900))), who="staff:7", why="")
            invoices.issue(order.pk)
        returns.return_by_staff(order.pk, [code], [code] if data.draw(st.booleans()) else [], who="staff:7", why="")
        if data.draw(st.booleans()):
            invoices.issue(order.pk)
    order.refresh_from_db()
    left = return_quotes.owed_minor(order)
    if left:
        returns.give_goodwill(order.pk, left, who="staff:7", why="")
    deliver_outbox()
    invoice, notes = papers(order)
    assert sum((by_rate(note) for note in notes), Counter()) == by_rate(invoice)
    assert all(minor >= 0 for note in notes for minor in by_rate(note).values())
    assert_audit_clean()


def test_pages_show_full_prices_and_both_rates() -> None:
    make_event(general_admission=10, price_policy=ADDED, tax_rates={"Floor": 700})
    browser = joined_browser("concert")
    words = "7% or 19% tax"
    for path in ("/events/concert/", "/events/concert/choose?view=quantity", "/events/concert/choose?view=list"):
        page = unescape(browser.get(path).content.decode())
        assert words in page, path
        assert ("$60.69" if "list" in path else "$27.82") in page, path
    assert "$27.82" in unescape(Client().get("/").content.decode())
    assert Client().get("/api/events/concert").json()["from_price_minor"] == PLACE
    shown = {
        one["key"]: one["full_price_minor"] for one in Client().get("/events/concert/plan.json").json()["categories"]
    }
    assert shown == {"Standard": SEAT, "Floor": PLACE}


def test_the_lowest_price_is_the_lowest_including_tax() -> None:
    make_event(
        general_admission=5, price_policy=ADDED, price_minor=1_000, place_price_minor=1_050,
        tax_rates={"Floor": 0},
    )  # fmt: skip
    # 1,150 without tax against 1,100 with 19%.
    assert Client().get("/api/events/concert").json()["from_price_minor"] == 1_150
    assert Client().get("/api/events").json()["events"][0]["from_price_minor"] == 1_150


def test_a_rate_is_part_of_the_description_and_another_differs() -> None:
    make_event(general_admission=10, tax_rates={"Floor": 700})
    with pytest.raises(EventDiffers, match="tax of “Floor” is 700, not 800"):
        make_event(general_admission=10, tax_rates={"Floor": 800})
    with pytest.raises(EventDiffers, match="tax of “Floor” is 700, not none"):
        make_event(general_admission=10)
    with pytest.raises(EventRefused, match="not a category with tickets"):
        make_event("second", tax_rates={"Balcony": 700})
    with pytest.raises(EventRefused, match="basis points"):
        make_event("second", tax_rates={"Standard": 10_001})
    with pytest.raises(IntegrityError):
        Category.objects.update(tax_rate=10_001)


def test_the_command_accepts_a_rate_for_a_category() -> None:
    arguments = (
        "create_event", "talk", "--name", "Talk", "--venue", "Hall", "--timezone", "UTC",
        "--starts", "2100-01-01T20:00", "--currency", "EUR", "--general-admission", "Floor:10:1000",
        "--tax", "included=1900",
    )  # fmt: skip
    call_command(*arguments, "--category-tax", "Floor:700")
    assert Category.objects.get().tax_rate == 700
    with pytest.raises(CommandError, match="must be CATEGORY:BP"):
        call_command(*arguments, "--category-tax", "700")
