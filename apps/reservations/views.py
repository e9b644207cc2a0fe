"""Pages: seat and ticket selection, the reservation, and its release."""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import get_conditional_response
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_safe

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.http import client_address, problems
from apps.queue import facade as queue
from apps.reservations import errors, facade
from apps.reservations.access_codes import cookie
from apps.reservations.access_codes.attempt_limit import count_attempt
from apps.reservations.forms import Choice, describe_problem, read_choice, read_party
from apps.reservations.holds.requests import code_of, is_presale
from apps.reservations.inventory import seat_pages, taken_seats
from apps.reservations.models import Reservation
from apps.reservations.ownership import owned_reservation
from apps.reservations.page_header import held_tickets
from apps.reservations.page_header.equivalent import find_equivalent

SELECTED_MAX = 100
SEAT_ID_LENGTH_MAX = 120
VIEWS = ("map", "list", "best", "quantity")


@dataclass
class _Form:
    """The form's state on the selection page: the selection and the result of the last attempt."""

    selected: Sequence[str] = ()
    general_admission: Mapping[str, str] = field(default_factory=dict)
    best: Mapping[str, Any] = field(default_factory=dict)
    access_code: str | None = None
    """As just submitted; None: use the browser's cookie."""
    opened: Sequence[str] = ()
    """The names of the sections that the checked code opens."""
    errors: Sequence[str] = ()
    taken: Sequence[Mapping[str, str]] = ()
    instead: facade.Offer | None = None
    """Seats side by side for the whole party, if a seat was taken."""
    idempotency_key: str = ""
    status: int = 200


@csrf_exempt  # SameOriginWrites checks instead. Without a token, the page could be cached.
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def choose(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the available tickets, or hold the selected ones and redirect to the reservation."""
    event = events.get_event(slug)
    code = cookie.code_in_query(request) if request.method != "POST" else None
    if code is not None:
        # Remove the code from the URL at once, also for visitors without admission or before the on-sale.
        response: HttpResponse = redirect(cookie.url_without_code(request))
        cookie.save_code(request, response, event.slug, code)
        return response
    caller = queue.authenticate(request, event.slug)
    entry = queue.claim_or_get_entry(event, caller) if caller.is_known else None
    if event.selling_state(clock.now()) != "on_sale":
        return redirect("events:event", event.slug)
    try:
        admitted = _require_admission(request, event, caller, entry)
    except (queue.NotAdmitted, queue.AdmissionExpired) as problem:
        return _not_admitted_response(request, event, entry, problem)
    if request.method == "POST":
        return _hold(request, event, caller, admitted)
    held = facade.live_reservation_of(admitted.id)
    form = _Form(selected=_selected(request.GET.getlist("seats")))
    if section := request.GET.get("ga_section"):
        form.general_admission = {"section": section}
    if held is None:
        return _page(request, event, admitted, form)
    if not request.GET.get("change") or held.pay_deadline is not None:
        messages.info(request, "You already have these tickets reserved. Check out, or change them.")
        return redirect("reservations:reservation", held.id)
    if "view" not in request.GET:
        form.selected = [seat.seat_id for seat in held.seats]
    return _page(request, event, admitted, form, held)


def _require_admission(
    request: HttpRequest, event: events.EventView, caller: queue.Caller, entry: queue.EntryView | None
) -> queue.EntryView:
    """Return the visitor's admission; a new one if the last has expired and no visitor waits, so that a visitor who
    took longer keeps the selection. Raises NotAdmitted and AdmissionExpired."""
    try:
        return queue.require_entry(event.id, entry)
    except queue.AdmissionExpired:
        address = partial(client_address.address_from_environ, request.META)
        again = queue.rejoin_without_line(event, caller, address)
        if again is None:
            raise
        return queue.require_entry(event.id, again)


def _hold(request: HttpRequest, event: events.EventView, caller: queue.Caller, entry: queue.EntryView) -> HttpResponse:
    choice = read_choice(request.POST)
    held = facade.live_reservation_of(entry.id) if "replace" in choice.payload else None
    form = _Form(
        selected=_selected(choice.payload.get("seats", ())),
        general_admission=choice.general_admission,
        best=choice.best,
        access_code=choice.access_code,
        errors=choice.errors,
        status=422 if choice.errors else 200,
    )
    if "use_code" in request.POST:
        return _check_code(request, event, caller, entry, form, held)
    if choice.errors:
        return _page(request, event, entry, form, held)
    try:
        address = client_address.address_from_environ(request.META)
        count_attempt(caller, choice.payload, lambda: address)
        try:
            result = facade.hold_one(event, entry, choice.payload, choice.idempotency_key, address=address)
        except problems.IdempotencyMismatch:
            # The visitor went back in the browser and submitted another selection with the old page's key: a new
            # request, so a new key.
            result = facade.hold_one(event, entry, choice.payload, str(uuid.uuid4()), address=address)
    except (facade.ReservationExpired, facade.ReservationNotFound):
        messages.info(request, "Your reservation has expired and the tickets are back on sale. Choose again.")
        return _see_other("reservations:choose", event.slug)
    except facade.PaymentInProgress as problem:
        messages.warning(request, problem.detail)
        # Normalize the submitted id, which may be in any form that UUID accepts.
        return _see_other("reservations:reservation", uuid.UUID(choice.payload["replace"]))
    except facade.ReservationExists as problem:
        messages.info(request, "You already have these tickets reserved. Check out, or change them.")
        return _see_other("reservations:reservation", problem.extra["reservation"])
    except (queue.NotAdmitted, queue.AdmissionExpired) as problem:
        return _not_admitted_response(request, event, entry, problem)
    except queue.NotOnSale:
        return _see_other("events:event", event.slug)
    except facade.SeatsUnavailable as problem:
        gone = [str(guid) for guid in problem.extra.get("unavailable", ())]
        found = events.seats_by_guid(event.id, gone)
        form.taken = [
            {"section": found[guid].section_name, "row": found[guid].row, "number": found[guid].number}
            for guid in gone
            if guid in found
        ]
        named, form.selected = form.selected, [guid for guid in form.selected if guid not in gone]
        form.status = problem.status
        if request.POST.get("view") != "best":
            form.instead = _offer_instead(request, event, caller, entry, form, named, held)
        return _page(request, event, entry, form, held)
    except problems.Problem as problem:
        form.errors, form.status = describe_problem(problem, choice.best), problem.status
        response = _page(request, event, entry, form, held)
        for name, value in problem.headers().items():
            response.headers[name] = value
        return response
    if "replace" in choice.payload:
        messages.success(request, "Your tickets have been changed. The time to pay is the same as before.")
    reservation_id = uuid.UUID(json.loads(result.body)["reservation_id"])
    response = _see_other("reservations:reservation", reservation_id)
    held_tickets.name_reservation(request, response, reservation_id)
    if choice.access_code:
        cookie.save_code(request, response, event.slug, code_of(choice.access_code) or "")
    return response


def _check_code(
    request: HttpRequest,
    event: events.EventView,
    caller: queue.Caller,
    entry: queue.EntryView,
    form: _Form,
    held: facade.ReservationView | None,
) -> HttpResponse:
    """Render the same page with the sections that the submitted code opens. Keeps the selection, holds nothing."""
    form.errors, form.status = (), 200
    code = code_of(form.access_code)
    headers: Mapping[str, str] = {}
    if code != "":
        try:
            count_attempt(
                caller, {"access_code": form.access_code}, partial(client_address.address_from_environ, request.META)
            )
            if code is None:
                raise errors.AccessCodeWrong
            form.opened = facade.examine_access_code(event, code, entry.buyer)
            form.access_code = code
        except problems.Problem as problem:
            form.errors, form.status, headers = describe_problem(problem, form.best), problem.status, problem.headers()
    response = _page(request, event, entry, form, held)
    for name, value in headers.items():
        response.headers[name] = value
    if form.opened or code == "":
        cookie.save_code(request, response, event.slug, code or "")
    return response


def _page(
    request: HttpRequest,
    event: events.EventView,
    entry: queue.EntryView,
    form: _Form,
    held: facade.ReservationView | None = None,
) -> HttpResponse:
    """Render the selection page. `held`: the reservation to be replaced, whose tickets count as available to this
    visitor."""
    # Prices include unavoidable fees and taxes, as on the order.
    presale = event.policy.presale
    in_presale = (
        presale is not None
        and presale.condition == "code"
        and is_presale(event, entry)
        and not queue.has_vip_link(entry.id)
    )
    sections = [section.at_full_prices(event.price_policy) for section in events.list_sections(event.id)]
    free = facade.free_counts(section.id for section in sections)
    own = held.by_section if held is not None else {}
    for section_id, count in own.items():
        free[section_id] += count
    if not any(free.values()) and not form.errors and not form.taken:
        return render(request, "reservations/sold_out.html", {"event": event})
    has_seats = any(not section.is_general_admission for section in sections)
    general = [section for section in sections if section.is_general_admission]
    has_general_admission = bool(general)
    general_admission = dict(form.general_admission)
    if len(general) == 1:
        # Several sections have different prices: none is selected for the visitor.
        general_admission.setdefault("section", general[0].slug)
    limit = facade.ticket_limit(event, entry.buyer, held)
    requested = (request.POST if request.method == "POST" else request.GET).get("view", "")
    offered = [view for view in VIEWS if (has_general_admission if view == "quantity" else has_seats)]
    view = requested if requested in offered else offered[0]
    context: dict[str, Any] = {
        "event": event,
        "view": view,
        "has_seats": has_seats,
        "has_general_admission": has_general_admission,
        "sections": [
            {
                "slug": section.slug,
                "name": section.name,
                "kind": section.kind,
                "available": free[section.id],
                "own": own.get(section.id, 0),
                "capacity": section.capacity,
                "prices": section.prices,
                "needs_access": section.needs_access or in_presale,
            }
            for section in sections
        ],
        "guarded": [section.name for section in sections if section.needs_access or in_presale],
        "access_code": cookie.saved_code(request) if form.access_code is None else form.access_code,
        "opened": form.opened,
        "categories": _categories(sections, view),
        "price_steps": sorted({one["price_minor"] for one in _categories(sections, "best")}, reverse=True),
        "price_words": event.price_policy.words(
            event.currency, {price.tax_rate for section in sections for price in section.prices}
        ),
        "order_fee_minor": event.price_policy.order_fee_total_minor,
        "fee_on_free": not event.price_policy.waives_fees_when_free,
        "currency": event.currency,
        "limit": limit or event.policy.seats_per_reservation_max,
        "cap_reached": event.policy.per_buyer_max if not limit else None,
        # With its version: browsers cache the plan for minutes, and prices may change meanwhile.
        "plan_url": f"{reverse('events:plan', args=[event.slug])}?v={events.plan_version(event.id)}",
        "status_url": reverse("reservations:status", args=[event.slug]) + ("?change=1" if held is not None else ""),
        "choose_until": _choose_until(event, entry, held),
        "keep": "&change=1" if held is not None else "",
        "held": held.shown() if held is not None else None,
        "keeps_code": held is not None and held.has_access_code,
        "own_seats": [seat.seat_id for seat in held.seats] if held is not None else [],
        "idempotency_key": str(uuid.uuid4()),
        "selected": list(form.selected),
        "form_errors": form.errors,
        "taken_seats": form.taken,
        "general_admission": general_admission,
        "best": form.best,
    }
    if form.instead is not None:
        context["instead"] = _shown_offer(form.instead, event)
    if view == "list":
        context |= _seat_list_context(request, event, sections, form, held)
    if view == "best":
        context |= _offers_context(request, event, entry, form, held, limit)
    return render(request, "reservations/choose.html", context, status=form.status)


def _choose_until(
    event: events.EventView, entry: queue.EntryView, held: facade.ReservationView | None
) -> datetime | None:
    """Return the deadline that the selection page counts down to. Without a waiting room no visitor waits for the slot,
    so that there is nothing to hurry for before the tickets are reserved."""
    if held is not None:
        return held.reserved_until
    return entry.admission_expires_at if event.policy.room is not None else None


def _seat_list_context(
    request: HttpRequest,
    event: events.EventView,
    sections: Sequence[events.SectionView],
    form: _Form,
    held: facade.ReservationView | None,
) -> dict[str, Any]:
    """Return the seats of one section by row, one page of them."""
    reserved = [section for section in sections if not section.is_general_admission]
    requested = request.GET.get("section", "")
    if not requested and form.selected:
        # After a failed hold, show the section of the first selected seat.
        chosen = events.seats_by_guid(event.id, form.selected)
        requested = next((chosen[guid].section_slug for guid in form.selected if guid in chosen), "")
    section = next((one for one in reserved if one.slug == requested), reserved[0])
    sent = request.POST if request.method == "POST" else request.GET
    page = seat_pages.find_page(sent.get("page", ""), section)
    seats = events.section_seats(section.id, page.first - 1, seat_pages.SEATS_MAX)
    taken = _without_own(facade.seat_statuses(seat_id__in=[seat.id for seat in seats]), held)
    rows: dict[str, list[dict[str, Any]]] = {}
    for seat in seats:
        rows.setdefault(seat.row, []).append(
            {
                "seat_id": seat.guid,
                "number": seat.number,
                "category_name": seat.category_name,
                "color": seat.color,
                "price_minor": event.price_policy.place_total_minor(seat.price_minor, seat.tax_rate),
                "status": taken.get(seat.id, "available"),
                "accessible": seat.accessible,
                "companion": seat.companion,
            }
        )
    here = {seat["seat_id"] for row in rows.values() for seat in row}
    return {
        "list_section": {"slug": section.slug, "name": section.name, "needs_access": section.needs_access},
        "list_rows": [{"row": row, "seats": seats} for row, seats in rows.items()],
        "list_page": page,
        "selected_elsewhere": [guid for guid in form.selected if guid not in here],
    }


def _offers_context(
    request: HttpRequest,
    event: events.EventView,
    entry: queue.EntryView,
    form: _Form,
    held: facade.ReservationView | None,
    limit: int,
) -> dict[str, Any]:
    """Return the party, by default two anywhere at any price, and the offers for it."""
    choice = Choice("", best=dict(form.best))
    if not choice.best:
        sent = request.GET.copy()
        sent.setdefault("best_quantity", str(max(1, min(2, limit))))
    else:
        sent = QueryDict(mutable=True)
        sent.update({f"best_{name}": value for name, value in form.best.items()})
    asked = read_party(sent, choice)
    context: dict[str, Any] = {
        "best": choice.best,
        "party_errors": choice.errors if not form.errors else (),
        "offers": [],
    }
    if choice.errors:
        return context
    caller = queue.authenticate(request, event.slug)
    code = cookie.saved_code(request) if form.access_code is None else form.access_code
    try:
        count_attempt(caller, {"access_code": code}, partial(client_address.address_from_environ, request.META))
        offers = facade.propose_offers(
            event, entry, asked, access_code=code, replaces=held.id if held is not None else None
        )
    except problems.Problem as problem:
        if not form.errors:
            context["party_errors"] = describe_problem(problem, choice.best)
        return context
    return context | {"offers": [_shown_offer(offer, event) for offer in offers]}


def _offer_instead(
    request: HttpRequest,
    event: events.EventView,
    caller: queue.Caller,
    entry: queue.EntryView,
    form: _Form,
    named: Sequence[str],
    held: facade.ReservationView | None,
) -> facade.Offer | None:
    """Return seats side by side for all whose seats were named, in the section and category of those; None if
    there are none, or if the named seats are of several kinds."""
    seats = list(events.seats_by_guid(event.id, named).values())
    kinds = {(seat.section_slug, seat.category) for seat in seats}
    if len(kinds) != 1 or any(seat.accessible or seat.companion for seat in seats):
        return None
    ((section, category),) = kinds
    asked = {"quantity": len(seats), "section": section, "category": category}
    try:
        count_attempt(
            caller, {"access_code": form.access_code}, partial(client_address.address_from_environ, request.META)
        )
        offers = facade.propose_offers(
            event, entry, asked, access_code=form.access_code, replaces=held.id if held is not None else None
        )
    except problems.Problem:
        return None
    return next((offer for offer in offers if offer.is_together), None)


def _shown_offer(offer: facade.Offer, event: events.EventView) -> dict[str, Any]:
    policy = event.price_policy
    prices = [policy.place_total_minor(seat.price_minor, seat.tax_rate) for seat in offer.seats]
    return {
        "seat_ids": offer.seat_ids,
        "count": len(offer.seats),
        "section": offer.seats[0].section_name,
        "rows": [{"row": row, "seats": _numbers(numbers), "count": len(numbers)} for row, numbers in offer.rows],
        "categories": {seat.category_name: seat.color for seat in offer.seats}.items(),
        "price_min_minor": min(prices),
        "price_max_minor": max(prices),
        "total_minor": offer.bill(policy).total_minor,
        "is_together": offer.is_together,
        "spaces": sum(seat.accessible for seat in offer.seats),
    }


def _numbers(numbers: Sequence[str]) -> str:
    """Return "4", "4 and 5", "4 to 7", or "4, 6 and 7"."""
    if all(number.isascii() and number.isdigit() for number in numbers):
        ordered = sorted(numbers, key=int)
        if len(ordered) > 2 and int(ordered[-1]) - int(ordered[0]) == len(ordered) - 1:
            return f"{ordered[0]} to {ordered[-1]}"
        numbers = ordered
    return numbers[0] if len(numbers) == 1 else f"{', '.join(numbers[:-1])} and {numbers[-1]}"


def _without_own(taken: Mapping[int, str], held: facade.ReservationView | None) -> Mapping[int, str]:
    """Return the taken seats without those of the reservation to be replaced."""
    own = {seat.seat_pk for seat in held.seats} if held is not None else set()
    return {seat_id: status for seat_id, status in taken.items() if seat_id not in own}


def _categories(sections: Sequence[events.SectionView], view: str) -> list[dict[str, Any]]:
    """Return the shown price categories, most expensive first; the best-available view has those of seats only."""
    found = {
        price.category: {
            "key": price.category,
            "name": price.name,
            "color": price.color,
            "price_minor": price.price_minor,
        }
        for section in sections
        if view != "best" or not section.is_general_admission
        for price in section.prices
    }
    return sorted(found.values(), key=lambda category: (-category["price_minor"], category["name"]))


@never_cache
@require_safe
def status(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Return the taken seats for the map, as indexes into the seats of the event's plan."""
    event = events.get_event(slug)
    caller = queue.authenticate(request, event.slug)
    if not caller.is_known:
        return problems.respond(problems.TokenMissing())
    try:
        entry = queue.require_entry(event.id, queue.claim_or_get_entry(event, caller))
    except (queue.NotAdmitted, queue.AdmissionExpired) as problem:
        return problems.respond(problem)
    held = facade.live_reservation_of(entry.id) if request.GET.get("change") else None
    sections = events.list_sections(event.id)
    general_admission = [section for section in sections if section.is_general_admission]
    seat_count = sum(section.capacity for section in sections if not section.is_general_admission)
    taken = taken_seats.find_taken(event.id, seat_count)
    own = {seat.seat_pk for seat in held.seats} if held is not None else set()
    free = facade.free_counts(section.id for section in general_admission)
    as_of = clock.iso(clock.now())
    state = {
        "taken": [index for seat_id, index in taken.items() if seat_id not in own],
        "general_admission": {section.slug: free[section.id] for section in general_admission},
    }
    etag = f'"{hashlib.sha256(json.dumps(state).encode()).hexdigest()[:24]}"'
    body = json.dumps({**state, "as_of": as_of}, separators=(",", ":"))
    response = HttpResponse(body, content_type="application/json", headers={"ETag": etag})
    return get_conditional_response(request, etag=etag, response=response) or response


@never_cache
@require_safe
def reservation(request: HttpRequest, reservation_id: uuid.UUID) -> HttpResponse:
    """Show the visitor's reservation and its deadline."""
    held = owned_reservation(request, reservation_id)
    shown = held.shown()
    context = {
        "reservation": shown,
        "is_single": len(shown["seats"]) + sum(line["quantity"] for line in shown["general_admission"]) == 1,
        # Checkout redirects to the order if there is one.
        "order_url": reverse("orders:checkout", args=[held.id]) if held.status in ("paying", "confirmed") else "",
    }
    if held.status == Reservation.Status.EXPIRED:
        context |= _after_expiry(held)
    response = render(request, "reservations/reservation.html", context)
    if held.is_live:
        held_tickets.name_reservation(request, response, held.id)  # Also a hold made by another client.
    return response


def _after_expiry(ended: facade.ReservationView) -> dict[str, Any]:
    """Return what the page of an expired hold offers instead: equivalent tickets, and whether the visitor may choose
    them at once or has to get in again."""
    event = ended.event
    if event.selling_state(clock.now()) != "on_sale":
        return {"is_on_sale": False}
    entry = queue.entry_by_id(ended.entry_id)
    return {
        "is_on_sale": True,
        "equivalent": find_equivalent(ended),
        "may_choose": entry is not None and entry.is_ready,
        "has_room": event.policy.room is not None,
    }


@csrf_exempt  # See `choose`.
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def release(request: HttpRequest, reservation_id: uuid.UUID) -> HttpResponse:
    """Release the reservation."""
    if request.method == "POST":
        held = owned_reservation(request, reservation_id)
        try:
            facade.release(held.id, held.buyer)
        except facade.PaymentInProgress as problem:
            messages.warning(request, problem.detail)
    return _see_other("reservations:reservation", reservation_id)


def _not_admitted_response(
    request: HttpRequest, event: events.EventView, entry: queue.EntryView | None, problem: problems.Problem
) -> HttpResponse:
    """Return the response to a visitor without a valid admission: the waiting room, or the page to join (again)."""
    if entry is not None and isinstance(problem, queue.NotAdmitted):
        return _see_other("queue:wait", event.slug)
    context = {
        "event": event,
        "expired": isinstance(problem, queue.AdmissionExpired),
        "has_room": event.policy.room is not None,
    }
    # A visitor who opens the page directly has made no mistake: the page explains how to join.
    is_visit = request.method != "POST" and isinstance(problem, queue.NotAdmitted)
    response = render(request, "reservations/join_first.html", context, status=200 if is_visit else problem.status)
    for name, value in problem.headers().items():
        response.headers[name] = value
    return response


def _selected(guids: Sequence[Any]) -> list[str]:
    """Return the submitted seat ids without duplicates, limited in number and length."""
    texts = [guid for guid in guids if isinstance(guid, str) and 0 < len(guid) <= SEAT_ID_LENGTH_MAX]
    return list(dict.fromkeys(texts))[:SELECTED_MAX]


def _see_other(name: str, argument: Any) -> HttpResponse:
    response = redirect(name, argument)
    response.status_code = 303
    return response
