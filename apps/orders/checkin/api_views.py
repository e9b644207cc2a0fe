"""API views of check-in at the doors of a venue."""

from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.events import facade as events
from apps.kernel.db import sql
from apps.kernel.http import problems
from apps.kernel.http.json_body import (
    JSONBodyOfAnyText,
    get_json_object,
    refuse_unknown_fields,
    require_storable,
)
from apps.kernel.http.openapi import NO_STORE_HEADERS
from apps.orders.checkin.check_in import SCANS_MAX, scan
from apps.orders.checkin.counts import count_entered
from apps.orders.checkin.door_links import Doorkeeper, authenticate_doorkeeper
from apps.orders.checkin.scan_messages import to_contract
from apps.orders.checkin.scan_parser import read_scan
from apps.orders.checkin.serializers import (
    SCAN,
    BatchAnswersSerializer,
    BatchSerializer,
    CountsSerializer,
    ScanAnswerSerializer,
)

_FORBIDDEN = OpenApiResponse(description="`door-closed`: no permission, or a door link that is not valid")
_EVENT_NOT_FOUND = OpenApiResponse(description="`not-found`: no such event")


class CheckIn(APIView):
    @extend_schema(
        operation_id="count_entered",
        tags=["door"],
        summary="Count valid tickets and check-ins by section",
        responses={200: CountsSerializer, 403: _FORBIDDEN, 404: _EVENT_NOT_FOUND},
    )
    def get(self, request: Request, event: str) -> Response:
        found = events.get_event(event)
        authenticate_doorkeeper(request, found)
        return Response(count_entered(found.id).contract(), headers=NO_STORE_HEADERS)

    @extend_schema(
        operation_id="check_in",
        tags=["door"],
        summary="Scan a ticket, once per scan_id. Every decided scan returns 200 with its outcome",
        request=SCAN,
        responses={
            200: ScanAnswerSerializer,
            403: _FORBIDDEN,
            404: _EVENT_NOT_FOUND,
            422: OpenApiResponse(description="`invalid`; `idempotency-mismatch`: the id was used for another code"),
        },
    )
    def post(self, request: Request, event: str) -> Response:
        found = events.get_event(event)
        keeper = authenticate_doorkeeper(request, found)
        sent = read_scan(get_json_object(request), door=keeper.door)
        answer = scan(found, sent, keeper.who, only_own=keeper.only_own)
        return Response(to_contract(found, answer), headers=NO_STORE_HEADERS)


class CheckInBatch(APIView):
    # A QR code can have any text: a scan that cannot be stored refuses no other.
    parser_classes = (JSONBodyOfAnyText,)

    @extend_schema(
        operation_id="check_in_batch",
        tags=["door"],
        summary="Submit scans that a device queued offline. They are decided in order, each independently",
        request=BatchSerializer,
        responses={
            200: BatchAnswersSerializer,
            403: _FORBIDDEN,
            404: _EVENT_NOT_FOUND,
            422: OpenApiResponse(description="`invalid`: no list, or more than 20"),
        },
    )
    def post(self, request: Request, event: str) -> Response:
        found = events.get_event(event)
        authenticate_doorkeeper(request, found)
        body = get_json_object(request)
        require_storable(list(body))
        refuse_unknown_fields(body, ("scans",))
        scans = body.get("scans")
        if not isinstance(scans, list) or not 1 <= len(scans) <= SCANS_MAX:
            raise problems.Invalid({"scans": f"must be a list of 1 to {SCANS_MAX} scans"})
        answers = []
        for each in scans:
            # A batch takes seconds, and a link may be revoked meanwhile. The refusal is for all scans: the device keeps
            # them, and sends them again when it may.
            keeper = authenticate_doorkeeper(request, found)
            answers.append(_check_in_one(found, keeper, each))
        return Response({"answers": answers}, headers=NO_STORE_HEADERS)


def _check_in_one(event: events.EventView, keeper: Doorkeeper, sent: Any) -> dict[str, Any]:
    scan_id = sent.get("scan_id") if isinstance(sent, dict) else None
    is_text = isinstance(scan_id, str) and sql.is_text(scan_id)
    result: dict[str, Any] = {"scan_id": scan_id if is_text else "", "answer": None, "problem": None}
    try:
        require_storable(sent)
        parsed = read_scan(sent, door=keeper.door)
        result["answer"] = to_contract(event, scan(event, parsed, keeper.who, only_own=keeper.only_own))
    except problems.Problem as problem:
        result["problem"] = problem.document()
    return result
