"""API view for webhooks of payment providers."""

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.kernel.http.openapi import NO_STORE_HEADERS
from apps.orders.provider_sync import event_storage
from apps.orders.serializers import StoredSerializer


class PaymentWebhook(APIView):
    @extend_schema(
        operation_id="receive_payment_message",
        tags=["orders"],
        summary="Receive a payment provider's webhook. 200 means that it is stored, not yet processed",
        auth=[],
        request=None,
        responses={
            200: StoredSerializer,
            400: OpenApiResponse(description="`signature-invalid`, `malformed`"),
            404: OpenApiResponse(description="`not-found`: no such provider"),
        },
    )
    def post(self, request: Request, provider: str) -> Response:
        # Pass the raw bytes: the signature covers them, not the parsed body.
        event_storage.receive(provider, request._request.body, request._request.headers)
        return Response({"stored": True}, headers=NO_STORE_HEADERS)
