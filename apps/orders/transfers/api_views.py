"""API views of the buyer's transfers: offer a ticket, withdraw an offer."""

from uuid import UUID

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.kernel import clock
from apps.kernel.http.json_body import get_json_object
from apps.kernel.http.openapi import NO_STORE_HEADERS, NOT_CHANGEABLE, ORDER_CALLER
from apps.orders import access
from apps.orders.serializers import OfferSerializer, TransferSerializer
from apps.orders.terms.transfer_terms import transfer_view
from apps.orders.transfers.transfers import offer_ticket, withdraw_offer


class Transfers(APIView):
    @extend_schema(
        operation_id="transfer_ticket",
        tags=["orders"],
        summary="Offer a ticket to another address, which gets it by mail. Repeating it returns the same offer",
        auth=ORDER_CALLER,
        request=OfferSerializer,
        responses={
            201: TransferSerializer,
            400: OpenApiResponse(description="`malformed`"),
            403: NOT_CHANGEABLE,
            409: OpenApiResponse(
                description="`transfer-refused`, `transfer-pending`, `tickets-not-valid`, `tickets-checked-in`"
            ),
            422: OpenApiResponse(description="`invalid`"),
        },
    )
    def post(self, request: Request, order_id: UUID) -> Response:
        order = access.get_changeable_order(request, order_id)
        transfer = offer_ticket(order.id, get_json_object(request), network=access.network_of(request._request))
        return Response(transfer_view(transfer, clock.now()).contract(), status=201, headers=NO_STORE_HEADERS)


class TransferDetail(APIView):
    @extend_schema(
        operation_id="withdraw_transfer",
        tags=["orders"],
        summary="Withdraw an offer that is not accepted yet. Idempotent",
        auth=ORDER_CALLER,
        responses={
            200: TransferSerializer,
            403: NOT_CHANGEABLE,
            409: OpenApiResponse(description="`transfer-accepted`"),
        },
    )
    def delete(self, request: Request, order_id: UUID, transfer_id: UUID) -> Response:
        order = access.get_changeable_order(request, order_id)
        transfer = withdraw_offer(order.id, transfer_id)
        return Response(transfer_view(transfer, clock.now()).contract(), headers=NO_STORE_HEADERS)
