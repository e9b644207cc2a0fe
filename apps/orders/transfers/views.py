"""Pages of transfers: the buyer's forms on the order's page, and the page of the recipient.

POST needs no CSRF token: `apps.kernel.http.same_origin` refuses writes that come from another site.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.http import problems
from apps.orders import access
from apps.orders.errors import (
    TicketsCheckedIn,
    TicketsNotValid,
    TransferAccepted,
    TransferEnded,
    TransferNotFound,
    TransferPending,
    TransferRefused,
)
from apps.orders.models import Ticket, TicketTransfer
from apps.orders.terms.transfer_terms import get_transfer_terms, transfer_view
from apps.orders.transfers import transfers
from apps.orders.transfers.transfer_links import is_valid_key, transfer_path

_OFFERED = "We're emailing the offer to {}. The ticket stays yours until it is accepted."


@csrf_exempt
@never_cache
@require_POST
@access.with_confirmation
def offer(request: HttpRequest, order_id: UUID, code: str) -> HttpResponse:
    """Offer the ticket for the order's owner and redirect to the order's page."""
    order = access.get_changeable_order(request, order_id)
    with _shown_as_messages(request):
        payload = {"ticket": code, "email": request.POST.get("email", "")}
        offered = transfers.offer_ticket(order.id, payload, network=access.network_of(request))
        messages.success(request, _OFFERED.format(offered.email))
    return HttpResponseRedirect(order.url, status=303)


@csrf_exempt
@never_cache
@require_POST
@access.with_confirmation
def withdraw(request: HttpRequest, order_id: UUID, transfer_id: UUID) -> HttpResponse:
    """Withdraw the offer for the order's owner and redirect to the order's page."""
    order = access.get_changeable_order(request, order_id)
    with _shown_as_messages(request):
        transfers.withdraw_offer(order.id, transfer_id)
        messages.success(request, "The offer is withdrawn. The ticket stays yours.")
    return HttpResponseRedirect(order.url, status=303)


@csrf_exempt
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def transfer(request: HttpRequest, transfer_id: UUID) -> HttpResponse:
    """Show the offer to its recipient, whose mail has the key, and let the recipient accept it. Afterwards show the
    ticket, which the recipient may pass on if the event allows it. A GET changes nothing: mail programs follow
    links."""
    if not is_valid_key(transfer_id, request.GET.get("key", "")):
        raise TransferNotFound
    found = transfers.get_transfer(transfer_id)
    if request.method == "POST":
        with _shown_as_messages(request):
            _act(request, found)
        return HttpResponseRedirect(transfer_path(transfer_id), status=303)
    return render(request, "orders/transfer.html", _page_context(found))


def _act(request: HttpRequest, found: TicketTransfer) -> None:
    order_id, action = found.ticket.order_id, request.POST.get("action", "")
    if action == "accept":
        transfers.accept_offer(found.pk, request.POST.get("name", ""), network=access.network_of(request))
    elif action == "offer":
        payload = {"ticket": request.POST.get("ticket", ""), "email": request.POST.get("email", "")}
        offered = transfers.offer_ticket(order_id, payload, given_by=found.pk, network=access.network_of(request))
        messages.success(request, _OFFERED.format(offered.email))
    elif action == "withdraw":
        own = TicketTransfer.objects.filter(ticket__transfer=found, accepted_at=None, ended_at=None).first()
        if own is not None:
            transfers.withdraw_offer(order_id, own.pk, given_by=found.pk)
    else:
        raise problems.Invalid({"action": "is unknown"})


def _page_context(found: TicketTransfer) -> dict[str, object]:
    now = clock.now()
    event = events.get_event_by_id(found.ticket.order.event_id)
    terms = get_transfer_terms(event, now)
    ticket = Ticket.objects.filter(transfer=found, voided_at=None).first()
    passed_on = TicketTransfer.objects.select_related("ticket").filter(ticket__transfer=found, ended_at=None)
    latest = passed_on.order_by("-offered_at").first()
    next_offer = None if latest is None else transfer_view(latest, now)
    return {
        "transfer": transfer_view(found, now),
        "event": event,
        "ticket": ticket,
        "ticket_url": "" if ticket is None else reverse("orders:ticket", args=[ticket.code]),
        "pdf_url": "" if ticket is None else reverse("orders:ticket_pdf", args=[ticket.code]),
        "is_closed": terms is None or not terms.is_open,
        "next_offer": next_offer if next_offer is not None and next_offer.state in ("offered", "accepted") else None,
        "may_pass_on": ticket is not None
        and ticket.checked_in_at is None
        and terms is not None
        and terms.is_open
        and found.sequence < terms.per_ticket_max,
    }


@contextmanager
def _shown_as_messages(request: HttpRequest) -> Iterator[None]:
    """Show a refusal inside the block as an error message on the next page."""
    try:
        yield
    except (
        problems.Invalid,
        TicketsCheckedIn,
        TicketsNotValid,
        TransferAccepted,
        TransferEnded,
        TransferPending,
        TransferRefused,
    ) as problem:
        messages.error(request, problem.detail)
