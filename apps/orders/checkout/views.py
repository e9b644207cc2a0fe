"""The checkout page.

POST needs no CSRF token: `apps.kernel.http.same_origin` refuses writes that come from another site.
"""

import secrets
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.codes.code_format import InvalidCode, normal_code
from apps.kernel.http import idempotency, problems
from apps.orders import access, selectors
from apps.orders.checkout import followed_state
from apps.orders.checkout.checkout import check_out
from apps.orders.checkout.forms import CheckoutForm
from apps.orders.checkout.quote import Quote, quote
from apps.orders.checkout.refund_policy import describe_refund_policy
from apps.orders.errors import CodeRefused, PaymentTimeExpired, TermsNotAccepted
from apps.orders.payments.providers import chosen_provider
from apps.orders.selectors import OrderView
from apps.reservations import facade as reservations

_FIELDS = ("email", "name", "payment_method", "code", "terms")


@csrf_exempt
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def checkout(request: HttpRequest, reservation_id: UUID) -> HttpResponse:
    """Show the form for a live reservation. Redirect to its order once there is one: its page has the form for another
    attempt."""
    reservation, order = access.get_authorized_checkout(request, reservation_id)
    if request.method == "POST":
        return _pay(request, reservation, order)
    if order is not None:
        return redirect(order.url)
    if not reservation.is_live:
        return redirect("reservations:reservation", reservation_id)
    return _checkout_page(request, first_form(request, reservation, None))


def first_form(
    request: HttpRequest, reservation: reservations.ReservationView, order: OrderView | None
) -> dict[str, Any]:
    """Return the context of `orders/checkout_body.html` for an attempt that is not filled in yet."""
    quoted = quote(reservation, order, {})
    form = CheckoutForm(initial=_initial(request, order) | {"code": quoted.code}, methods=chosen_provider().methods)
    return _form_context(reservation, order, form, quoted)


def _pay(request: HttpRequest, reservation: reservations.ReservationView, order: OrderView | None) -> HttpResponse:
    key = idempotency.key_of_form(request)
    if order is None and not reservation.is_live:
        return redirect("reservations:reservation", reservation.id)
    fields = {field: request.POST[field] for field in _FIELDS if field in request.POST}
    code = fields.get("code", "")
    initial = _initial(request, order)
    try:
        if code.strip():
            access.count_code_attempt(request, reservation)
        if (order is None or order.can_try_again) and _is_quote_request(request.POST):
            # Charge only a total that the buyer has seen: after a changed code, show the new bill first.
            quoted = quote(reservation, order, {"code": code, "email": fields.get("email", initial["email"])})
            return _checkout_page(
                request, _form_context(reservation, order, _submitted(request, code=quoted.code), quoted)
            )
        with access.limit_cap_refusals(reservation):
            check_out(
                reservation,
                fields,
                key,
                email=initial["email"],
                name=initial["name"],
                account_id=access.require_caller(request).account_id,
                origin=access.network_of(request),
            )
    except (problems.Invalid, reservations.PurchaseCapReached) as problem:
        form = _submitted(request)
        if isinstance(problem, TermsNotAccepted):
            form.refuse({"terms": "must be accepted"})
        elif isinstance(problem, problems.Invalid):
            form.refuse(problem.extra["errors"])
        else:
            form.is_valid()
            form.add_error(None, problem.detail)
        quoted = _quote_with_fallback(reservation, order, code)
        return _checkout_page(request, _form_context(reservation, order, form, quoted), problem.status)
    except (CodeRefused, problems.RateLimited) as problem:
        form = _submitted(request)
        if code.strip():
            form.add_code_error(problem.detail)
        else:
            form.is_valid()
            form.add_error(None, problem.detail)
        quoted = quote(reservation, order, {})
        return _checkout_page(request, _form_context(reservation, order, form, quoted), problem.status)
    except problems.IdempotencyMismatch:
        # The buyer went back in the browser, changed the form and sent it again.
        messages.info(request, "You already placed this order, so your last changes were not used.")
    except (reservations.ReservationExpired, PaymentTimeExpired):
        if order is None:
            return redirect("reservations:reservation", reservation.id)
    placed = selectors.order_of_reservation(reservation.id)
    if placed is None:
        raise problems.NotFound
    return HttpResponseRedirect(placed.url, status=303)


def _is_quote_request(fields: QueryDict) -> bool:
    """Whether the buyer pressed Apply, or changed the code since the bill was shown."""
    try:
        return "apply" in fields or normal_code(fields.get("code", "")) != fields.get("code_shown", "")
    except InvalidCode:
        return True


def _submitted(request: HttpRequest, **changes: str) -> CheckoutForm:
    """Return the form as it was submitted, with these changes."""
    data = request.POST.copy()
    for name, value in changes.items():
        data[name] = value
    return CheckoutForm(data, methods=chosen_provider().methods)


def _quote_with_fallback(reservation: reservations.ReservationView, order: OrderView | None, code: str) -> Quote:
    try:
        return quote(reservation, order, {"code": code})
    except (CodeRefused, problems.Invalid):
        return quote(reservation, order, {})


def _initial(request: HttpRequest, order: OrderView | None) -> dict[str, str]:
    if order is not None:
        email, name = order.email, order.name
    else:
        email, name = access.account_details(request.user.pk if request.user.is_authenticated else None)
    return {"email": email, "name": name, "payment_method": next(iter(chosen_provider().methods))}


def _form_context(
    reservation: reservations.ReservationView, order: OrderView | None, form: CheckoutForm, quoted: Quote
) -> dict[str, Any]:
    return {
        "reservation": reservation.shown() | {"bill": quoted.bill},
        "count": reservation.seat_count,
        "form": form,
        "code_shown": quoted.code,
        "order": order,
        # An order that is retried was placed with its terms.
        "terms": quoted.terms,
        "legal_links": quoted.legal_links,
        "refund_policy": describe_refund_policy(reservation.event, clock.now(), reservation.created_at),
        "idempotency_key": secrets.token_urlsafe(18),
    }


def _checkout_page(request: HttpRequest, form_context: dict[str, Any], status: int = 200) -> HttpResponse:
    legal = form_context["legal_links"]
    if legal is None:
        legal = events.list_legal_links(form_context["reservation"]["event"].organizer_id)
    order = form_context["order"]
    context = {"pay": form_context, "legal": legal, **({} if order is None else followed_state.followed_state(order))}
    return render(request, "orders/checkout.html", context, status=status)
