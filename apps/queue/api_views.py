"""Join, poll and leave an event's queue."""

from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.events import facade as events
from apps.kernel.http import client_address, problems
from apps.kernel.http.json_body import get_json_object
from apps.kernel.http.openapi import NO_STORE_HEADERS, OPTIONAL_CALLER
from apps.kernel.proof_of_work.challenges import WorkRequired
from apps.queue.cookies import resolve_joining_caller, set_join_cookies, update_place_cookie
from apps.queue.entries import positions, presale
from apps.queue.errors import EntryNotFound
from apps.queue.identity import guest_merge
from apps.queue.identity.caller import Caller, authenticate, caller_from_place_cookie, delete_place_cookie
from apps.queue.identity.networks import recorded_network
from apps.queue.screening.policy import policies
from apps.queue.screening.screen import add_challenge, screen
from apps.queue.serializers import JoinBody, JoinedPlace, Place, join_answer, status_answer
from apps.queue.status import status
from apps.queue.status.estimates import estimate


def _join(
    request: Request, event: events.EventView, caller: Caller, secret: str, body: dict[str, Any]
) -> positions.EntryView:
    policy, address = policies.read(event.id), client_address.address_from_environ(request.META)
    access = presale.get_access(event, caller, body.get("access_code"), lambda: address)
    has_entry = caller.entry_id is not None or caller_from_place_cookie(request, event.slug) is not None
    try:
        screening = screen(
            event,
            policy,
            caller,
            address,
            proof=body.get("proof") or "",
            has_entry=has_entry,
            has_presale_access=presale.opens_entries(access),
        )
        network = recorded_network(event, lambda: address)
        return positions.join(event, caller, screening, access=access, network=network)
    except WorkRequired as refusal:
        raise add_challenge(refusal, event, caller, secret, address) from None


class QueueView(APIView):
    @extend_schema(
        operation_id="join_queue",
        tags=["queue"],
        summary="Join the queue; joining again returns the same entry",
        auth=OPTIONAL_CALLER,
        request=JoinBody,
        responses={
            201: JoinedPlace,
            403: OpenApiResponse(description="`presale-only`, `access-code-wrong`"),
            409: OpenApiResponse(
                description="`not-on-sale`, `room-drained`, `access-code-not-valid`, `access-code-used-up`, "
                "`access-code-buyer-limit`, `presale-code-in-use`, `already-signed-up`"
            ),
            428: OpenApiResponse(description="`work-required`: solve `challenge`, then join again with the `proof`"),
        },
    )
    def post(self, request: Request, event: str) -> Response:
        found = events.get_event(event)
        known = authenticate(request, found.slug)
        body = get_json_object(request)
        caller, secret = resolve_joining_caller(known, body)
        guest_merge.merge_guest_entry(found.id, caller)
        entry = _join(request, found, caller, secret, body)
        response = Response(
            join_answer(found, status.status_of_entry(found, entry), entry, caller),
            status=201,
            headers=NO_STORE_HEADERS,
        )
        set_join_cookies(request, response, secret, entry)
        return response

    @extend_schema(
        operation_id="leave_queue",
        tags=["queue"],
        summary="Leave the queue",
        responses={
            200: Place,
            409: OpenApiResponse(description="`still-holding`: first pay for your reservation or release it"),
        },
    )
    def delete(self, request: Request, event: str) -> Response:
        found = events.get_event(event)
        caller = authenticate(request, found.slug)
        guest_merge.merge_guest_entry(found.id, caller)
        entry = positions.leave(found, caller)
        answer = status_answer(found, status.QueueStatus(estimate(entry), entry), caller)
        response = Response(answer, headers=NO_STORE_HEADERS)
        delete_place_cookie(request, response, found.slug)
        return response


class QueueStatusView(APIView):
    @extend_schema(
        operation_id="queue_status",
        tags=["queue"],
        summary="Get your position in the queue",
        responses={200: JoinedPlace},
    )
    def get(self, request: Request, event: str) -> Response:
        found = events.read_cached_event(event)
        # While the visitor waits, the place cookie is enough. All other callers are authenticated.
        caller = caller_from_place_cookie(request, found.slug)
        place = None if caller is None else status.status_from_snapshot(found, caller)
        if caller is None or place is None:
            caller = authenticate(request, found.slug)
            if not caller.is_known:
                raise problems.TokenMissing
            guest_merge.merge_guest_entry(found.id, caller)
            place = status.get_status(found, caller)
        if place is None:
            raise EntryNotFound
        answer = status_answer(found, place, caller)
        response = Response(answer, headers=NO_STORE_HEADERS)
        update_place_cookie(request, response, found, caller, place, answer)
        return response
