"""Confirmation of an order's mailbox, for requests that have the order's link only (`access.get_changeable_order`).

POST needs no CSRF token: `apps.kernel.http.same_origin` refuses writes that come from another site.
"""

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.kernel import rate_limits
from apps.kernel.http import client_address, problems
from apps.kernel.http.json_body import get_json_object, refuse_unknown_fields
from apps.kernel.http.openapi import NO_STORE_HEADERS, NOT_YOURS, ORDER_CALLER
from apps.orders import access, mail
from apps.orders.errors import MailboxNotConfirmed


@csrf_exempt
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def confirm(request: HttpRequest, order_id: UUID) -> HttpResponse:
    """Offer to mail the confirmation link; POST mails it. The link leads here too: it confirms the browser that opens
    it, so a forwarded order link never confirms the browser of another person."""
    if access.is_valid_confirmation(order_id, request.GET.get("confirmation", "")):
        response = redirect("orders:order", order_id)
        access.set_confirmed_cookie(request, response, order_id)
        messages.success(
            request,
            "In this browser you can now cancel this order, return its tickets, replace their codes or pass them on.",
        )
        return response
    order = access.get_authorized_order(request, order_id)
    is_expired = "confirmation" in request.GET
    is_needed = _is_needed(request, order_id)
    if request.method == "POST" and is_needed:
        _request_confirmation(request, order_id)
    elif not is_needed and (request.method == "POST" or not is_expired):
        return redirect(order.url)
    context = {
        "order": order,
        "is_sent": request.method == "POST",
        "is_expired": is_expired,
        "minutes": access.CONFIRMATION_MINUTES,
    }
    return render(request, "orders/confirm.html", context)


def _is_needed(request: HttpRequest, order_id: UUID) -> bool:
    try:
        access.get_changeable_order(request, order_id)
    except MailboxNotConfirmed:
        return True
    return False


def _request_confirmation(request: HttpRequest, order_id: UUID) -> None:
    """Schedule the mail. Raises RateLimited."""
    address = client_address.address_from_environ(request.META)
    wait = rate_limits.check_request("code", address, f"confirm:{order_id}")
    if wait is not None:
        raise problems.RateLimited(wait)
    mail.request_confirmation(order_id, access.network_of(request))


class RequestConfirmation(APIView):
    @extend_schema(
        operation_id="request_confirmation",
        tags=["orders"],
        summary="Mail a link that confirms the order's mailbox",
        description="Needed to cancel, return or transfer with the order's link only; nothing is mailed for others. "
        "Send the link's `confirmation` as a query parameter of those calls, or open the link in a browser.",
        auth=ORDER_CALLER,
        request=None,
        responses={204: None, 403: NOT_YOURS},
    )
    def post(self, request: Request, order_id: UUID) -> Response:
        refuse_unknown_fields(get_json_object(request), ())
        access.get_authorized_order(request, order_id)
        if _is_needed(request._request, order_id):
            _request_confirmation(request._request, order_id)
        return Response(status=204, headers=NO_STORE_HEADERS)
