"""A promo code's discount: pure integer arithmetic. `events.calculate_bill` calls it; fees and tax are calculated on
the discounted prices."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.events import facade as events
from apps.orders.models import PromoCode

_BASIS_POINTS = 10_000


@dataclass(frozen=True, slots=True)
class Discount:
    """The discount of a code on the items of one reservation.

    A percentage is taken off each item separately, rounded half up, so that an item costs the same alone and among
    others. An amount per order is allocated in proportion to the items' prices, the remaining units by largest
    remainder. No price falls below 0.
    """

    kind: str
    value: int
    """Basis points of a percentage; else minor units."""
    places_max: int | None = None
    """Maximum number of items, the most expensive first; items of equal price keep their order."""
    line_ids: frozenset[int] | None = None
    """The lines of the reservation that the discount applies to; None for all."""

    def discounts(self, items: Sequence[events.BillItem], left_minor: Sequence[int]) -> Sequence[int]:
        """Return each item's discount, calculated from what is left of its price."""
        chosen = [index for index, item in enumerate(items) if self.line_ids is None or item.line_id in self.line_ids]
        chosen = sorted(chosen, key=lambda index: -left_minor[index])[: self.places_max]
        lefts = [left_minor[index] for index in chosen]
        amounts = [0] * len(items)
        for index, minor in zip(chosen, self._discount_each(lefts), strict=True):
            amounts[index] = minor
        return amounts

    def _discount_each(self, lefts: list[int]) -> list[int]:
        if self.kind == PromoCode.Kind.PERCENT:
            return [(2 * left * self.value + _BASIS_POINTS) // (2 * _BASIS_POINTS) for left in lefts]
        if self.kind == PromoCode.Kind.PER_TICKET:
            return [min(self.value, left) for left in lefts]
        return events.allocate_amount(min(self.value, sum(lefts)), lefts)
