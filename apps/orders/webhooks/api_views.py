"""API views of the organizers' pull feed."""

from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.kernel.http.openapi import FEED_KEY, NO_STORE_HEADERS, whole_number
from apps.orders.models import FeedKey
from apps.orders.webhooks import feed
from apps.orders.webhooks.serializers import FeedSerializer

_UNAUTHENTICATED = OpenApiResponse(description="`token-missing`, `token-invalid`: no feed key, or an invalid one")
_SCOPE_MISSING = OpenApiResponse(description="`scope-missing`: the key is not for messages about orders")
_RATE_LIMITED = OpenApiResponse(description="`rate-limited`")


class Messages(APIView):
    @extend_schema(
        operation_id="receive_messages",
        tags=["organizers"],
        auth=FEED_KEY,
        summary="Receive messages about the organizer's orders; each is hidden from other receivers for ten minutes",
        parameters=[
            OpenApiParameter(
                "n",
                whole_number(1, feed.MESSAGES_MAX),
                default=feed.MESSAGES_DEFAULT,
                description="How many messages at most.",
            )
        ],
        responses={
            200: FeedSerializer,
            401: _UNAUTHENTICATED,
            403: _SCOPE_MISSING,
            429: _RATE_LIMITED,
        },
    )
    def get(self, request: Request) -> Response:
        key = feed.authenticate_feed_key(request, FeedKey.Scope.ORDERS)
        return Response(
            {"messages": feed.receive(key, feed.read_count(request.GET.get("n")))}, headers=NO_STORE_HEADERS
        )


class ReceivedMessage(APIView):
    @extend_schema(
        operation_id="delete_message",
        tags=["organizers"],
        auth=FEED_KEY,
        summary="Delete a received message, so that it is not returned again",
        responses={
            204: None,
            401: _UNAUTHENTICATED,
            403: _SCOPE_MISSING,
            404: OpenApiResponse(description="`not-found`: not the latest receipt handle of a message of this key"),
            429: _RATE_LIMITED,
        },
    )
    def delete(self, request: Request, receipt_handle: UUID) -> Response:
        feed.delete(feed.authenticate_feed_key(request, FeedKey.Scope.ORDERS), receipt_handle)
        return Response(status=204, headers=NO_STORE_HEADERS)
