"""API view for a buyer's return of tickets."""

from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.kernel.http import idempotency
from apps.kernel.http.json_body import get_json_object
from apps.kernel.http.openapi import IDEMPOTENCY_KEY, NOT_CHANGEABLE, ORDER_CALLER
from apps.orders import access
from apps.orders.returns.returns import return_idempotently
from apps.orders.serializers import ReturnAnswerSerializer, ReturnSerializer


class ReturnTickets(APIView):
    @extend_schema(
        operation_id="return_tickets",
        tags=["orders"],
        summary="Return tickets if the organizer allows it. They are void at once; the refund follows",
        auth=ORDER_CALLER,
        parameters=[IDEMPOTENCY_KEY],
        request=ReturnSerializer,
        responses={
            202: ReturnAnswerSerializer,
            400: OpenApiResponse(description="`idempotency-key-required`, `malformed`"),
            403: NOT_CHANGEABLE,
            409: OpenApiResponse(
                description="`return-not-allowed`, `order-not-returnable`, `tickets-not-valid`, `tickets-checked-in`, "
                "`idempotency-in-progress`"
            ),
            422: OpenApiResponse(description="`invalid`, `idempotency-mismatch`"),
        },
    )
    def post(self, request: Request, order_id: UUID) -> HttpResponse:
        order = access.get_changeable_order(request, order_id)
        key = idempotency.key_of(request._request)
        network = access.network_of(request._request)
        return idempotency.response_of(return_idempotently(order.id, get_json_object(request), key, network))
