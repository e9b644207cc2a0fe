"""Promo codes in a sale: what one would take off, its use with the order, and the end of that use with the order's.

The limits are counted under the code's row, a cap row in the order of locks: after the reservation and the address's
purchase cap, before seats. A use itself is written under its order's lock alone, so that an order that ends, with seats
locked by then, never waits for a code.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db.transactions import require_transaction
from apps.orders.errors import CodeLimitReached, CodeNotValid, CodeUnknown, CodeUsedUp
from apps.orders.locks import lock_code
from apps.orders.models import CodeUse, Order, PromoCode
from apps.orders.promo_codes.discounts import Discount
from apps.reservations import facade as reservations


@dataclass(frozen=True, slots=True)
class Terms:
    """What a code takes off whatever is held."""

    kind: str
    value: int
    places_max: int | None
    category_keys: frozenset[str]
    """Empty: all."""

    def of(self, reservation: reservations.ReservationView) -> Discount:
        line_ids = None
        if self.category_keys:
            held = [(line.line_id, line.category) for line in reservation.seats]
            held += [(line.line_id, line.category) for line in reservation.general_admission]
            line_ids = frozenset(line_id for line_id, category in held if category in self.category_keys)
        return Discount(self.kind, self.value, self.places_max, line_ids)


@dataclass(frozen=True, slots=True)
class Offer:
    """A code as it was read before the transaction that uses it: what the bill is made with."""

    code_id: int
    code: str
    terms: Terms
    discount: Discount


def find_offer(reservation: reservations.ReservationView, code: str) -> Offer | None:
    """What this code would take off the reservation, whether or not it may still be used; None for an unknown one.
    `code` is normal."""
    found = PromoCode.objects.filter(event_id=reservation.event_id, code=code, is_active=True).first()
    if found is None:
        return None
    terms = _read_terms(found)
    return Offer(found.pk, found.code, terms, terms.of(reservation))


def bill_reservation(reservation: reservations.ReservationView, offer: Offer | None) -> events.Bill:
    """What the reservation comes to, with what the code takes off its places before fees and tax."""
    discounts = [] if offer is None else [offer.discount]
    return events.calculate_bill(reservation.places, reservation.price_policy, discounts)


def check_offer(
    reservation: reservations.ReservationView, offer: Offer | None, bill: events.Bill, *, email: str = ""
) -> None:
    """Returns if the code may be used now, as far as can be told without a lock. Raises CodeRefused."""
    if offer is None:
        raise CodeUnknown
    _check_limits(PromoCode.objects.get(pk=offer.code_id), offer, bill, reservation.buyer, email)


def use_code(order: Order, offer: Offer | None, bill: events.Bill) -> None:
    """The new order has used the code, once its transaction commits. Joins that transaction, which holds the order's
    lock and the reservation's, and has not locked a seat. Raises CodeRefused: nothing is placed then.

    Of fifty with a code of ten uses each waits here for the one before, counts what that one committed, and ten find
    room. A code without limits is nobody's to wait for.
    """
    require_transaction()
    if offer is None:
        raise CodeUnknown
    code = PromoCode.objects.get(pk=offer.code_id)
    if code.is_limited:
        code = lock_code(code.pk)
    _check_limits(code, offer, bill, order.buyer, order.email)
    CodeUse.objects.create(
        order=order,
        code=code,
        buyer=order.buyer,
        email=order.email,
        discount_minor=bill.discount_minor,
        used_at=clock.now(),
    )


def release(order: Order, now: datetime) -> None:
    """The ended order's use is somebody else's to have; once more changes nothing. Joins the caller's transaction,
    which holds the order's lock."""
    require_transaction()
    CodeUse.objects.filter(order=order, released_at=None).update(released_at=now, honoured_at=None)


def restore_use(order: Order, now: datetime) -> None:
    """An order that had ended and now stands has its use again, also of a code that others have used up meanwhile: its
    buyer paid the price that was promised. Joins the caller's transaction, which holds the order's lock."""
    require_transaction()
    CodeUse.objects.exclude(released_at=None).filter(order=order).update(released_at=None, honoured_at=now)


def count_uses(code: PromoCode) -> int:
    """Uses that stand; exact under the code's lock."""
    return code.uses.filter(released_at=None).count()


def _check_limits(code: PromoCode, offer: Offer, bill: events.Bill, buyer: str, email: str) -> None:
    now = clock.now()
    if not code.is_active:
        raise CodeUnknown
    if code.valid_from is not None and now < code.valid_from:
        raise CodeNotValid("This code is not valid yet.")
    if code.valid_until is not None and now >= code.valid_until:
        raise CodeNotValid("This code is no longer valid.")
    if _read_terms(code) != offer.terms:
        raise CodeNotValid("This code has just been changed; try it again.")
    if not bill.discount_minor:
        raise CodeNotValid("This code takes nothing off what you hold.")
    if code.uses_max is not None and count_uses(code) >= code.uses_max:
        raise CodeUsedUp
    cap = code.uses_per_buyer_max
    if cap is not None:
        own = Q(buyer=buyer) | Q(email=email) if email else Q(buyer=buyer)
        if code.uses.filter(own, released_at=None).count() >= cap:
            raise CodeLimitReached(cap=cap)


def _read_terms(code: PromoCode) -> Terms:
    value = code.rate if code.kind == PromoCode.Kind.PERCENT else code.amount_minor
    return Terms(code.kind, value, code.places_max, frozenset(code.categories.values_list("key", flat=True)))
