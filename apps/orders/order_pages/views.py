"""Pages of an order, its invoices and calendar file, and the list of a buyer's orders.

POST needs no CSRF token: `apps.kernel.http.same_origin` refuses writes that come from another site.
"""

import secrets
from contextlib import suppress
from dataclasses import fields
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe

from apps.events import facade as events
from apps.kernel.http import idempotency, problems
from apps.orders import access, selectors
from apps.orders.absolute_urls import absolute_url
from apps.orders.cancellation.order_cancellation import cancel_order_idempotently
from apps.orders.checkout import followed_state
from apps.orders.checkout.refund_policy import describe_offer
from apps.orders.checkout.views import first_form
from apps.orders.errors import InvoiceNotFound, OrderNotCancelable
from apps.orders.invoices import invoice_pdf
from apps.orders.models import ATTEMPTS_MAX, Order
from apps.orders.payments.providers import STRIPE
from apps.orders.selectors import OrderView
from apps.orders.tickets import ics
from apps.queue import facade as queue
from apps.reservations import facade as reservations


@never_cache
@require_safe
def order(request: HttpRequest, order_id: UUID) -> HttpResponse:
    """Show the order. A mail's link is exchanged for a cookie, so that its key does not stay in the address bar. The
    link of a mail that lists the person's orders also confirms the mailbox, for a while."""
    if access.is_valid_confirmation(order_id, request.GET.get("confirmation", "")):
        response = redirect("orders:order", order_id)
        access.set_confirmed_cookie(request, response, order_id)
        return response
    if access.is_valid_link_key(order_id, request.GET.get("key", "")):
        response = redirect("orders:order", order_id)
        access.set_order_cookie(request, response, order_id)
        return response
    found = access.get_authorized_order(request, order_id)
    shown = _order_context(found)
    if found.can_try_again:
        shown["pay"] = first_form(request, reservations.get_reservation(found.reservation_id), found)
    legal = events.list_legal_links(shown["event"].organizer_id)
    page = render(request, "orders/order.html", {"order": shown, "legal": legal})
    return _allow_stripe(page) if shown["stripe"] else page


@csrf_exempt
@never_cache
@require_POST
@access.with_confirmation
def cancel(request: HttpRequest, order_id: UUID) -> HttpResponse:
    """Cancel the unpaid order and redirect to its page. An order that was paid meanwhile is not canceled."""
    found = access.get_changeable_order(request, order_id)
    with suppress(OrderNotCancelable):
        cancel_order_idempotently(found.id, {}, idempotency.key_of_form(request))
    return HttpResponseRedirect(found.url, status=303)


@never_cache
@require_safe
def invoice(request: HttpRequest, order_id: UUID, number: str) -> HttpResponse:
    """Serve an invoice or credit note of the order as PDF. Those of an order that staff gave to another person name the
    former owner: the new one gets none."""
    shown = access.get_authorized_order(request, order_id)
    if shown.is_handed_over:
        raise InvoiceNotFound
    drawn = invoice_pdf.render_invoice(selectors.get_invoice(shown.id, number))
    headers = {"Content-Disposition": f'attachment; filename="{number}.pdf"'}
    return HttpResponse(drawn, content_type="application/pdf", headers=headers)


@never_cache
@require_safe
def calendar_file(request: HttpRequest, order_id: UUID) -> HttpResponse:
    shown = access.get_authorized_order(request, order_id)
    if not shown.valid_tickets:
        raise problems.NotFound("This order has no valid tickets.")
    headers = {"Content-Disposition": f'attachment; filename="{shown.event.slug}.ics"'}
    return HttpResponse(ics.calendar_file(shown), content_type=ics.CONTENT_TYPE, headers=headers)


@never_cache
@require_safe
def my_tickets(request: HttpRequest) -> HttpResponse:
    """List the orders of this account, of this browser, and orders that this browser opened by their links."""
    found = selectors.list_orders(queue.authenticate(request), access.orders_opened_by_link(request))
    return render(request, "orders/my_tickets.html", {"orders": found})


def _order_context(order: OrderView) -> dict[str, Any]:
    """Return the order's fields for its page. The status of an order whose last payment was declined is `declined`, and
    only valid tickets are listed."""
    status = followed_state.shown_status(order)
    is_in_progress = status in Order.OPEN
    is_asked_again = is_in_progress and order.payment.faults_count > 0
    return {
        **{field.name: getattr(order, field.name) for field in fields(order)},
        "status": status,
        "is_in_progress": is_in_progress,
        **followed_state.followed_state(order),
        "attempt": order.payment.attempt,
        "attempts_max": ATTEMPTS_MAX,
        "is_asked_again": is_asked_again,
        "confirm_url": followed_state.confirmation_url(order),
        "tickets": order.valid_tickets,
        "transfers_open": order.transfer_terms is not None and order.transfer_terms.is_open,
        "passed_on": [transfer for transfer in order.transfers if transfer.state == "accepted"],
        "payment_state": {"declined": "failed", "abandoned": "failed"}.get(order.payment.state, order.payment.state),
        "message": order.message,
        "refunded_minor": order.payment.refunded_minor,
        "is_open": order.status in Order.OPEN,
        "stripe": _stripe(order),
        "is_stripe_awaited": order.payment.provider == STRIPE and order.payment.state == "pending",
        "may_choose_again": order.may_choose_again,
        "may_return": order.may_return,
        "return_words": describe_offer(order.returns, order.event.timezone) if order.returns is not None else "",
        "idempotency_key": secrets.token_urlsafe(18),
        "pdf_url": reverse("orders:tickets_pdf", args=[order.id]),
        "calendar_url": reverse("orders:calendar_file", args=[order.id]),
    }


def _stripe(order: OrderView) -> dict[str, str] | None:
    """Return the parameters of Stripe's payment form, or None if the buyer has nothing to pay there."""
    action = order.payment.next_action
    if order.status not in Order.OPEN or action is None or action.get("type") != "stripe":
        return None
    return {**action, "return_url": absolute_url(order.url)}


def _allow_stripe(response: HttpResponse) -> HttpResponse:
    """Allow this page, and no other, to load Stripe's script and frames."""
    response._csp_update = {  # type: ignore[attr-defined]  # As django-csp's decorator does.
        "script-src": ["https://js.stripe.com", "https://*.js.stripe.com"],
        "frame-src": ["https://js.stripe.com", "https://*.js.stripe.com", "https://hooks.stripe.com"],
        "connect-src": ["https://api.stripe.com"],
    }
    return response
