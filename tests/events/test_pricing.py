"""Price calculation: pure functions on integers."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.events.pricing import (
    DEFAULT_PRICE_POLICY,
    FEE,
    PLACE,
    Bill,
    BillItem,
    PricePolicy,
    allocate_amount,
    calculate_bill,
    percent,
)

amounts = st.integers(0, 10**12)
rates = st.integers(0, 10_000)
policies = st.builds(
    PricePolicy,
    ticket_fee_minor=st.integers(0, 10**9),
    ticket_fee_rate=rates,
    order_fee_minor=st.integers(0, 10**9),
    waives_fees_when_free=st.booleans(),
    tax_rate=rates,
    tax_included=st.booleans(),
)


@dataclass(frozen=True)
class Percent:
    """A code with a percentage off every item."""

    rate: int

    def discounts(self, items: Sequence[BillItem], left_minor: Sequence[int]) -> list[int]:
        return [rest * self.rate // 10_000 for rest in left_minor]


@dataclass(frozen=True)
class Amount:
    """A code with an amount off the whole order."""

    minor: int

    def discounts(self, items: Sequence[BillItem], left_minor: Sequence[int]) -> list[int]:
        return allocate_amount(min(self.minor, sum(left_minor)), left_minor)


codes = st.lists(st.one_of(st.builds(Percent, rates), st.builds(Amount, amounts)), max_size=3)


def tickets(*prices: int, rates: Sequence[int | None] = ()) -> list[BillItem]:
    """Return items with these prices and tax rates; those without a rate of their own have the event's."""
    own = [*rates, *([None] * len(prices))]
    return [
        BillItem(number, 1, f"ticket {number}", "Standard", minor, rate)
        for number, (minor, rate) in enumerate(zip(prices, own, strict=False), 1)
    ]


price_lists = st.lists(amounts, min_size=1, max_size=12)


@given(price_lists, policies, codes)
def test_a_total_is_the_sum_of_its_lines_and_no_part_is_negative(prices, policy, given_codes) -> None:
    bill = calculate_bill(tickets(*prices), policy, given_codes)
    assert bill.total_minor == sum(line.total_minor for line in bill.lines)
    for line in bill.lines:
        parts = (
            line.price_minor,
            line.discount_minor,
            line.fee_minor,
            line.tax_minor,
            line.total_minor - line.tax_minor,
        )
        assert min(parts) >= 0
        assert line.discount_minor <= line.price_minor
        added = 0 if line.tax_included else line.tax_minor
        assert line.total_minor == line.price_minor - line.discount_minor + line.fee_minor + added
    parts = bill.places_minor - bill.discount_minor + bill.fees_minor + bill.tax_added_minor
    assert bill.total_minor == parts
    assert bill.total_minor == bill.places_minor + sum(minor for label, minor in bill.parts if label != "Tickets")


@given(price_lists, policies, codes)
def test_the_taxes_of_all_rates_are_the_tax_of_all_lines(prices, policy, given_codes) -> None:
    bill = calculate_bill(tickets(*prices), policy, given_codes)
    assert sum(tax_minor for _, _, tax_minor in bill.taxes) == bill.tax_minor
    assert len(bill.taxes) <= 1


own_rates = st.lists(st.one_of(st.none(), rates), max_size=12)


@given(price_lists, own_rates, policies, codes)
def test_each_ticket_is_taxed_at_its_own_rate_and_the_parts_of_each_rate_sum_its_lines(
    prices, own, policy, given_codes
) -> None:
    items = tickets(*prices, rates=own)
    bill = calculate_bill(items, policy, given_codes)
    for line, item in zip(bill.lines, items, strict=False):
        rate = policy.tax_rate if item.tax_rate is None else item.tax_rate
        net = line.price_minor - line.discount_minor + line.fee_minor
        assert line.tax_rate == rate
        assert (line.tax_minor, line.total_minor) == policy.with_tax_rate(rate).taxed(net)
    assert all(line.tax_rate == policy.tax_rate for line in bill.lines if line.kind == FEE)
    assert bill.total_minor == sum(line.total_minor for line in bill.lines)
    assert bill.total_minor == bill.places_minor - bill.discount_minor + bill.fees_minor + bill.tax_added_minor
    assert [rate for rate, _, _ in bill.taxes] == sorted({line.tax_rate for line in bill.lines} - {0}, reverse=True)
    for rate, is_included, tax_minor in bill.taxes:
        assert is_included == policy.tax_included
        assert tax_minor == sum(line.tax_minor for line in bill.lines if line.tax_rate == rate)
    assert sum(tax_minor for _, _, tax_minor in bill.taxes) == bill.tax_minor


@given(price_lists, own_rates, policies)
def test_a_ticket_with_its_own_rate_costs_what_was_shown(prices, own, policy) -> None:
    items = tickets(*prices, rates=own)
    for line, item in zip(calculate_bill(items, policy).lines, items, strict=False):
        assert line.total_minor == policy.place_total_minor(item.price_minor, item.tax_rate)


@given(price_lists, policies)
def test_an_explicit_rate_equal_to_the_events_changes_nothing(prices, policy) -> None:
    same = [policy.tax_rate] * len(prices)
    assert calculate_bill(tickets(*prices, rates=same), policy) == calculate_bill(tickets(*prices), policy)


def test_the_price_note_names_every_rate_shown() -> None:
    policy = PricePolicy(tax_rate=1_900)
    assert policy.words("EUR", {None, 700}) == "Prices include 7% or 19% tax."
    assert policy.words("EUR", {700}) == "Prices include 7% tax."
    assert policy.words("EUR", {0}) == ""
    assert policy.words("EUR") == policy.words("EUR", {None}) == "Prices include 19% tax."


@given(price_lists, policies, st.randoms())
def test_the_order_of_tickets_changes_nothing(prices, policy, random) -> None:
    mixed = tickets(*prices)
    random.shuffle(mixed)
    straight, shuffled = calculate_bill(tickets(*prices), policy), calculate_bill(mixed, policy)
    assert sorted(straight.lines, key=repr) == sorted(shuffled.lines, key=repr)
    assert straight.contract() | {"lines": []} == shuffled.contract() | {"lines": []}


@given(price_lists, policies)
def test_a_ticket_costs_the_same_alone_as_among_others_and_as_it_was_shown(prices, policy) -> None:
    for line, minor in zip(calculate_bill(tickets(*prices), policy).lines, prices, strict=False):
        assert line.total_minor == policy.place_total_minor(minor)
        assert line.tax_minor == calculate_bill(tickets(minor), policy).lines[0].tax_minor


@given(price_lists, policies, codes, st.data())
def test_refunds_ticket_by_ticket_add_up_to_the_total(prices, policy, given_codes, data) -> None:
    bill = calculate_bill(tickets(*prices), policy, given_codes)
    left, remaining = bill.total_minor, list(bill.lines)
    while remaining:
        returned = remaining.pop(data.draw(st.integers(0, len(remaining) - 1)))
        left -= returned.total_minor
        assert left == Bill(tuple(remaining)).total_minor
    assert left == 0


@given(amounts, rates)
def test_included_tax_equals_the_tax_added_to_the_net(gross, rate) -> None:
    tax, total = PricePolicy(tax_rate=rate).taxed(gross)
    assert total == gross
    # Rounded half up: no other whole amount of tax is closer.
    assert abs(2 * (tax * (10_000 + rate) - gross * rate)) <= 10_000 + rate
    added, whole = PricePolicy(tax_rate=rate, tax_included=False).taxed(gross - tax)
    assert abs(whole - gross) <= 1
    assert abs(added - tax) <= 1


@given(amounts, st.lists(amounts, min_size=1, max_size=12))
def test_an_amount_is_allocated_to_its_last_unit_and_nearly_in_proportion(amount, weights) -> None:
    whole = sum(weights)
    if not whole:
        amount = 0
    parts = allocate_amount(amount, weights)
    assert sum(parts) == amount
    for part, weight in zip(parts, weights, strict=True):
        assert part >= 0
        assert weight or not part
        assert abs(part * whole - amount * weight) < max(whole, 1)


@pytest.mark.parametrize(
    ("policy", "prices", "sums"),
    [
        # face prices, fees, tax, total
        (DEFAULT_PRICE_POLICY, (5_000, 2_500), (7_500, 0, 0, 7_500)),
        (PricePolicy(tax_rate=1_900), (11_900,), (11_900, 0, 1_900, 11_900)),
        (PricePolicy(tax_rate=1_900, tax_included=False), (10_000,), (10_000, 0, 1_900, 11_900)),
        (PricePolicy(ticket_fee_minor=250, order_fee_minor=100), (5_000, 5_000), (10_000, 600, 0, 10_600)),
        (PricePolicy(ticket_fee_rate=500, tax_rate=1_000, tax_included=False), (1_010,), (1_010, 51, 106, 1_167)),
        # Half a unit is rounded up.
        (PricePolicy(tax_rate=500, tax_included=False), (10,), (10, 0, 1, 11)),
        (PricePolicy(tax_rate=500, tax_included=False), (9,), (9, 0, 0, 9)),
        # Free tickets bear no fee, alone or beside others, unless the policy charges it.
        (PricePolicy(ticket_fee_minor=250, order_fee_minor=100), (0, 5_000), (5_000, 350, 0, 5_350)),
        (PricePolicy(ticket_fee_minor=250, order_fee_minor=100), (0, 0), (0, 0, 0, 0)),
        (PricePolicy(250, 0, 100, waives_fees_when_free=False), (0, 0), (0, 600, 0, 600)),
    ],
)
def test_examples_of_policies_and_prices(policy, prices, sums) -> None:
    bill = calculate_bill(tickets(*prices), policy)
    assert (bill.places_minor, bill.fees_minor, bill.tax_minor, bill.total_minor) == sums


def test_a_discount_comes_off_before_the_fee_and_a_full_discount_removes_the_fee() -> None:
    policy = PricePolicy(ticket_fee_rate=1_000, order_fee_minor=100)
    half = calculate_bill(tickets(4_000), policy, [Percent(5_000)])
    assert (half.discount_minor, half.fees_minor, half.total_minor) == (2_000, 300, 2_300)
    assert [line.kind for line in half.lines] == [PLACE, FEE]
    assert calculate_bill(tickets(4_000), policy, [Amount(4_000)]).total_minor == 0
    assert calculate_bill(tickets(4_000), policy, [Percent(5_000), Amount(1_000)]).discount_minor == 3_000


def test_a_bill_without_tickets_is_empty() -> None:
    assert calculate_bill([], PricePolicy(order_fee_minor=100, waives_fees_when_free=False)) == Bill(())


@pytest.mark.parametrize(
    ("policy", "currency", "words"),
    [
        (DEFAULT_PRICE_POLICY, "USD", ""),
        (PricePolicy(tax_rate=1_900), "EUR", "Prices include 19% tax."),
        (PricePolicy(tax_rate=825, tax_included=False), "USD", "Prices include 8.25% tax."),
        (PricePolicy(250, 500, tax_rate=2_000), "GBP",
         "Prices include a fee of £2.50 and 5% of the price per ticket and 20% tax."),
        (PricePolicy(order_fee_minor=100), "JPY", "A fee of ¥100 is added once per order."),
        (PricePolicy(1_500, order_fee_minor=1_000, tax_rate=1_000, tax_included=False), "BHD",
         ("Prices include a fee of BHD\N{NO-BREAK SPACE}1.500 per ticket and 10% tax. "
          "A fee of BHD\N{NO-BREAK SPACE}1.100 is added once per order.")),
    ],
)  # fmt: skip
def test_the_price_note_describes_fees_and_taxes(policy, currency, words) -> None:
    assert policy.words(currency) == words


def test_rates_are_formatted_as_percentages() -> None:
    assert [percent(rate) for rate in (0, 1, 750, 825, 1_900, 10_000)] == [
        "0%",
        "0.01%",
        "7.5%",
        "8.25%",
        "19%",
        "100%",
    ]
