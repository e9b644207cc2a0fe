"""Properties of discounts, for all prices and codes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.events import facade as events
from apps.kernel.codes.code_format import InvalidCode, normal_code
from apps.orders.promo_codes.discounts import Discount

PERCENT, PER_TICKET, PER_ORDER = "percent", "per_ticket", "per_order"

prices = st.lists(st.integers(0, 10**12), min_size=1, max_size=20)
policies = st.builds(
    events.PricePolicy,
    ticket_fee_minor=st.integers(0, 10**6),
    ticket_fee_rate=st.integers(0, 10_000),
    order_fee_minor=st.integers(0, 10**6),
    waives_fees_when_free=st.booleans(),
    tax_rate=st.integers(0, 10_000),
    tax_included=st.booleans(),
)


@st.composite
def discounts(draw: st.DrawFn) -> Discount:
    kind = draw(st.sampled_from([PERCENT, PER_TICKET, PER_ORDER]))
    value = draw(st.integers(1, 10_000 if kind == PERCENT else 10**12))
    lines = draw(st.none() | st.frozensets(st.integers(1, 20)))
    return Discount(kind, value, draw(st.none() | st.integers(1, 20)), lines)


def items(of: list[int]) -> list[events.BillItem]:
    return [events.BillItem(at, 1, f"Seat {at}", "Standard", minor) for at, minor in enumerate(of, start=1)]


def discounts_of(discount: Discount, *of: int) -> list[int]:
    return list(discount.discounts(items(list(of)), list(of)))


@given(prices, discounts(), policies)
def test_a_bill_with_a_code_adds_up_and_nothing_is_below_zero(
    of: list[int], discount: Discount, policy: events.PricePolicy
) -> None:
    bill = events.calculate_bill(items(of), policy, [discount])
    plain = events.calculate_bill(items(of), policy)
    assert 0 <= bill.total_minor <= plain.total_minor
    assert bill.places_minor == sum(of)
    assert bill.total_minor == bill.places_minor - bill.discount_minor + bill.fees_minor + bill.tax_added_minor
    assert all(0 <= line.discount_minor <= line.price_minor for line in bill.lines)
    chosen = [at for at, line in enumerate(bill.lines) if line.discount_minor]
    assert len(chosen) <= (discount.places_max or len(of))
    if discount.line_ids is not None:
        assert {at + 1 for at in chosen} <= discount.line_ids


@given(prices, st.integers(1, 10**13))
def test_an_amount_off_the_order_is_allocated_completely(of: list[int], amount: int) -> None:
    spread = discounts_of(Discount(PER_ORDER, amount), *of)
    assert sum(spread) == min(amount, sum(of))
    # Each part is its share, rounded up or down.
    whole = sum(of)
    assert all(
        abs(part * whole - min(amount, whole) * minor) < whole for part, minor in zip(spread, of, strict=True) if whole
    )


@given(prices, st.integers(1, 10_000))
def test_a_percentage_off_a_ticket_is_the_same_alone_and_among_others(of: list[int], rate: int) -> None:
    discount = Discount(PERCENT, rate)
    assert discounts_of(discount, *of) == [discounts_of(discount, minor)[0] for minor in of]


@pytest.mark.parametrize(
    ("discount", "of", "expected"),
    [
        (Discount(PERCENT, 1_000), [5_000, 2_500], [500, 250]),
        (Discount(PERCENT, 1_000), [5, 4], [1, 0]),  # Half a unit is rounded up, in favor of the buyer.
        (Discount(PERCENT, 10_000), [5_000, 1], [5_000, 1]),
        (Discount(PER_TICKET, 3_000), [5_000, 2_500, 0], [3_000, 2_500, 0]),
        (Discount(PER_ORDER, 1_000), [5_000, 2_500, 2_500], [500, 250, 250]),
        (Discount(PER_ORDER, 100), [100, 100, 100], [34, 33, 33]),
        (Discount(PER_ORDER, 99_999), [5_000, 2_500], [5_000, 2_500]),
        (Discount(PER_ORDER, 100), [0, 0], [0, 0]),
        (Discount(PERCENT, 1_000, places_max=1), [2_500, 5_000, 5_000], [0, 500, 0]),
        (Discount(PER_ORDER, 100, line_ids=frozenset({2})), [5_000, 2_500], [0, 100]),
        (Discount(PER_TICKET, 100, line_ids=frozenset()), [5_000], [0]),
    ],
)
def test_examples_of_discounts(discount: Discount, of: list[int], expected: list[int]) -> None:
    assert discounts_of(discount, *of) == expected


@pytest.mark.parametrize(
    "typed", ["early bird 10", " EarlyBird10 ", "EARLYBIRD10", "ｅａｒｌｙｂｉｒｄ１０", "early\tbird\n10"]
)
def test_all_spellings_normalize_to_one_code(typed: str) -> None:
    assert normal_code(typed) == "EARLYBIRD10"


@given(st.text(max_size=60))
def test_normalization_is_idempotent(text: str) -> None:
    try:
        plain = normal_code(text)
    except InvalidCode:
        return
    assert normal_code(plain) == plain
    assert len(plain) <= 40
    assert plain.isprintable()


@pytest.mark.parametrize("typed", ["X" * 41, "A\0B", "A\N{RIGHT-TO-LEFT OVERRIDE}B", "\N{ZERO WIDTH SPACE}"])
def test_unprintable_or_too_long_text_is_not_a_code(typed: str) -> None:
    with pytest.raises(InvalidCode):
        normal_code(typed)
