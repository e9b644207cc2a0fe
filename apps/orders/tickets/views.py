"""Pages and files of tickets.

POST needs no CSRF token: `apps.kernel.http.same_origin` refuses writes that come from another site.
"""

from dataclasses import asdict
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import cache_control, never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe

from apps.kernel.http import problems
from apps.orders import access, selectors
from apps.orders.errors import ReissueRefused
from apps.orders.tickets import reissue as ticket_reissue
from apps.orders.tickets import ticket_pdf


@never_cache
@require_safe
def ticket(request: HttpRequest, code: str) -> HttpResponse:
    """Show the ticket to anyone who knows its code, without a log-in: it is opened on a phone at the door."""
    found = selectors.get_ticket(code)
    order = selectors.get_order(found.order_id)
    shown = asdict(found) | {
        "qr_url": found.qr_url,
        "pdf_url": reverse("orders:ticket_pdf", args=[code]) if found.valid else "",
        "order_url": order.url if access.can_open_order(request, order) else "",
    }
    return render(
        request, "orders/ticket.html", {"ticket": shown, "event": order.event, "earlier_start": order.earlier_start}
    )


@cache_control(private=True, max_age=3_600)
@require_safe
def ticket_qr(request: HttpRequest, code: str) -> HttpResponse:
    drawing = ticket_pdf.qr_svg(selectors.get_ticket(code).code)
    return HttpResponse(drawing, content_type="image/svg+xml; charset=utf-8")


@never_cache
@require_safe
def single_ticket_pdf(request: HttpRequest, code: str) -> HttpResponse:
    """Serve one ticket as PDF to anyone who knows its code, like its page."""
    found = selectors.get_ticket(code)
    if not found.valid:
        raise problems.NotFound("This ticket is no longer valid.")
    event = selectors.get_order(found.order_id).event
    headers = {"Content-Disposition": f'attachment; filename="{ticket_pdf.ticket_file_name(event)}"'}
    return HttpResponse(ticket_pdf.ticket_pdf(event, found), content_type="application/pdf", headers=headers)


@never_cache
@require_safe
def tickets_pdf(request: HttpRequest, order_id: UUID) -> HttpResponse:
    order = access.get_authorized_order(request, order_id)
    if not order.valid_tickets:
        raise problems.NotFound("This order has no valid tickets.")
    headers = {"Content-Disposition": f'attachment; filename="{ticket_pdf.tickets_file_name(order)}"'}
    return HttpResponse(ticket_pdf.tickets_pdf(order), content_type="application/pdf", headers=headers)


@csrf_exempt
@never_cache
@require_POST
@access.with_confirmation
def reissue(request: HttpRequest, order_id: UUID, code: str) -> HttpResponse:
    """Reissue the ticket for the order's owner and redirect to the order's page."""
    order = access.get_changeable_order(request, order_id)
    try:
        ticket_reissue.reissue_ticket(order.id, code, ticket_reissue.BUYER, access.network_of(request))
        messages.success(
            request, "Your ticket has a new code. We're emailing it to you. The old code is no longer valid."
        )
    except ReissueRefused as refused:
        messages.error(request, refused.detail)
    return HttpResponseRedirect(order.url, status=303)
