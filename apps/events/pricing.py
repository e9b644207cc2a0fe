"""Price calculation: pure functions on integers, used by every page that shows a total and by checkout, which freezes
the result into an order.

Every line is rounded separately, half up, to the currency's smallest unit. So a ticket costs the same alone and among
others, in any order; a total is the sum of the amounts shown beside each ticket; and the refund of one ticket is what
was paid for it. Only an amount that concerns a whole order has to be split: `allocate_amount` does so to the last unit.
"""

from collections import Counter
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
    """An event's charges besides its ticket prices. They are the same for every buyer and fixed at publication,
    so that every price can be shown with its charges."""

    ticket_fee_minor: int = 0
    """Per ticket."""
    ticket_fee_rate: int = 0
    """Per ticket, in basis points of its price, on top of `ticket_fee_minor`."""
    order_fee_minor: int = 0
    """Once per order."""
    waives_fees_when_free: bool = True
    """Free tickets bear no fee."""
    tax_rate: int = 0
    """In basis points; for tickets without a rate of their own, and for the order fee."""
    tax_included: bool = True
    """Whether prices and fees include the tax; otherwise it is added."""

    def place_fee_minor(self, price_minor: int) -> int:
        """Return the fee on a ticket of this price."""
        if not price_minor and self.waives_fees_when_free:
            return 0
        return self.ticket_fee_minor + _half_up(price_minor * self.ticket_fee_rate, BASIS_POINTS)

    def taxed(self, amount_minor: int) -> tuple[int, int]:
        """Return the tax on an amount and the amount payable, which is the amount itself if it includes the tax."""
        if self.tax_included:
            return _half_up(amount_minor * self.tax_rate, BASIS_POINTS + self.tax_rate), amount_minor
        tax_minor = _half_up(amount_minor * self.tax_rate, BASIS_POINTS)
        return tax_minor, amount_minor + tax_minor

    def with_tax_rate(self, tax_rate: int | None) -> "PricePolicy":
        """Return the policy with the tax rate of a ticket's category, also for its fee; None: the event's rate."""
        return self if tax_rate is None or tax_rate == self.tax_rate else replace(self, tax_rate=tax_rate)

    def place_total_minor(self, price_minor: int, tax_rate: int | None = None) -> int:
        """Return what a ticket of this price and tax rate costs, with its fee and the tax on both."""
        return self.with_tax_rate(tax_rate).taxed(price_minor + self.place_fee_minor(price_minor))[1]

    @property
    def order_fee_total_minor(self) -> int:
        """The order fee with its tax."""
        return self.taxed(self.order_fee_minor)[1]

    def words(self, currency: str, tax_rates: Collection[int | None] = ()) -> str:
        """Describe what the prices from `place_total_minor` include and exclude; empty if nothing applies. `tax_rates`:
        those of the categories shown."""
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
        text = f"Prices include {' and '.join(parts)}." if parts else ""
        if self.order_fee_minor:
            fee = format_money(self.order_fee_total_minor, currency)
            text = f"{text} A fee of {fee} is added once per order.".strip()
        return text


DEFAULT_PRICE_POLICY = PricePolicy()


@dataclass(frozen=True, slots=True)
class BillItem:
    """A ticket to be bought, at face price. `line_id` is the reservation's line, `place` counts from 1 within it."""

    line_id: int
    place: int
    description: str
    category: str
    price_minor: int
    tax_rate: int | None = None
    """The rate of the ticket's category; None: the event's rate."""


@dataclass(frozen=True, slots=True)
class BillLine:
    """A ticket or a fee, and its amounts."""

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
    """The fee of a ticket, in addition to its price."""
    reservation_line_id: int | None = None
    place: int | None = None
    is_canceled: bool = False
    """Canceled after the sale."""

    @property
    def shown_category(self) -> str:
        """The category, unless the description begins with its name: a section's only price."""
        is_repeated = self.description == self.category or self.description.startswith(f"{self.category},")
        return "" if is_repeated else self.category

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
class Bill:
    """A bill. Its sums are the sums of its lines."""

    lines: tuple[BillLine, ...]

    @property
    def places_minor(self) -> int:
        """Sum of face prices."""
        return sum(line.price_minor for line in self.lines if line.kind == PLACE)

    @property
    def discount_minor(self) -> int:
        return sum(line.discount_minor for line in self.lines)

    @property
    def fees_minor(self) -> int:
        """Ticket fees and the order fee."""
        return sum(line.fee_minor if line.kind == PLACE else line.price_minor for line in self.lines)

    @property
    def tax_minor(self) -> int:
        """Tax within the total, included or added."""
        return sum(line.tax_minor for line in self.lines)

    @property
    def tax_added_minor(self) -> int:
        """Tax on top of prices and fees."""
        return sum(line.tax_minor for line in self.lines if not line.tax_included)

    @property
    def total_minor(self) -> int:
        return sum(line.total_minor for line in self.lines)

    @property
    def taxes(self) -> list[tuple[int, bool, int]]:
        """Each rate above 0, whether prices include it, and the tax in minor units; the highest rate first."""
        sums: Counter[tuple[int, bool]] = Counter()
        for line in self.lines:
            if line.tax_rate:
                sums[line.tax_rate, line.tax_included] += line.tax_minor
        return sorted(((*rate, tax_minor) for rate, tax_minor in sums.items()), reverse=True)

    @property
    def parts(self) -> list[tuple[str, int]]:
        """The parts of the total as labels and minor units; empty if the total is only the sum of prices."""
        if not (self.discount_minor or self.fees_minor or self.tax_added_minor):
            return []
        added = [(f"Tax, {percent(rate)}", minor) for rate, is_included, minor in self.taxes if not is_included]
        rows = [("Tickets", self.places_minor), ("Discount", -self.discount_minor), ("Fees", self.fees_minor), *added]
        return [(label, minor) for label, minor in rows if minor]

    @property
    def taxes_within(self) -> list[tuple[str, int]]:
        """Included taxes as labels and minor units."""
        return [(f"Includes tax, {percent(rate)}", minor) for rate, is_included, minor in self.taxes if is_included]

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


class DiscountCode(Protocol):
    """A code that lowers prices."""

    def discounts(self, items: Sequence[BillItem], left_minor: Sequence[int]) -> Sequence[int]:
        """Return the discount on each item, at most `left_minor`, the rest of its price after earlier codes."""


def calculate_bill(items: Iterable[BillItem], policy: PricePolicy, codes: Sequence[DiscountCode] = ()) -> Bill:
    """Return the bill: discounts come off the face price, fees are added to the rest, tax comes last.

    If the policy waives fees on free tickets, such a ticket bears none, and neither does an order of only such tickets.
    """
    items = list(items)
    left = [item.price_minor for item in items]
    for code in codes:
        discounts = code.discounts(items, left)
        assert all(0 <= discount <= rest for discount, rest in zip(discounts, left, strict=True))
        left = [rest - discount for discount, rest in zip(discounts, left, strict=True)]
    lines = [_place_line(item, rest, policy) for item, rest in zip(items, left, strict=True)]
    if policy.order_fee_minor and items and (any(left) or not policy.waives_fees_when_free):
        lines.append(_order_fee(policy))
    return Bill(tuple(lines))


def _place_line(item: BillItem, left_minor: int, policy: PricePolicy) -> BillLine:
    policy = policy.with_tax_rate(item.tax_rate)
    fee_minor = policy.place_fee_minor(left_minor)
    tax_minor, total_minor = policy.taxed(left_minor + fee_minor)
    return BillLine(
        kind=PLACE,
        description=item.description,
        category=item.category,
        reservation_line_id=item.line_id,
        place=item.place,
        price_minor=item.price_minor,
        discount_minor=item.price_minor - left_minor,
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
    """Split the amount in proportion to the weights, to the last unit: shares are rounded down, and the largest
    remainders get one remaining unit each; of equal remainders, the first."""
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
    """Return basis points as a percentage: 750 is "7.5%"."""
    return f"{rate / 100:g}%"


def _half_up(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)
