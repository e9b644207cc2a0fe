"""API views of orders: list, read and cancel."""

from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.kernel.http import idempotency
from apps.kernel.http.json_body import get_json_object
from apps.kernel.http.openapi import IDEMPOTENCY_KEY, NO_STORE_HEADERS, NOT_CHANGEABLE, NOT_YOURS, ORDER_CALLER
from apps.orders import access, selectors
from apps.orders.cancellation.order_cancellation import cancel_order_idempotently
from apps.orders.serializers import OrderListSerializer, OrderSerializer


class OrderList(APIView):
    @extend_schema(
        operation_id="list_orders",
        tags=["orders"],
        summary="The caller's orders, newest first",
        responses={200: OrderListSerializer},
    )
    def get(self, request: Request) -> Response:
        orders = selectors.list_orders(access.require_caller(request))
        return Response({"orders": [order.contract() for order in orders]}, headers=NO_STORE_HEADERS)


class OrderDetail(APIView):
    @extend_schema(
        operation_id="get_order",
        tags=["orders"],
        summary="An order and its tickets",
        auth=ORDER_CALLER,
        responses={200: OrderSerializer, 403: NOT_YOURS},
    )
    def get(self, request: Request, order_id: UUID) -> Response:
        return Response(access.get_authorized_order(request, order_id).contract(), headers=NO_STORE_HEADERS)


class CancelOrder(APIView):
    @extend_schema(
        operation_id="cancel_order",
        tags=["orders"],
        summary="Cancel an unpaid order. Idempotent",
        auth=ORDER_CALLER,
        parameters=[IDEMPOTENCY_KEY],
        request=None,
        responses={
            200: OrderSerializer,
            400: OpenApiResponse(description="`idempotency-key-required`, `malformed`"),
            403: NOT_CHANGEABLE,
            409: OpenApiResponse(description="`order-not-cancelable`: it is paid; `idempotency-in-progress`"),
            422: OpenApiResponse(description="`invalid`, `idempotency-mismatch`"),
        },
    )
    def post(self, request: Request, order_id: UUID) -> HttpResponse:
        order = access.get_changeable_order(request, order_id)
        key = idempotency.key_of(request._request)
        return idempotency.response_of(cancel_order_idempotently(order.id, get_json_object(request), key))
