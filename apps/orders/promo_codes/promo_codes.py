"""Promo codes in a sale: find a code's offer, use it with an order, release the use when the order ends.

A code's uses are counted under its row lock, which comes after the locks of the reservation and the address's purchase
cap, and before seats. Releasing or restoring a use takes only the order's lock: the transaction has locked seats by
then and must not wait for a code.
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
    """A code's discount terms, independent of a reservation."""

    kind: str
    value: int
    places_max: int | None
    category_keys: frozenset[str]
    """Empty: all categories."""

    def of(self, reservation: reservations.ReservationView) -> Discount:
        line_ids = None
        if self.category_keys:
            held = [(line.line_id, line.category) for line in reservation.seats]
            held += [(line.line_id, line.category) for line in reservation.general_admission]
            line_ids = frozenset(line_id for line_id, category in held if category in self.category_keys)
        return Discount(self.kind, self.value, self.places_max, line_ids)


@dataclass(frozen=True, slots=True)
class Offer:
    """A code and its discount, as read for the bill before the transaction that uses the code."""

    code_id: int
    terms: Terms
    discount: Discount


def find_offer(reservation: reservations.ReservationView, code: str) -> Offer | None:
    """Return this code's discount on the reservation, whether or not its limits allow another use; None for an unknown
    code. `code` is in canonical form."""
    found = PromoCode.objects.filter(event_id=reservation.event_id, code=code, is_active=True).first()
    if found is None:
        return None
    terms = _read_terms(found)
    return Offer(found.pk, terms, terms.of(reservation))


def bill_reservation(reservation: reservations.ReservationView, offer: Offer | None) -> events.Bill:
    """Return the reservation's bill, with the code's discount taken off before fees and tax."""
    discounts = [] if offer is None else [offer.discount]
    return events.calculate_bill(reservation.bill_items, reservation.price_policy, discounts)


def check_offer(
    reservation: reservations.ReservationView, offer: Offer | None, bill: events.Bill, *, email: str = ""
) -> None:
    """Check without a lock that the code may be used now. Raises CodeRefused."""
    if offer is None:
        raise CodeUnknown
    _check_limits(PromoCode.objects.get(pk=offer.code_id), offer, bill, reservation.buyer, email)


def used_code(order: Order) -> str:
    """Return the code that the order uses; empty for none. Exact under the order's lock."""
    return CodeUse.objects.filter(order=order).values_list("code__code", flat=True).first() or ""


def change_use(order: Order, code: str, offer: Offer | None, bill: events.Bill) -> None:
    """Record that the unpaid order uses this code instead of its code; empty: none. Joins the caller's transaction, as
    for `use_code`. The former code's use is free for other orders after the commit. Raises CodeRefused."""
    require_transaction()
    CodeUse.objects.filter(order=order).delete()
    if code:
        use_code(order, offer, bill)


def use_code(order: Order, offer: Offer | None, bill: events.Bill) -> None:
    """Record the open order's use of the code. Joins a transaction that holds the order's lock and the reservation's,
    and has not locked a seat. Raises CodeRefused; the caller's transaction is then rolled back.

    If fifty checkouts use a code with ten uses at once, each waits here for the earlier ones to commit, then counts
    their uses, and ten succeed. A code without limits is not locked.
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
    """Release the ended order's use of its code, so that another order can use it. Idempotent. Joins the caller's
    transaction, which holds the order's lock."""
    require_transaction()
    CodeUse.objects.filter(order=order, released_at=None).update(released_at=now, honoured_at=None)


def restore_use(order: Order, now: datetime) -> None:
    """Restore the code use of an order that had ended and is now confirmed, even if the code was used up meanwhile: the
    buyer paid the discounted price. Joins the caller's transaction, which holds the order's lock."""
    require_transaction()
    CodeUse.objects.exclude(released_at=None).filter(order=order).update(released_at=None, honoured_at=now)


def count_uses(code: PromoCode) -> int:
    """Return the number of unreleased uses. The number is exact under the code's lock."""
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
        raise CodeNotValid("This code has just changed. Try again.")
    if not bill.discount_minor:
        raise CodeNotValid("This code does not apply to your tickets.")
    if code.uses_max is not None and count_uses(code) >= code.uses_max:
        raise CodeUsedUp
    cap = code.uses_per_buyer_max
    if cap is not None:
        own = Q(buyer=buyer)
        if email:
            # Unpaid orders of others do not count: any visitor can type any address.
            own |= Q(email=email, order__status__in=Order.STANDING)
        if code.uses.filter(own, released_at=None).count() >= cap:
            raise CodeLimitReached(cap=cap)


def _read_terms(code: PromoCode) -> Terms:
    value = code.rate if code.kind == PromoCode.Kind.PERCENT else code.amount_minor
    return Terms(code.kind, value, code.places_max, frozenset(code.categories.values_list("key", flat=True)))
