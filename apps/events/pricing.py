"""What places cost: one pure function on integers, asked by every page that says a total, and by checkout, which
freezes its answer into an order.

Every line is rounded by itself, half up, to the currency's smallest unit. So a place costs the same alone and among
others, in whatever order they are named; a total is the sum of what was shown beside each place; and what goes back for
one place is what was paid for it. Nothing is left over to be spread, but an amount that comes off a whole order:
`allocate_amount` does that to the last unit.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from apps.kernel.formatting import format_money

BASIS_POINTS = 10_000
"""Rates are in basis points: 1,900 is 19 percent."""
RATE_MAX = BASIS_POINTS
FEE_MINOR_MAX = 10**9
PLACE, FEE = "place", "fee"


@dataclass(frozen=True, slots=True)
class PricePolicy:
    """What an event charges beside its categories' prices. The same for everybody, and fixed once the event is
    published: wherever a price is shown it can be the whole one."""

    ticket_fee_minor: int = 0
    """On each place,"""
    ticket_fee_rate: int = 0
    """and so many basis points of its price on top."""
    order_fee_minor: int = 0
    """Once per order."""
    waives_fees_when_free: bool = True
    """What costs nothing bears no fee."""
    tax_rate: int = 0
    """On what has no rate of its own, and on the order's fee."""
    tax_included: bool = True
    """Whether prices and fees have the tax in them; else it is added."""

    def place_fee_minor(self, price_minor: int) -> int:
        """The fee on a place of this price."""
        if not price_minor and self.waives_fees_when_free:
            return 0
        return self.ticket_fee_minor + _half_up(price_minor * self.ticket_fee_rate, BASIS_POINTS)

    def taxed(self, amount_minor: int) -> tuple[int, int]:
        """The tax on an amount, and what is to be paid for it: the amount itself where it has the tax in it."""
        if self.tax_included:
            return _half_up(amount_minor * self.tax_rate, BASIS_POINTS + self.tax_rate), amount_minor
        tax_minor = _half_up(amount_minor * self.tax_rate, BASIS_POINTS)
        return tax_minor, amount_minor + tax_minor

    def with_tax_rate(self, tax_rate: int | None) -> "PricePolicy":
        """The same for a place whose category is taxed at this rate, its fee with it; None: at the event's."""
        return self if tax_rate is None or tax_rate == self.tax_rate else replace(self, tax_rate=tax_rate)

    def place_total_minor(self, price_minor: int, tax_rate: int | None = None) -> int:
        """What a place of this price and its category's rate comes to, its fee and the tax on both in it."""
        return self.with_tax_rate(tax_rate).taxed(price_minor + self.place_fee_minor(price_minor))[1]

    @property
    def order_fee_total_minor(self) -> int:
        """What the order's fee comes to, the tax on it in it."""
        return self.taxed(self.order_fee_minor)[1]

    def words(self, currency: str, tax_rates: Collection[int | None] = ()) -> str:
        """What prices shown with `place_total_minor` have in them, and what they have not; empty for nothing.
        `tax_rates`: those of the categories in sight."""
        fees = []
        if self.ticket_fee_minor:
            fees.append(format_money(self.ticket_fee_minor, currency))
        if self.ticket_fee_rate:
            fees.append(f"{percent(self.ticket_fee_rate)} of the price")
        parts = []
        if fees:
            parts.append(f"a fee of {' and '.join(fees)} per ticket")
        rates = sorted({self.tax_rate if rate is None else rate for rate in tax_rates or (None,)})
        if any(rates):
            parts.append(f"{' or '.join(map(percent, rates))} tax")
        said = f"Prices include {' and '.join(parts)}." if parts else ""
        if self.order_fee_minor:
            said = (
                f"{said} A fee of {format_money(self.order_fee_total_minor, currency)} is added once per order.".strip()
            )
        return said


DEFAULT_PRICE_POLICY = PricePolicy()


@dataclass(frozen=True, slots=True)
class BillItem:
    """One place that somebody wants, at its face price. `line_id` is the reservation's line, `place` from 1 in it."""

    line_id: int
    place: int
    description: str
    category: str
    price_minor: int
    tax_rate: int | None = None
    """Its category's; None: the event's."""


@dataclass(frozen=True, slots=True)
class BillLine:
    """A place or a fee, and what it comes to."""

    kind: str
    description: str
    price_minor: int
    tax_included: bool
    tax_rate: int
    tax_minor: int
    total_minor: int
    category: str = ""
    discount_minor: int = 0
    fee_minor: int = 0
    """Of a place, beside its price."""
    reservation_line_id: int | None = None
    place: int | None = None
    is_canceled: bool = False
    """Given back since."""

    @property
    def net_minor(self) -> int:
        return self.total_minor - self.tax_minor

    def contract(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "description": self.description,
            "category": self.category,
            "price_minor": self.price_minor,
            "discount_minor": self.discount_minor,
            "fee_minor": self.fee_minor,
            "tax_rate": self.tax_rate,
            "tax_minor": self.tax_minor,
            "total_minor": self.total_minor,
            "canceled": self.is_canceled,
        }


@dataclass(frozen=True, slots=True)
class TaxPart:
    """The tax of one rate within a bill."""

    rate: int
    included: bool
    net_minor: int
    tax_minor: int

    @property
    def percent(self) -> str:
        return percent(self.rate)


@dataclass(frozen=True, slots=True)
class Bill:
    """What all of it comes to. Its sums are those of its lines: nothing is computed twice."""

    lines: tuple[BillLine, ...]

    @property
    def places_minor(self) -> int:
        """Face prices."""
        return sum(line.price_minor for line in self.lines if line.kind == PLACE)

    @property
    def discount_minor(self) -> int:
        return sum(line.discount_minor for line in self.lines)

    @property
    def fees_minor(self) -> int:
        """Those of places and that of the order."""
        return sum(line.fee_minor if line.kind == PLACE else line.price_minor for line in self.lines)

    @property
    def tax_minor(self) -> int:
        """Within the total, included or added."""
        return sum(line.tax_minor for line in self.lines)

    @property
    def tax_added_minor(self) -> int:
        """What the tax adds to prices and fees."""
        return sum(line.tax_minor for line in self.lines if not line.tax_included)

    @property
    def total_minor(self) -> int:
        return sum(line.total_minor for line in self.lines)

    @property
    def taxes(self) -> list[TaxPart]:
        """One part for each rate, highest first; none for what is not taxed."""
        rates = sorted({(line.tax_rate, line.tax_included) for line in self.lines if line.tax_rate}, reverse=True)
        return [
            TaxPart(
                rate,
                included,
                sum(line.net_minor for line in self.lines if _is_of(line, rate, included)),
                sum(line.tax_minor for line in self.lines if _is_of(line, rate, included)),
            )
            for rate, included in rates
        ]

    @property
    def parts(self) -> list[tuple[str, int]]:
        """What the total is made of, in words and minor units; empty where that is the prices alone."""
        if not (self.discount_minor or self.fees_minor or self.tax_added_minor):
            return []
        added = [(f"Tax, {tax.percent}", tax.tax_minor) for tax in self.taxes if not tax.included]
        rows = [("Tickets", self.places_minor), ("Discount", -self.discount_minor), ("Fees", self.fees_minor), *added]
        return [(label, minor) for label, minor in rows if minor]

    @property
    def taxes_within(self) -> list[tuple[str, int]]:
        """Included tax, in words and minor units."""
        return [(f"Of that tax, {tax.percent}", tax.tax_minor) for tax in self.taxes if tax.included]

    def contract(self) -> dict[str, Any]:
        """The bill as the public API shows it."""
        return {
            "lines": [line.contract() for line in self.lines],
            "places_minor": self.places_minor,
            "discount_minor": self.discount_minor,
            "fees_minor": self.fees_minor,
            "tax_minor": self.tax_minor,
            "tax_added_minor": self.tax_added_minor,
            "total_minor": self.total_minor,
        }


def _is_of(line: BillLine, rate: int, included: bool) -> bool:
    return (line.tax_rate, line.tax_included) == (rate, included)


class DiscountCode(Protocol):
    """What lowers prices."""

    def discounts(self, places: Sequence[BillItem], left_minor: Sequence[int]) -> Sequence[int]:
        """How much comes off each place, of what other codes left of its price; never more than that."""


def calculate_bill(places: Iterable[BillItem], policy: PricePolicy, codes: Sequence[DiscountCode] = ()) -> Bill:
    """The bill for these places: discounts come off the face price, fees on top of what is left, tax last.

    Where the policy waives fees on what is free, a place that costs nothing bears none, nor does an order whose places
    all cost nothing.
    """
    wanted = list(places)
    left = [place.price_minor for place in wanted]
    for code in codes:
        off = code.discounts(wanted, left)
        assert all(0 <= less <= rest for less, rest in zip(off, left, strict=True))
        left = [rest - less for less, rest in zip(off, left, strict=True)]
    lines = [_place_line(place, rest, policy) for place, rest in zip(wanted, left, strict=True)]
    if policy.order_fee_minor and wanted and (any(left) or not policy.waives_fees_when_free):
        lines.append(_order_fee(policy))
    return Bill(tuple(lines))


def _place_line(place: BillItem, left_minor: int, policy: PricePolicy) -> BillLine:
    policy = policy.with_tax_rate(place.tax_rate)
    fee_minor = policy.place_fee_minor(left_minor)
    tax_minor, total_minor = policy.taxed(left_minor + fee_minor)
    return BillLine(
        kind=PLACE,
        description=place.description,
        category=place.category,
        reservation_line_id=place.line_id,
        place=place.place,
        price_minor=place.price_minor,
        discount_minor=place.price_minor - left_minor,
        fee_minor=fee_minor,
        tax_included=policy.tax_included,
        tax_rate=policy.tax_rate,
        tax_minor=tax_minor,
        total_minor=total_minor,
    )


def _order_fee(policy: PricePolicy) -> BillLine:
    tax_minor, total_minor = policy.taxed(policy.order_fee_minor)
    return BillLine(
        kind=FEE,
        description="Order fee",
        price_minor=policy.order_fee_minor,
        tax_included=policy.tax_included,
        tax_rate=policy.tax_rate,
        tax_minor=tax_minor,
        total_minor=total_minor,
    )


def allocate_amount(amount_minor: int, weights: Sequence[int]) -> list[int]:
    """The amount in parts as the weights are to each other, to the last unit: each has its share rounded down, and
    what is left goes one by one to the largest remainders, of equal ones to the first."""
    whole = sum(weights)
    assert amount_minor >= 0
    assert whole or not amount_minor
    if not whole:
        return [0] * len(weights)
    parts = [amount_minor * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda at: -(amount_minor * weights[at] % whole))
    for at in by_remainder[: amount_minor - sum(parts)]:
        parts[at] += 1
    return parts


def percent(rate: int) -> str:
    """Basis points as one reads them: 750 is "7.5%"."""
    return f"{rate / 100:g}%"


def _half_up(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)
