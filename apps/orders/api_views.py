"""The sale's part of the public contract."""

from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.kernel.http import idempotency
from apps.kernel.http.json_body import object_of
from apps.orders import access, selectors
from apps.orders.cancellation.order_cancellation import answer_cancel
from apps.orders.checkout.checkout import check_out
from apps.orders.checkout.quote import quote
from apps.orders.provider_sync import inbox
from apps.orders.returns.returns import answer_return
from apps.orders.serializers import (
    CheckoutAnswerSerializer,
    CheckoutSerializer,
    OrderListSerializer,
    OrderSerializer,
    QuoteAnswerSerializer,
    QuoteSerializer,
    ReturnAnswerSerializer,
    ReturnSerializer,
    StoredSerializer,
)

PERSONAL = {"Cache-Control": "no-store"}
_KEY = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, required=True)
_LINK = OpenApiParameter("key", str, description="From the signed link in the e-mail, for guests.")
_NO_IDENTITY = OpenApiResponse(description="`token-missing`, `token-invalid`, `token-expired`")
_NOT_YOURS = OpenApiResponse(description="`not-owner`, `token-wrong-event`")


def _repeatable(answer: idempotency.Answer) -> HttpResponse:
    """An answer that the same key gets again, byte for byte."""
    return HttpResponse(answer.body, status=answer.status, content_type="application/json", headers=PERSONAL)


class Checkout(APIView):
    @extend_schema(
        operation_id="check_out",
        tags=["orders"],
        summary="Pay for a reservation: the answer comes before the money, so follow the order",
        parameters=[_KEY],
        request=CheckoutSerializer,
        responses={
            202: CheckoutAnswerSerializer,
            400: OpenApiResponse(description="`idempotency-key-required`, `malformed`"),
            401: _NO_IDENTITY,
            403: _NOT_YOURS,
            409: OpenApiResponse(
                description="`purchase-cap`, `code-used-up`, `code-buyer-limit`, `code-not-valid`: the hold lives on"
            ),
            410: OpenApiResponse(description="`reservation-expired`"),
            422: OpenApiResponse(description="`invalid`, `idempotency-mismatch`, `code-unknown`"),
            429: OpenApiResponse(description="`rate-limited`"),
        },
    )
    def post(self, request: Request, reservation_id: UUID) -> HttpResponse:
        reservation = access.open_reservation(request, reservation_id)
        if object_of(request).get("code"):
            access.count_code_try(request, reservation)
        key = idempotency.key_of(request._request)
        account_id = access.known_caller(request).account_id or reservation.account_id
        email, name = access.account_details(account_id)
        return _repeatable(
            check_out(reservation, object_of(request), key, email=email, name=name, account_id=account_id)
        )


class Quote(APIView):
    @extend_schema(
        operation_id="quote",
        tags=["orders"],
        summary="What a reservation would come to with a promo code; places nothing",
        request=QuoteSerializer,
        responses={
            200: QuoteAnswerSerializer,
            401: _NO_IDENTITY,
            403: _NOT_YOURS,
            409: OpenApiResponse(description="`code-used-up`, `code-buyer-limit`, `code-not-valid`"),
            410: OpenApiResponse(description="`reservation-expired`"),
            422: OpenApiResponse(description="`invalid`, `code-unknown`"),
            429: OpenApiResponse(description="`rate-limited`"),
        },
    )
    def post(self, request: Request, reservation_id: UUID) -> Response:
        reservation = access.open_reservation(request, reservation_id)
        payload = object_of(request)
        if payload.get("code"):
            access.count_code_try(request, reservation)
        order = selectors.order_of_reservation(reservation_id)
        return Response(quote(reservation, order, payload).contract(), headers=PERSONAL)


class OrderList(APIView):
    @extend_schema(
        operation_id="list_orders",
        tags=["orders"],
        summary="The caller's orders, newest first",
        responses={200: OrderListSerializer, 401: _NO_IDENTITY},
    )
    def get(self, request: Request) -> Response:
        orders = selectors.orders_of(access.known_caller(request))
        return Response({"orders": [order.contract() for order in orders]}, headers=PERSONAL)


class OrderDetail(APIView):
    @extend_schema(
        operation_id="get_order",
        tags=["orders"],
        summary="An order and its tickets",
        parameters=[_LINK],
        responses={200: OrderSerializer, 401: _NO_IDENTITY, 403: _NOT_YOURS},
    )
    def get(self, request: Request, order_id: UUID) -> Response:
        return Response(access.open_order(request, order_id).contract(), headers=PERSONAL)


class CancelOrder(APIView):
    @extend_schema(
        operation_id="cancel_order",
        tags=["orders"],
        summary="Give an unpaid order up; once more changes nothing",
        parameters=[_KEY, _LINK],
        request=None,
        responses={
            200: OrderSerializer,
            400: OpenApiResponse(description="`idempotency-key-required`, `malformed`"),
            401: _NO_IDENTITY,
            403: _NOT_YOURS,
            409: OpenApiResponse(description="`order-not-cancelable`: it is paid; `idempotency-in-progress`"),
            422: OpenApiResponse(description="`invalid`, `idempotency-mismatch`"),
        },
    )
    def post(self, request: Request, order_id: UUID) -> HttpResponse:
        order = access.open_order(request, order_id)
        key = idempotency.key_of(request._request)
        return _repeatable(answer_cancel(order.id, object_of(request), key))


class ReturnTickets(APIView):
    @extend_schema(
        operation_id="return_tickets",
        tags=["orders"],
        summary="Return tickets where the organizer allows it: they are void at once, the money is on its way",
        parameters=[_KEY, _LINK],
        request=ReturnSerializer,
        responses={
            202: ReturnAnswerSerializer,
            400: OpenApiResponse(description="`idempotency-key-required`, `malformed`"),
            401: _NO_IDENTITY,
            403: _NOT_YOURS,
            409: OpenApiResponse(
                description="`return-not-allowed`, `order-not-returnable`, `tickets-not-valid`, `tickets-checked-in`, "
                "`idempotency-in-progress`"
            ),
            422: OpenApiResponse(description="`invalid`, `idempotency-mismatch`"),
        },
    )
    def post(self, request: Request, order_id: UUID) -> HttpResponse:
        order = access.open_order(request, order_id)
        key = idempotency.key_of(request._request)
        return _repeatable(answer_return(order.id, object_of(request), key))


class PaymentWebhook(APIView):
    @extend_schema(
        operation_id="receive_payment_message",
        tags=["orders"],
        summary="For payment providers: 200 means stored, nothing more",
        request=None,
        responses={
            200: StoredSerializer,
            400: OpenApiResponse(description="`signature-invalid`, `malformed`"),
            404: OpenApiResponse(description="`not-found`: no such provider"),
        },
    )
    def post(self, request: Request, provider: str) -> Response:
        # The raw bytes: a signature speaks of them, not of what a parser makes of them.
        inbox.receive(provider, request._request.body, request._request.headers)
        return Response({"stored": True}, headers=PERSONAL)
