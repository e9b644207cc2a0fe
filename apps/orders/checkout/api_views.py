"""API views of checkout: quote a reservation, place its order."""

from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.kernel.http import idempotency
from apps.kernel.http.json_body import get_json_object
from apps.kernel.http.openapi import IDEMPOTENCY_KEY, NO_STORE_HEADERS, NOT_YOURS
from apps.orders import access, selectors
from apps.orders.checkout.checkout import check_out
from apps.orders.checkout.quote import quote
from apps.orders.serializers import CheckoutAnswerSerializer, CheckoutSerializer, QuoteAnswerSerializer, QuoteSerializer


class Checkout(APIView):
    @extend_schema(
        operation_id="check_out",
        tags=["orders"],
        summary="Place the order and start its payment. The payment is decided after the response: poll the order",
        parameters=[IDEMPOTENCY_KEY],
        request=CheckoutSerializer,
        responses={
            202: CheckoutAnswerSerializer,
            400: OpenApiResponse(description="`idempotency-key-required`, `malformed`"),
            403: NOT_YOURS,
            409: OpenApiResponse(
                description="`purchase-cap`, `code-used-up`, `code-buyer-limit`, `code-not-valid`: the seats stay held"
            ),
            410: OpenApiResponse(description="`reservation-expired`"),
            422: OpenApiResponse(
                description="`invalid`, `idempotency-mismatch`, `code-unknown`, `terms-not-accepted` with `terms`: the "
                "version to send and its pages"
            ),
            429: OpenApiResponse(description="`rate-limited`"),
        },
    )
    def post(self, request: Request, reservation_id: UUID) -> HttpResponse:
        reservation = access.get_authorized_reservation(request, reservation_id)
        if get_json_object(request).get("code"):
            access.count_code_attempt(request, reservation)
        key = idempotency.key_of(request._request)
        account_id = access.require_caller(request).account_id or reservation.account_id
        email, name = access.account_details(account_id)
        with access.limit_cap_refusals(reservation):
            answer = check_out(
                reservation,
                get_json_object(request),
                key,
                email=email,
                name=name,
                account_id=account_id,
                origin=access.network_of(request),
            )
        return idempotency.response_of(answer)


class Quote(APIView):
    @extend_schema(
        operation_id="quote",
        tags=["orders"],
        summary="Price a reservation, with a promo code if given, without placing an order",
        request=QuoteSerializer,
        responses={
            200: QuoteAnswerSerializer,
            403: NOT_YOURS,
            409: OpenApiResponse(description="`code-used-up`, `code-buyer-limit`, `code-not-valid`"),
            410: OpenApiResponse(description="`reservation-expired`"),
            422: OpenApiResponse(description="`invalid`, `code-unknown`"),
            429: OpenApiResponse(description="`rate-limited`"),
        },
    )
    def post(self, request: Request, reservation_id: UUID) -> Response:
        reservation = access.get_authorized_reservation(request, reservation_id)
        payload = get_json_object(request)
        if payload.get("code"):
            access.count_code_attempt(request, reservation)
        order = selectors.order_of_reservation(reservation_id)
        return Response(quote(reservation, order, payload).contract(), headers=NO_STORE_HEADERS)
