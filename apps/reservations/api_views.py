"""API of availability and holds: sections, seats, reservations."""

import json
import uuid
from functools import partial

from django.conf import settings
from django.http import HttpResponse, HttpResponseBase
from django.utils.cache import get_conditional_response, patch_cache_control
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.http import client_address, idempotency, problems
from apps.kernel.http.json_body import get_json_object
from apps.kernel.http.openapi import (
    IDEMPOTENCY_KEY,
    NO_STORE_HEADERS,
    NOT_MODIFIED,
    NOT_YOURS,
    OPTIONAL_CALLER,
    whole_number,
)
from apps.queue import facade as queue
from apps.reservations import facade, serializers
from apps.reservations.access_codes.attempt_limit import count_attempt
from apps.reservations.counts.counts_json import count_frame
from apps.reservations.ownership import owned_reservation
from apps.reservations.page_header import held_tickets

PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 500
PAGE_MAX = 100_000
_OFFER_FIELDS = frozenset({"best_available", "access_code", "replace"})
_NOT_READY = OpenApiResponse(description="`not-admitted`, with Retry-After")
_ADMISSION_EXPIRED = OpenApiResponse(description="`admission-expired`: join again")


class SectionsView(APIView):
    @extend_schema(
        operation_id="list_sections",
        tags=["availability"],
        summary="List the sections with the number of available tickets",
        auth=[],
        responses={200: serializers.Sections, 304: NOT_MODIFIED},
    )
    def get(self, request: Request, event: str) -> HttpResponseBase:
        frame = count_frame(event)
        response = HttpResponse(frame.body, content_type="application/json", headers={"ETag": frame.etag})
        patch_cache_control(response, public=True, max_age=settings.CACHE_COUNTS_SECONDS)
        return get_conditional_response(request._request, etag=frame.etag, response=response) or response


class UpdatesView(APIView):
    """Documentation of the endpoint that `live.endpoints` serves in `web` before Django is reached. A request that
    still reaches this view gets 503, as if all connections were in use, and the client polls the counts instead."""

    @extend_schema(
        operation_id="listen_to_updates",
        tags=["availability"],
        summary="Receive live updates: as server-sent events, over a WebSocket, or by polling",
        auth=OPTIONAL_CALLER,
        parameters=[
            OpenApiParameter(
                "section",
                {"type": "array", "maxItems": serializers.SECTIONS_MAX, "items": {"type": "string"}},
                description="Include these sections' seats; requires an admission.",
            ),
            OpenApiParameter("reservation", uuid.UUID, description="Include this reservation; for its owner."),
            OpenApiParameter("order", uuid.UUID, description="Include this order; for its owner."),
            OpenApiParameter("since", str, description="The id of the last received frame, like Last-Event-ID."),
        ],
        responses={
            (200, "application/json"): serializers.Updates,
            (200, "text/event-stream"): OpenApiResponse(str, description="The same frames as a stream of events"),
            304: NOT_MODIFIED,
            403: NOT_YOURS,
            410: _ADMISSION_EXPIRED,
            429: _NOT_READY,
            503: OpenApiResponse(description="`busy`: all connections are in use"),
        },
    )
    def get(self, request: Request, event: str) -> HttpResponseBase:
        events.get_event(event)
        raise problems.Busy


class SeatsView(APIView):
    @extend_schema(
        operation_id="list_seats",
        tags=["availability"],
        summary="List a section's seats by row, front row first",
        parameters=[
            OpenApiParameter("page", whole_number(1, PAGE_MAX), default=1),
            OpenApiParameter("page_size", whole_number(1, PAGE_SIZE_MAX), default=PAGE_SIZE_DEFAULT),
        ],
        responses={200: serializers.Seats, 410: _ADMISSION_EXPIRED, 429: _NOT_READY},
    )
    def get(self, request: Request, event: str, section: str) -> Response:
        found = events.get_event(event)
        queue.require_entry(found.id, _entry_of(request, found))
        wrong: dict[str, str] = {}
        page = _parse_count(request, "page", 1, PAGE_MAX, wrong)
        page_size = _parse_count(request, "page_size", PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, wrong)
        if wrong:
            raise problems.Invalid(wrong)
        view = next((one for one in events.list_sections(found.id) if one.slug == section), None)
        if view is None:
            raise problems.NotFound("There is no such section.")
        total = 0 if view.is_general_admission else view.capacity
        seats = events.section_seats(view.id, (page - 1) * page_size, page_size) if total else []
        taken = facade.seat_statuses(seat_id__in=[seat.id for seat in seats]) if seats else {}
        payload = {
            "seats": [
                {
                    "seat_id": seat.guid,
                    "row": seat.row,
                    "number": seat.number,
                    "category": seat.category,
                    "status": taken.get(seat.id, "available"),
                    "accessible": seat.accessible,
                }
                for seat in seats
            ],
            "page": page,
            "page_size": page_size,
            "total": total,
        }
        return Response(payload, headers=NO_STORE_HEADERS)


class OffersView(APIView):
    @extend_schema(
        operation_id="list_offers",
        tags=["reservations"],
        summary="Get up to three offers of seats for a party; holds nothing",
        description="To take an offer, hold its seats.",
        request=serializers.OffersBody,
        responses={
            200: serializers.Offers,
            400: OpenApiResponse(description="`malformed`"),
            403: OpenApiResponse(description="`access-code-required`, `access-code-wrong`, `not-owner`"),
            409: OpenApiResponse(
                description="`access-code-used-up`, `access-code-buyer-limit`, `access-code-not-valid`, `not-on-sale`"
            ),
            410: _ADMISSION_EXPIRED,
            422: OpenApiResponse(description="`invalid`"),
            429: OpenApiResponse(description="`not-admitted`, `rate-limited`, with Retry-After"),
        },
    )
    def post(self, request: Request, event: str) -> Response:
        found = events.get_event(event)
        caller = queue.authenticate(request, found.slug)
        entry = queue.require_entry(found.id, _entry_of(request, found))
        queue.require_on_sale(found, clock.now())
        body = get_json_object(request)
        wrong = {str(name)[:80]: "unknown field" for name in body if name not in _OFFER_FIELDS}
        if wrong:
            raise problems.Invalid(wrong)
        replaces = None
        if body.get("replace") is not None:
            held = facade.live_reservation_of(entry.id)
            if held is None or str(held.id) != body["replace"]:
                raise facade.ReservationNotFound
            replaces = held.id
        count_attempt(caller, body, partial(client_address.address_from_environ, request.META))
        offers = facade.propose_offers(
            found, entry, body.get("best_available"), access_code=body.get("access_code"), replaces=replaces
        )
        return Response({"offers": [offer.contract(found) for offer in offers]}, headers=NO_STORE_HEADERS)


class ReservationsView(APIView):
    @extend_schema(
        operation_id="hold",
        tags=["reservations"],
        summary="Hold seats, general-admission tickets or the best available seats, all or nothing; or replace a hold",
        parameters=[IDEMPOTENCY_KEY],
        request=serializers.HoldBody,
        responses={
            201: serializers.ReservationState,
            400: OpenApiResponse(description="`idempotency-key-required`, `malformed`"),
            403: OpenApiResponse(
                description="`access-code-required`, `access-code-wrong`; `not-owner` of the reservation to replace, "
                "`token-wrong-event`"
            ),
            404: OpenApiResponse(description="No such event, or no reservation with that id to replace"),
            409: OpenApiResponse(
                description="`seats-unavailable`, `sold-out`, `not-enough-left`, `reservation-exists`, `purchase-cap`, "
                "`access-code-used-up`, `access-code-buyer-limit`, `access-code-not-valid`, `not-on-sale`, "
                "`idempotency-in-progress`, `payment-in-progress`"
            ),
            410: OpenApiResponse(
                description="`admission-expired`: join again; `reservation-expired`: the reservation to replace"
            ),
            422: OpenApiResponse(description="`invalid`, `idempotency-mismatch`"),
            429: OpenApiResponse(description="`not-admitted`, `rate-limited`, with Retry-After"),
        },
    )
    def post(self, request: Request, event: str) -> HttpResponse:
        gate_asked = _check_gate(request, event)
        found = events.get_event(event)
        entry = _entry_of(request, found)
        key = idempotency.key_of(request._request)
        body = get_json_object(request)
        # The admission is checked under the entry's lock, after the key: a retry of a lost response gets the stored
        # response even if the admission has expired meanwhile.
        if entry is None:
            raise queue.NotAdmitted
        address = client_address.address_from_environ(request.META)
        result = facade.hold_one(found, entry, body, key, address=address, gate_asked=gate_asked)
        response = HttpResponse(
            result.body, status=result.status, content_type="application/json", headers=NO_STORE_HEADERS
        )
        held_tickets.name_reservation_of_browser(
            request._request, response, uuid.UUID(json.loads(result.body)["reservation_id"])
        )
        return response


class ReservationView(APIView):
    @extend_schema(
        operation_id="get_reservation",
        tags=["reservations"],
        summary="Get a reservation",
        responses={200: serializers.ReservationDetail, 403: NOT_YOURS},
    )
    def get(self, request: Request, reservation_id: uuid.UUID) -> Response:
        return Response(owned_reservation(request, reservation_id).contract(), headers=NO_STORE_HEADERS)

    @extend_schema(
        operation_id="release_reservation",
        tags=["reservations"],
        summary="Release a reservation; idempotent",
        responses={
            200: serializers.ReservationDetail,
            403: NOT_YOURS,
            409: OpenApiResponse(description="`payment-in-progress`"),
        },
    )
    def delete(self, request: Request, reservation_id: uuid.UUID) -> Response:
        held = owned_reservation(request, reservation_id)
        return Response(facade.release(held.id, held.buyer).contract(), headers=NO_STORE_HEADERS)


def _check_gate(request: Request, event_slug: str) -> bool:
    """Return whether the gate was asked; raise its refusal. Other errors of the request are reported later, in the
    usual order, except an unreadable body, since a body can be read only once."""
    try:
        caller = queue.authenticate(request, event_slug)
        key = idempotency.key_of(request._request)
    except problems.Problem:
        return False
    body = get_json_object(request)
    if caller.is_known:
        count_attempt(caller, body, partial(client_address.address_from_environ, request.META))
    return facade.refuse_by_gate(event_slug, caller, body, key)


def _entry_of(request: Request, event: events.EventView) -> queue.EntryView | None:
    """Return the caller's entry in this event's queue, if any. Raises TokenMissing for an anonymous caller."""
    caller = queue.authenticate(request, event.slug)
    if not caller.is_known:
        raise problems.TokenMissing
    return queue.claim_or_get_entry(event, caller)


def _parse_count(request: Request, name: str, default: int, most: int, wrong: dict[str, str]) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) <= 9 and 1 <= int(given) <= most):
        wrong[name] = f"a whole number from 1 to {most} is expected"
        return default
    return int(given)
