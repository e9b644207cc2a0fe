"""What a promo code takes off: pure, on integers. `events.calculate_bill` asks it; fees and tax come on what is
left."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.events import facade as events
from apps.orders.models import PromoCode

_BASIS_POINTS = 10_000


@dataclass(frozen=True, slots=True)
class Discount:
    """What a code takes off the places of one reservation.

    A percentage comes off each place by itself, rounded half up, so that a place costs the same alone and among others.
    An amount per order is spread over its places as their prices are to each other, to the last unit by the largest
    remainder. Nothing ever costs less than nothing.
    """

    kind: str
    value: int
    """Basis points of a percentage; else minor units."""
    places_max: int | None = None
    """So many places at most, the dearest first, of equal ones the first."""
    line_ids: frozenset[int] | None = None
    """The reservation's lines that it concerns; None: all."""

    def discounts(self, places: Sequence[events.BillItem], left_minor: Sequence[int]) -> Sequence[int]:
        """How much comes off each place, of what is left of its price."""
        chosen = [at for at, place in enumerate(places) if self.line_ids is None or place.line_id in self.line_ids]
        chosen = sorted(chosen, key=lambda at: -left_minor[at])[: self.places_max]
        lefts = [left_minor[at] for at in chosen]
        off = [0] * len(places)
        for at, minor in zip(chosen, self._discount_each(lefts), strict=True):
            off[at] = minor
        return off

    def _discount_each(self, lefts: list[int]) -> list[int]:
        if self.kind == PromoCode.Kind.PERCENT:
            return [(2 * left * self.value + _BASIS_POINTS) // (2 * _BASIS_POINTS) for left in lefts]
        if self.kind == PromoCode.Kind.PER_TICKET:
            return [min(self.value, left) for left in lefts]
        return events.allocate_amount(min(self.value, sum(lefts)), lefts)
