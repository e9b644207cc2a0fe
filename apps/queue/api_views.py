"""POST, GET and DELETE of one's place in an event's line."""

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.events import facade as events
from apps.kernel.http import problems
from apps.kernel.http.json_body import get_json_object
from apps.kernel.http.openapi import PERSONAL
from apps.queue.cookies import carry_joined, carry_place, joining_as
from apps.queue.entries import positions
from apps.queue.errors import NoPlace
from apps.queue.identity import guest_merge
from apps.queue.identity.caller import caller_of, drop_place, place_of_cookie
from apps.queue.serializers import JoinBody, JoinedPlace, Place, joined_answer, place_answer
from apps.queue.status import status
from apps.queue.status.estimates import outlook


class QueueView(APIView):
    @extend_schema(
        operation_id="join_queue",
        tags=["queue"],
        summary="Join the line; joining again gives the same place",
        request=JoinBody,
        responses={201: JoinedPlace, 409: OpenApiResponse(description="`not-on-sale`, `room-drained`")},
    )
    def post(self, request: Request, event: str) -> Response:
        found = events.get_event(event)
        known = caller_of(request, found.slug)
        caller = joining_as(known, get_json_object(request))
        guest_merge.bring_along_at(found.id, caller)
        entry = positions.join(found, caller)
        response = Response(joined_answer(found, status.stand(found, entry), entry), status=201, headers=PERSONAL)
        carry_joined(request, response, known, caller, entry)
        return response

    @extend_schema(
        operation_id="leave_queue",
        tags=["queue"],
        summary="Give up one's place",
        responses={
            200: Place,
            401: OpenApiResponse(description="`token-missing`, `token-invalid`, `token-expired`"),
            409: OpenApiResponse(description="`still-holding`: give back what you hold first, or pay for it"),
        },
    )
    def delete(self, request: Request, event: str) -> Response:
        found = events.get_event(event)
        caller = caller_of(request, found.slug)
        guest_merge.bring_along_at(found.id, caller)
        entry = positions.leave(found, caller)
        answer = place_answer(found, status.Place(outlook(entry), entry))
        response = Response(answer, headers=PERSONAL)
        drop_place(request, response, found.slug)
        return response


class QueueStatusView(APIView):
    @extend_schema(
        operation_id="queue_status",
        tags=["queue"],
        summary="Where one stands",
        responses={
            200: JoinedPlace,
            401: OpenApiResponse(description="`token-missing`, `token-invalid`, `token-expired`"),
        },
    )
    def get(self, request: Request, event: str) -> Response:
        found = status.event_of(event)
        # What a browser's cookie says is enough to show the wait; at the turn it is asked who it really is.
        caller = place_of_cookie(request, found.slug)
        place = None if caller is None else status.glance(found, caller)
        if caller is None or place is None:
            caller = caller_of(request, found.slug)
            if not caller.is_known:
                raise problems.TokenMissing
            guest_merge.bring_along_at(found.id, caller)
            place = status.look(found, caller)
        if place is None:
            raise NoPlace
        answer = place_answer(found, place)
        response = Response(answer, headers=PERSONAL)
        carry_place(request, response, found, caller, place, answer)
        return response
