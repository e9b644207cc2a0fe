"""Price a reservation, with or without a promo code, before an order is placed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.events import facade as events
from apps.kernel.db import sql
from apps.kernel.http import problems
from apps.orders.absolute_urls import absolute_url
from apps.orders.checkout.buyer_details import normalize_email, read_code
from apps.orders.models import CodeUse
from apps.orders.promo_codes import promo_codes
from apps.orders.selectors import OrderView
from apps.reservations import facade as reservations

FIELDS = ("code", "email")


@dataclass(frozen=True, slots=True)
class Quote:
    bill: events.Bill
    currency: str
    code: str = ""
    """The promo code applied to the bill; empty for none."""
    terms: events.Terms | None = None
    """What a new order must accept; None: nothing."""
    legal_links: Sequence[events.LegalLink] | None = None
    """The links to the organizer's legal pages, if they were read with the terms."""

    def contract(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "total_minor": self.bill.total_minor,
            "currency": self.currency,
            "bill": self.bill.contract(),
            "terms": None if self.terms is None else terms_contract(self.terms),
        }


def terms_contract(terms: events.Terms) -> dict[str, Any]:
    """Return the version that a checkout sends, and the pages that it names."""
    pages = [{"kind": page.kind, "url": absolute_url(page.path)} for page in terms.pages]
    return {"version": terms.version, "pages": pages}


def quote(reservation: reservations.ReservationView, order: OrderView | None, payload: Mapping[str, Any]) -> Quote:
    """Return the bill of a checkout made now, or of the existing order. For an order whose payment can be retried, a
    code in the payload, also an empty one, means the bill of a retry with that code. The quote reserves nothing: if
    other buyers use the code up first, the checkout raises CodeRefused.

    Raises Invalid, ReservationExpired, CodeRefused.
    """
    errors: dict[str, str] = {str(field)[:80]: "unknown field" for field in payload if field not in FIELDS}
    email = payload.get("email")
    if email is None:
        email = ""
    if not isinstance(email, str):
        errors["email"] = "must be a string"
    if errors:
        raise problems.Invalid(errors)
    code = read_code(payload)
    if order is not None:
        used = CodeUse.objects.filter(order=order.id).values_list("code__code", flat=True).first() or ""
        if not order.can_try_again or payload.get("code") is None or code == used:
            return Quote(order.bill, order.currency, used)
    elif not reservation.is_live:
        raise reservations.ReservationExpired
    offer = promo_codes.find_offer(reservation, code) if code else None
    bill = promo_codes.bill_reservation(reservation, offer)
    if code:
        promo_codes.check_offer(reservation, offer, bill, email=normalize_email(email) if sql.is_text(email) else "")
    if order is not None:
        # It was placed with its terms.
        return Quote(bill, order.currency, code)
    legal = events.current_legal(reservation.event.organizer_id)
    return Quote(bill, reservation.currency, code, legal.terms, legal.links)
