"""The page on which a buyer returns tickets.

POST needs no CSRF token: `apps.kernel.http.same_origin` refuses writes that come from another site.
"""

import json
import secrets
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from apps.kernel.formatting import format_money
from apps.kernel.http import idempotency, problems
from apps.orders import access, return_quotes, selectors
from apps.orders.errors import (
    MailboxNotConfirmed,
    OrderNotReturnable,
    ReturnNotAllowed,
    TicketsCheckedIn,
    TicketsNotValid,
)
from apps.orders.returns import returns
from apps.orders.selectors import OrderView


@csrf_exempt
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@access.with_confirmation
def return_tickets(request: HttpRequest, order_id: UUID) -> HttpResponse:
    """Let the buyer choose tickets, show the refund, and return the tickets once confirmed. After a missing or refused
    choice, show the form again."""
    if request.method != "POST" and (opened := _open_by_link(request, order_id)):
        return opened
    try:
        found = access.get_returnable_order(request, order_id)
    except MailboxNotConfirmed:
        found = access.get_authorized_order(request, order_id)
        is_open = found.is_standing and found.returns is not None and found.returns.is_open
        if is_open or request.method == "POST":
            raise
        # Nothing can be returned, so there is nothing to confirm the mailbox for.
    if found.returns is None or not found.is_standing:
        return redirect(found.url)
    codes = request.POST.getlist("ticket")
    if request.method != "POST":
        return _return_page(request, found)
    try:
        if request.POST.get("step") == "return":
            key, network = idempotency.key_of_form(request), access.network_of(request)
            answer = returns.return_idempotently(found.id, {"tickets": codes}, key, network)
            messages.success(request, _returned_words(json.loads(answer.body)))
            return HttpResponseRedirect(found.url, status=303)
        return _return_page(request, found, codes, returns.quote_for_buyer(found.id, codes))
    except problems.Invalid:
        return _return_page(request, found, codes, error="Select at least one ticket.", status=422)
    except (OrderNotReturnable, ReturnNotAllowed, TicketsNotValid, TicketsCheckedIn) as problem:
        return _return_page(request, selectors.get_order(order_id), codes, error=problem.detail, status=problem.status)


def _returned_words(returned: dict[str, Any]) -> str:
    count, amount_minor = len(returned["tickets"]), returned["amount_minor"]
    words = "Your ticket was returned." if count == 1 else f"Your {count} tickets were returned."
    if not amount_minor:
        return words
    return f"{words} Your refund of {format_money(amount_minor, returned['currency'])} is on its way."


def _open_by_link(request: HttpRequest, order_id: UUID) -> HttpResponse | None:
    """Exchange the keys of a mail's return link for cookies, so that they do not stay in the address bar. Once the
    link may no longer return tickets, it still shows the page."""
    response = redirect("orders:return", order_id)
    return_key = request.GET.get("return_key", "")
    if access.is_valid_return_key(order_id, return_key):
        access.set_return_cookie(request, response, order_id, return_key)
        return response
    if access.is_valid_link_key(order_id, request.GET.get("key", "")):
        access.set_order_cookie(request, response, order_id)
        return response
    return None


def _return_page(
    request: HttpRequest,
    order: OrderView,
    codes: list[str] | None = None,
    quote: return_quotes.ReturnQuote | None = None,
    *,
    error: str = "",
    status: int = 200,
) -> HttpResponse:
    assert order.returns is not None
    context = {
        "order": order,
        "event": order.event,
        "returns": order.returns,
        "tickets": returns.list_returnable_tickets(order.id, fees_back=not order.returns.keeps_fees, by_buyer=True),
        "chosen": codes or [],
        "quote": quote,
        "error": error,
        "idempotency_key": secrets.token_urlsafe(18),
    }
    return render(request, "orders/return.html", context, status=status)
