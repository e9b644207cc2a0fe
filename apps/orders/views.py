"""Pages of the sale: checkout, the order while the money moves and after it, tickets.

The POST here is exempt from the token check because kernel.origin.SameOriginWrites covers it (rule 26).
"""

import secrets
from contextlib import suppress
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import cache_control, never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.kernel.codes.code_format import Unusable, normal_code
from apps.kernel.http import idempotency, problems
from apps.orders import access, live, return_quotes, selectors
from apps.orders.absolute_urls import absolute, within_site
from apps.orders.cancellation.order_cancellation import answer_cancel
from apps.orders.checkout.checkout import check_out
from apps.orders.checkout.forms import CheckoutForm
from apps.orders.checkout.quote import Quote, quote
from apps.orders.errors import (
    CodeRefused,
    OrderNotCancelable,
    OrderNotReturnable,
    PaymentTimeOver,
    ReissueRefused,
    ReturnNotAllowed,
    TicketsCheckedIn,
    TicketsNotValid,
)
from apps.orders.invoices import invoice_pdf
from apps.orders.models import ATTEMPTS_MAX, Order
from apps.orders.payments.providers import STRIPE, chosen_provider
from apps.orders.returns import returns
from apps.orders.selectors import OrderView
from apps.orders.tickets import ics, ticket_pdf
from apps.orders.tickets import reissue as ticket_reissue
from apps.queue import facade as queue
from apps.reservations import facade as reservations


@csrf_exempt
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def checkout(request: HttpRequest, reservation_id: UUID) -> HttpResponse:
    """The form for a live reservation; whoever has an order already is shown that instead."""
    reservation = access.open_reservation(request, reservation_id)
    order = selectors.order_of_reservation(reservation_id)
    if request.method == "POST":
        return _pay(request, reservation, order)
    if order is not None and not order.can_try_again:
        return redirect(order.url)
    if not reservation.is_live:
        return redirect("reservations:reservation", reservation_id)
    form = CheckoutForm(initial=_initial(request, order), methods=chosen_provider().methods)
    return _checkout_page(request, reservation, order, form, quote(reservation, order, {}))


def _pay(request: HttpRequest, reservation: reservations.ReservationView, order: OrderView | None) -> HttpResponse:
    key = _form_key(request)
    if order is None and not reservation.is_live:
        return redirect("reservations:reservation", reservation.id)
    said = {field: request.POST.get(field, "") for field in ("email", "name", "payment_method", "code")}
    initial = _initial(request, order)
    try:
        if said["code"].strip():
            access.count_code_try(request, reservation)
        if order is None and _asks_for_bill(request.POST):
            # What is paid is what was shown: another code shows another bill first.
            quoted = quote(reservation, order, {"code": said["code"], "email": said["email"]})
            return _checkout_page(request, reservation, order, _filled(request, quoted.code), quoted)
        check_out(
            reservation,
            said,
            key,
            email=initial["email"],
            name=initial["name"],
            account_id=access.known_caller(request).account_id,
        )
    except problems.Invalid as problem:
        quoted = _quote_or_plain(reservation, order, said["code"])
        form = _filled(request, quoted.code)
        form.refuse(problem.extra["errors"])
        return _checkout_page(request, reservation, order, form, quoted, status=422)
    except (CodeRefused, problems.RateLimited) as problem:
        form = _filled(request, "")
        form.refuse_code(said["code"], problem.detail)
        quoted = quote(reservation, order, {})
        return _checkout_page(request, reservation, order, form, quoted, status=problem.status)
    except reservations.PurchaseCapReached as problem:
        quoted = _quote_or_plain(reservation, order, said["code"])
        form = _filled(request, quoted.code)
        form.is_valid()
        form.add_error(None, problem.detail)
        return _checkout_page(request, reservation, order, form, quoted, status=problem.status)
    except (reservations.ReservationExpired, PaymentTimeOver):
        if order is None:
            return redirect("reservations:reservation", reservation.id)
    placed = selectors.order_of_reservation(reservation.id)
    if placed is None:
        raise problems.NotFound
    return HttpResponseRedirect(placed.url, status=303)


def _asks_for_bill(said: QueryDict) -> bool:
    """Whether the page's Apply was pressed, or its code is another than that of the bill it showed."""
    try:
        return "apply" in said or normal_code(said.get("code", "")) != said.get("code_shown", "")
    except Unusable:
        return True


def _filled(request: HttpRequest, code: str) -> CheckoutForm:
    """The form as it was sent, but for its code."""
    data = request.POST.copy()
    data["code"] = code
    return CheckoutForm(data, methods=chosen_provider().methods)


def _quote_or_plain(reservation: reservations.ReservationView, order: OrderView | None, code: str) -> Quote:
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


def _checkout_page(
    request: HttpRequest,
    reservation: reservations.ReservationView,
    order: OrderView | None,
    form: CheckoutForm,
    quoted: Quote,
    status: int = 200,
) -> HttpResponse:
    context = {
        # Another try is for what the order was placed for.
        "reservation": reservation.shown() | {"bill": quoted.bill},
        "form": form,
        "code_shown": quoted.code,
        "order": order,
        "idempotency_key": secrets.token_urlsafe(18),
    }
    return render(request, "orders/checkout.html", context, status=status)


@never_cache
@require_safe
def order(request: HttpRequest, order_id: UUID) -> HttpResponse:
    """The order. A link from the mail is exchanged for a cookie, so that its key leaves the address bar."""
    if access.fits(order_id, request.GET.get("key", "")):
        response = redirect("orders:order", order_id)
        access.remember_link(request, response, order_id)
        return response
    shown = _shown(access.open_order(request, order_id))
    page = render(request, "orders/order.html", {"order": shown})
    return _let_stripe_in(page) if shown["stripe"] else page


@csrf_exempt
@never_cache
@require_POST
def cancel(request: HttpRequest, order_id: UUID) -> HttpResponse:
    """The unpaid order is given up; one that was paid meanwhile is shown as it is."""
    found = access.open_order(request, order_id)
    with suppress(OrderNotCancelable):
        answer_cancel(found.id, {}, _form_key(request))
    return HttpResponseRedirect(found.url, status=303)


@csrf_exempt
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def return_tickets(request: HttpRequest, order_id: UUID) -> HttpResponse:
    """Choose tickets to return, see what comes back, confirm. Without a choice, or where it is refused, one chooses."""
    found = access.open_order(request, order_id)
    if found.returns is None or not found.is_standing:
        return redirect(found.url)
    codes = request.POST.getlist("ticket")
    if request.method != "POST":
        return _return_page(request, found)
    try:
        if request.POST.get("step") == "return":
            returns.answer_return(found.id, {"tickets": codes}, _form_key(request))
            return HttpResponseRedirect(found.url, status=303)
        return _return_page(request, found, codes, returns.quote_for_buyer(found.id, codes))
    except problems.Invalid:
        return _return_page(request, found, codes, said="Choose at least one of these tickets.", status=422)
    except (OrderNotReturnable, ReturnNotAllowed, TicketsNotValid, TicketsCheckedIn) as problem:
        return _return_page(request, selectors.get_order(order_id), codes, said=problem.detail, status=problem.status)


def _return_page(
    request: HttpRequest,
    order: OrderView,
    codes: list[str] | None = None,
    quote: return_quotes.ReturnQuote | None = None,
    *,
    said: str = "",
    status: int = 200,
) -> HttpResponse:
    assert order.returns is not None
    context = {
        "order": order,
        "event": order.event,
        "returns": order.returns,
        "tickets": returns.returnable(order.id, fees_back=not order.returns.keeps_fees),
        "chosen": codes or [],
        "quote": quote,
        "said": said,
        "idempotency_key": secrets.token_urlsafe(18),
    }
    return render(request, "orders/return.html", context, status=status)


def _form_key(request: HttpRequest) -> str:
    key = request.POST.get("idempotency_key", "")
    if not key:
        raise problems.IdempotencyKeyRequired("Open the page again.")
    return idempotency.check_key(key)


def _shown(order: OrderView) -> dict[str, Any]:
    """The order as its page draws it. A declined payment that may be tried again is shown as such, not as under way."""
    retry_url = reverse("orders:checkout", args=[order.reservation_id]) if order.can_try_again else ""
    status = "declined" if order.can_try_again else order.status
    is_in_progress = status in Order.OPEN
    confirm_url = _confirm_url(order) if is_in_progress else ""
    is_asked_again = is_in_progress and order.payment.faults_count > 0
    return {
        "id": order.id,
        "number": order.number,
        "status": status,
        "is_in_progress": is_in_progress,
        "known": live.known(order),
        "follow": f"{status} {order.payment.attempt} {order.payment.refunded_minor} {confirm_url}",
        "attempt": order.payment.attempt,
        "attempts_max": ATTEMPTS_MAX,
        "is_asked_again": is_asked_again,
        "confirm_url": confirm_url,
        "pay_deadline": order.pay_deadline,
        "email": order.email,
        "name": order.name,
        "total_minor": order.total_minor,
        "bill": order.bill,
        "papers": order.papers,
        "currency": order.currency,
        "event": order.event,
        "tickets": [ticket for ticket in order.tickets if ticket.valid],
        "payment_state": {"declined": "failed", "abandoned": "failed"}.get(order.payment.state, order.payment.state),
        "message": order.message,
        "refunded_minor": order.payment.refunded_minor,
        "reservation_id": order.reservation_id,
        "retry_url": retry_url,
        "is_open": order.status in Order.OPEN,
        "refunds": order.refunds,
        "returns": order.returns,
        "stripe": _stripe(order),
        "is_stripe_awaited": order.payment.provider == STRIPE and order.payment.state == "pending",
        "may_choose_again": order.reason in (Order.Reason.LATE, Order.Reason.WRONG_AMOUNT),
        "idempotency_key": secrets.token_urlsafe(18),
        "pdf_url": reverse("orders:tickets_pdf", args=[order.id]),
        "calendar_url": reverse("orders:calendar_file", args=[order.id]),
    }


def _confirm_url(order: OrderView) -> str:
    """Where the buyer must go now; empty: nowhere."""
    action = order.payment.next_action
    return within_site(action["url"]) if action is not None and action.get("type") == "redirect" else ""


def _stripe(order: OrderView) -> dict[str, str] | None:
    """What Stripe's form in the page needs, while its buyer is to pay."""
    action = order.payment.next_action
    if order.status not in Order.OPEN or action is None or action.get("type") != "stripe":
        return None
    return {**action, "return_url": absolute(order.url)}


def _let_stripe_in(response: HttpResponse) -> HttpResponse:
    """The page may load Stripe's script and show its frames; no other page may."""
    response._csp_update = {  # type: ignore[attr-defined]  # What django-csp's decorator sets.
        "script-src": ["https://js.stripe.com", "https://*.js.stripe.com"],
        "frame-src": ["https://js.stripe.com", "https://*.js.stripe.com", "https://hooks.stripe.com"],
        "connect-src": ["https://api.stripe.com"],
    }
    return response


@never_cache
@require_safe
def tickets_pdf(request: HttpRequest, order_id: UUID) -> HttpResponse:
    shown = access.open_order(request, order_id)
    if not any(ticket.valid for ticket in shown.tickets):
        raise problems.NotFound("This order has no valid tickets.")
    response = HttpResponse(ticket_pdf.tickets_pdf(shown), content_type="application/pdf")
    response.headers["Content-Disposition"] = f'inline; filename="tickets-{shown.number}.pdf"'
    return response


@never_cache
@require_safe
def paper(request: HttpRequest, order_id: UUID, number: str) -> HttpResponse:
    """An invoice or credit note of the order."""
    shown = access.open_order(request, order_id)
    drawn = invoice_pdf.paper_pdf(selectors.get_paper(shown.id, number))
    response = HttpResponse(drawn, content_type="application/pdf")
    response.headers["Content-Disposition"] = f'inline; filename="{number}.pdf"'
    return response


@never_cache
@require_safe
def calendar_file(request: HttpRequest, order_id: UUID) -> HttpResponse:
    shown = access.open_order(request, order_id)
    if not any(ticket.valid for ticket in shown.tickets):
        raise problems.NotFound("This order has no valid tickets.")
    response = HttpResponse(ics.calendar_file(shown), content_type=ics.CONTENT_TYPE)
    response.headers["Content-Disposition"] = f'attachment; filename="{shown.event.slug}.ics"'
    return response


@csrf_exempt
@never_cache
@require_POST
def reissue(request: HttpRequest, order_id: UUID, code: str) -> HttpResponse:
    """The ticket has a new code, for the order's owner; back to the order, whose page says so."""
    order = access.open_order(request, order_id)
    try:
        ticket_reissue.reissue_ticket(order.id, code, ticket_reissue.BUYER)
        messages.success(
            request, "The ticket has a new code, also in the mail that is on its way. Its old code is dead."
        )
    except ReissueRefused as refused:
        messages.error(request, refused.detail)
    return HttpResponseRedirect(order.url, status=303)


@never_cache
@require_safe
def ticket(request: HttpRequest, code: str) -> HttpResponse:
    """The ticket, for whoever knows its code: on a phone at the door nobody logs in."""
    found = selectors.get_ticket(code)
    order = selectors.get_order(found.order_id)
    shown = asdict(found) | {
        "qr_url": found.qr_url,
        "order_url": order.url if access.may_open(request, order) else "",
    }
    return render(request, "orders/ticket.html", {"ticket": shown, "event": order.event})


@cache_control(private=True, max_age=3_600)
@require_safe
def ticket_qr(request: HttpRequest, code: str) -> HttpResponse:
    drawing = ticket_pdf.qr_svg(selectors.get_ticket(code).code)
    return HttpResponse(drawing, content_type="image/svg+xml; charset=utf-8")


@never_cache
@require_safe
def my_tickets(request: HttpRequest) -> HttpResponse:
    """The orders of this account, of this browser, and those opened here by their links."""
    found = selectors.orders_of(queue.caller_of(request), access.opened_by_link(request))
    shown = [
        {
            "id": order.id,
            "url": order.url,
            "status": order.status,
            "total_minor": order.total_minor,
            "currency": order.currency,
            "ticket_count": sum(ticket.valid for ticket in order.tickets),
            "event": order.event,
        }
        for order in found
    ]
    return render(request, "orders/my_tickets.html", {"orders": shown})
