"""The API view of "Find my order"."""

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.kernel.http.json_body import get_json_object
from apps.kernel.http.openapi import NO_STORE_HEADERS
from apps.orders.lookup.order_lookup import request_order_list
from apps.orders.serializers import OrderLookupSerializer


class FindOrders(APIView):
    @extend_schema(
        operation_id="find_orders",
        tags=["orders"],
        summary="Mail the orders of an email address to this address",
        description="The response is the same with and without orders. Each link of the mail opens an order; for a "
        "while it also confirms the mailbox, as `POST /api/orders/{order_id}/confirmation` does.",
        auth=[],
        request=OrderLookupSerializer,
        responses={
            204: None,
            400: OpenApiResponse(description="`malformed`"),
            422: OpenApiResponse(description="`invalid`"),
        },
    )
    def post(self, request: Request) -> Response:
        request_order_list(request._request, get_json_object(request))
        return Response(status=204, headers=NO_STORE_HEADERS)
