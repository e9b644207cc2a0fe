"""The page of a VIP link: GET shows its state, POST redeems it."""

from functools import partial

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.http import client_address
from apps.queue.entries import vip_links
from apps.queue.errors import EntryNotFound, LinkRefused, NotOnSale, RoomDrained
from apps.queue.identity.caller import authenticate
from apps.queue.identity.cookie_check import repeat_with_cookie
from apps.queue.identity.networks import recorded_network
from apps.queue.models import WaitingRoom

STATUSES = (
    dict.fromkeys(("used", "revoked", "expired"), 410)
    | dict.fromkeys(("foreign", "damaged"), 404)
    | dict.fromkeys(("drained", "early", "over"), 409)
)


@csrf_exempt  # SameOriginWrites checks the origin instead, as for the join form.
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def vip(request: HttpRequest, slug: str, token: str) -> HttpResponse:
    """GET changes nothing, so that previews and prefetching do not use the link; POST redeems it and redirects."""
    event = events.get_event(slug)
    caller = authenticate(request, event.slug)
    try:
        if request.method != "POST":
            return _page(request, event, _state_of(event, vip_links.view_link(event, token, caller)))
        if not caller.is_known:
            seen = vip_links.view_link(event, token, caller)
            if seen.state != "open":
                raise LinkRefused(seen.state)  # Refuse before creating an identity.
            return repeat_with_cookie(request, event.slug, reverse("queue:vip", args=[event.slug, token]))
        network = recorded_network(event, partial(client_address.address_from_environ, request.META))
        entry = vip_links.redeem_link(event, token, caller, network)
    except LinkRefused as refused:
        return _page(request, event, str(refused))
    except RoomDrained:
        return _page(request, event, "drained")
    except NotOnSale:
        return _page(request, event, "early" if _is_early(event) else "over")
    except EntryNotFound:
        return redirect("events:event", event.slug)
    response = redirect("reservations:choose" if entry.is_ready else "queue:wait", event.slug)
    response.status_code = 303
    return response


def _state_of(event: events.EventView, link: vip_links.LinkView) -> str:
    """Return the state to show: the link's own or, for an open link, that of the sale and the room. So the page never
    offers a button that cannot work."""
    if link.is_used_by_caller:
        return "yours"
    if link.state != "open":
        return link.state
    now = clock.now()
    if event.is_over(now):
        return "over"
    state = WaitingRoom.objects.filter(event_id=event.id).values_list("state", flat=True).first() or ""
    if event.selling_state(now) == "upcoming" and state != WaitingRoom.State.LOBBY:
        return "early"
    return state if state in (WaitingRoom.State.DRAINED, WaitingRoom.State.PAUSED) else "open"


def _is_early(event: events.EventView) -> bool:
    return event.selling_state(clock.now()) == "upcoming"


def _page(request: HttpRequest, event: events.EventView, state: str) -> HttpResponse:
    response = render(request, "queue/vip.html", {"event": event, "state": state}, status=STATUSES.get(state, 200))
    response.headers["X-Robots-Tag"] = "noindex"
    return response
