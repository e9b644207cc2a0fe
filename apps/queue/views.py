"""The pages for joining, waiting in and leaving the queue."""

import math
from datetime import timedelta
from functools import partial
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_safe

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.http import client_address, problems
from apps.kernel.proof_of_work.challenges import WorkRequired
from apps.queue.entries import positions, presale
from apps.queue.errors import EntryNotFound, NotOnSale, PresaleCodeInUse, PresaleOnly, RoomDrained, StillHolding
from apps.queue.identity import guest_merge
from apps.queue.identity.caller import (
    Caller,
    authenticate,
    check_visitor_secret,
    set_place_cookie,
    set_visitor_cookie,
    visitor_id_of_secret,
)
from apps.queue.identity.cookie_check import repeat_with_cookie
from apps.queue.identity.networks import recorded_network
from apps.queue.models import QueueEntry
from apps.queue.room import operations
from apps.queue.screening import screen as screening
from apps.queue.screening.policy import policies
from apps.queue.snapshot import room_snapshot
from apps.queue.status import status as entry_status
from apps.queue.status.estimates import WaitEstimate
from apps.queue.status.status_messages import describe_odds, describe_pace, describe_wait

REFRESH_SECONDS_MIN = 3
COUNTDOWN_HOURS_MAX = 24
DELAY_REFRESH_SECONDS_MAX = 30
SEATS_MAX = 20
SEAT_ID_LENGTH_MAX = 120


@csrf_exempt  # The form's page is shared and has no CSRF token; SameOriginWrites checks the origin instead.
@require_http_methods(["GET", "HEAD", "POST"])
def join(request: HttpRequest, slug: str) -> HttpResponse:
    """Give the browser one entry in the event's queue, and redirect it to choose tickets or to wait.

    The page's script sends an id that all tabs of the browser share, which becomes the browser's identity. Without
    scripts a browser first receives its identity by a redirect that repeats the form, and only then an entry. Either
    way two concurrent first clicks (two tabs, a double click) count as one visitor and create one entry.
    """
    event = events.get_event(slug)
    if request.method != "POST":
        if "delay" in request.GET:
            return _wait_without_script(request, event, request.GET["delay"])
        return redirect("events:event", event.slug)  # A reload or a bookmark: the event's page has the button.
    known = authenticate(request, event.slug)
    secret = "" if known.is_known else _sent_secret(request)
    caller = Caller(visitor_id=visitor_id_of_secret(secret)) if secret else known
    if not caller.is_known:
        return repeat_with_cookie(request, event.slug, reverse("queue:join", args=[event.slug]))
    code = request.POST.get("access_code", "").strip()
    address = partial(client_address.address_from_environ, request.META)
    try:
        access = presale.get_access(event, caller, code, address)
    except problems.Problem as problem:
        return _presale_page(request, event, code, problem)
    try:
        guest_merge.merge_guest_entry(event.id, caller)
        entry = _join_screened(request, event, caller, access)
    except WorkRequired:
        return _check_page(request, event, caller, secret, code)
    except NotOnSale:
        return redirect("events:event", event.slug)  # The event's page shows why: upcoming, closed or canceled.
    except RoomDrained as problem:
        return _page(request, event, _drained_reason(event), status=problem.status)
    except (PresaleOnly, PresaleCodeInUse) as problem:
        return _presale_page(request, event, code, problem)
    except problems.Problem as problem:
        if access is None or problem is not access.refusal:
            raise
        return _presale_page(request, event, code, problem)
    response = redirect("queue:wait", event.slug) if entry.waits else redirect(_choose_url(request, event))
    response.status_code = 303
    response.headers["Cache-Control"] = "no-store"
    if secret:
        set_visitor_cookie(request, response, secret)
    if entry.waits:
        set_place_cookie(request, response, event.slug, entry.id, entry.number)
    if access is not None and code:
        presale.keep_code(request, response, event.slug, code)
    return response


def _choose_url(request: HttpRequest, event: events.EventView) -> str:
    """Return the URL of the selection page, with the seats that the form wants to be selected there."""
    seats = [guid for guid in request.POST.getlist("seats") if len(guid) <= SEAT_ID_LENGTH_MAX][:SEATS_MAX]
    url = reverse("reservations:choose", args=[event.slug])
    return f"{url}?{urlencode({'view': 'list', 'seats': seats}, doseq=True)}" if seats else url


def _presale_page(request: HttpRequest, event: events.EventView, code: str, problem: problems.Problem) -> HttpResponse:
    """Show the condition of the presale, and ask for the access code if that is the condition. After the presale the
    next join needs none."""
    found = event.presale_at(clock.now())
    is_asked = found is not None and found.condition == "code" and not code
    context = {
        "event": event,
        "presale": found,
        "code": code,
        "error": "" if is_asked else problem.detail,
        "is_logged_in": request.user.is_authenticated,
    }
    response = render(request, "queue/presale.html", context, status=problem.status)
    for name, value in problem.headers().items():
        response.headers[name] = value
    return response


def _join_screened(
    request: HttpRequest, event: events.EventView, caller: Caller, access: presale.PresaleAccess | None
) -> positions.EntryView:
    policy = policies.read(event.id)
    address = client_address.address_from_environ(request.META)
    network = recorded_network(event, lambda: address)
    if policy.is_off:
        return positions.join(event, caller, access=access, network=network)
    proof, delay = request.POST.get("proof", ""), request.POST.get("delay", "")
    # A visitor who is in line already needs no work to return to it.
    entry = None if proof or delay else positions.find_entry(event.id, caller)
    result = screening.screen(
        event,
        policy,
        caller,
        address,
        proof=proof,
        delay=delay,
        has_entry=entry is not None and entry.status in QueueEntry.LIVE,
        has_presale_access=presale.opens_entries(access),
    )
    return positions.join(event, caller, result, access=access, network=network)


def _check_page(request: HttpRequest, event: events.EventView, caller: Caller, secret: str, code: str) -> HttpResponse:
    """Show the page whose script solves a challenge and joins. Without scripts it goes on to `_wait_without_script`."""
    address = client_address.address_from_environ(request.META)
    context = {
        "event": event,
        "work": {"challenge": screening.create_challenge(event, caller, address)},
        "visitor_id": secret,
        "access_code": code,
    }
    response = render(request, "queue/check.html", context)
    response.headers["Cache-Control"] = "no-store"
    if secret:
        set_visitor_cookie(request, response, secret)
    return response


def _wait_without_script(request: HttpRequest, event: events.EventView, delay: str) -> HttpResponse:
    """Show the wait that replaces the challenge for a browser without scripts. Joins no visitor: the button does."""
    caller = authenticate(request, event.slug)
    if not caller.is_known or not screening.takes_joins(event):
        return redirect("events:event", event.slug)
    seconds = screening.seconds_left(event, caller, delay) if delay else None
    if seconds is None:
        address = client_address.address_from_environ(request.META)
        delay = screening.create_delay(event, caller, address)
        seconds = screening.seconds_left(event, caller, delay) or 0.0
    whole = math.ceil(seconds)
    context = {"event": event, "delay": delay, "seconds": whole, "presale": event.presale_at(clock.now())}
    context["refresh_seconds"] = min(whole, DELAY_REFRESH_SECONDS_MAX)
    response = render(request, "queue/check_wait.html", context)
    response.headers["Cache-Control"] = "no-store"
    return response


def _sent_secret(request: HttpRequest) -> str:
    """Return the visitor secret that the page's script sent; empty if it is missing or invalid, which is not an
    error."""
    try:
        return check_visitor_secret(request.POST.get("visitor_id", ""))
    except problems.Invalid:
        return ""


@never_cache
@require_safe
def wait(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the visitor's position, or redirect an admitted visitor to choose tickets."""
    event = events.get_event(slug)
    caller = authenticate(request, event.slug)
    guest_merge.merge_guest_entry(event.id, caller)
    place = entry_status.get_status(event, caller) if caller.is_known else None
    if place is None:
        return redirect("events:event", event.slug)
    if place.waits:
        entry_id = caller.entry_id if place.entry is None else place.entry.id
        return _page(request, event, place=place.estimate, entry_id=entry_id)
    if place.is_ready:
        return redirect("reservations:choose", event.slug)
    entry_id = None if place.entry is None else place.entry.id
    return _page(request, event, place.estimate.status, entry_id=entry_id)


@csrf_exempt  # See `join`.
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def leave(request: HttpRequest, slug: str) -> HttpResponse:
    """End the browser's entry."""
    event = events.get_event(slug)
    if request.method == "POST":
        try:
            caller = authenticate(request, event.slug)
            guest_merge.merge_guest_entry(event.id, caller)
            positions.leave(event, caller)
        except (EntryNotFound, problems.TokenMissing):
            return redirect("events:event", event.slug)
        except StillHolding as problem:
            # The page for choosing tickets has a link to the reservation.
            messages.warning(request, problem.title)
            response = redirect("reservations:choose", event.slug)
            response.status_code = 303
            return response
    response = redirect("queue:wait", event.slug)
    response.status_code = 303
    return response


def _drained_reason(event: events.EventView) -> str:
    """Return why the room is drained: sales are over, everything is sold, or an operator has closed it."""
    if event.is_over(clock.now()):
        return "over"
    snapshot = room_snapshot.get_snapshot(event.id)
    return "drained" if snapshot.supply_available == snapshot.supply_held == 0 else "shut"


def _page(
    request: HttpRequest,
    event: events.EventView,
    state: str = "",
    place: WaitEstimate | None = None,
    entry_id: UUID | None = None,
    status: int = 200,
) -> HttpResponse:
    if place is None:
        was_removed = state == "left" and entry_id is not None and operations.was_removed(entry_id)
        context = {"event": event, "state": state, "in_line": False, "was_removed": was_removed}
        return render(request, "queue/wait.html", context, status=status)
    now = clock.now()
    drawing = place.stage == "drawing"
    people_ahead = max(0, (place.ahead or 0) - 1)  # The position includes the visitor.
    opens_at = place.opens_at
    is_far = opens_at is not None and opens_at - now > timedelta(hours=COUNTDOWN_HOURS_MAX)
    context = {
        "event": event,
        "state": "drawing" if drawing else place.status,
        "why_drained": _drained_reason(event) if place.status == "drained" else "",
        "in_line": place.status != "drained",
        "place": place,
        "entry_key": entry_id or "",
        "wait_words": describe_wait(place.status, place.wait_range, place.tickets_left),
        "pace_words": describe_pace(place.status, place.rate),
        "poster_url": reverse("events:poster", args=[event.slug]),
        "odds_words": describe_odds(people_ahead, place.tickets_left),
        "countdown_style": "words" if is_far else "digits",
        "now": now,
        "news": events.newest_announcements(event),
        "refresh_seconds": max(REFRESH_SECONDS_MIN, place.ask_again_ms // 1_000),
    }
    return render(request, "queue/wait.html", context, status=status)
