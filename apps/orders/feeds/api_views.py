"""API views of feeds. Each operation needs a feed key of the organizer with the operation's scope."""

from typing import Any

import msgspec
from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.feeds import facade as feeds
from apps.kernel.http.openapi import FEED_KEY, NO_STORE_HEADERS, whole_number
from apps.orders.errors import ScopeMissing
from apps.orders.feeds import bodies
from apps.orders.feeds.serializers import (
    DeadLettersSerializer,
    DeletionsSerializer,
    FeedListSerializer,
    FeedMessagesSerializer,
    FeedSettingsSerializer,
    FeedStateSerializer,
    HandlesSerializer,
    RedrivenSerializer,
    SendSerializer,
    SentSerializer,
    VisibilitySerializer,
    VisibleAtSerializer,
)
from apps.orders.models import FeedKey
from apps.orders.webhooks.feed import authenticate_feed_key

SEQUENCE_MAX = 10**17
_REFUSALS = {
    401: OpenApiResponse(description="`token-missing`, `token-invalid`: no feed key, or an invalid one"),
    403: OpenApiResponse(
        description="`scope-missing`: the key does not have the operation's scope, or is for another feed"
    ),
    429: OpenApiResponse(description="`rate-limited`"),
}
_N = OpenApiParameter(
    "n", whole_number(1, feeds.LIST_MAX), default=feeds.LIST_MAX, description="How many messages at most."
)


def _authenticate(request: Request, *scopes: FeedKey.Scope) -> tuple[int, FeedKey]:
    """Return the id of the organizer of the request's key, and the key. Raises TokenMissing, TokenInvalid,
    ScopeMissing."""
    key = authenticate_feed_key(request, *scopes)
    assert key.organizer_id is not None, "a constraint: a key with a scope of feeds has an organizer"
    return key.organizer_id, key


def _organizer_of(request: Request, feed: str, *scopes: FeedKey.Scope) -> int:
    """Return the id of the organizer of the request's key, which is for this feed. Raises what `_authenticate` does."""
    organizer_id, key = _authenticate(request, *scopes)
    if not key.is_for_feed(feed):
        raise ScopeMissing("This feed key is for another feed.", scopes=[str(scope) for scope in scopes])
    return organizer_id


def _respond(data: dict[str, Any], status: int = 200) -> Response:
    return Response(data, status=status, headers=NO_STORE_HEADERS)


def _respond_with_bodies(messages: list[dict[str, Any]]) -> HttpResponse:
    """Respond with these messages. Their bodies are JSON text and are copied: parsing ten of them can take a quarter of
    a second."""
    content = msgspec.json.encode({"messages": messages})
    return HttpResponse(content, content_type="application/json", headers=NO_STORE_HEADERS)


def _content(one: feeds.ReceivedMessage | feeds.DeadLetter) -> dict[str, Any]:
    """Return the fields that received messages and dead letters have in common."""
    return {
        "id": one.id,
        "sequence": one.sequence,
        "key": one.key,
        "body": msgspec.Raw(one.body.encode()),
        "sent_at": clock.iso(one.sent_at),
        "receives": one.receives,
    }


def _state(state: feeds.FeedState) -> dict[str, Any]:
    return {
        "name": state.name,
        "retention_seconds": state.retention_seconds,
        "receives_max": state.receives_max,
        "messages": state.messages,
        "bytes": state.bytes,
        "dead_letters": state.dead_letters,
        "oldest_due_seconds": round(state.oldest_due_seconds, 3),
        "created_at": clock.iso(state.created_at),
    }


class Feeds(APIView):
    @extend_schema(
        operation_id="list_feeds",
        tags=["feeds"],
        auth=FEED_KEY,
        summary="List the organizer's feeds, as far as the key is for them (scope `feeds:manage`)",
        responses={200: FeedListSerializer, **_REFUSALS},
    )
    def get(self, request: Request) -> Response:
        organizer_id, key = _authenticate(request, FeedKey.Scope.MANAGE_FEEDS)
        own = [one for one in feeds.list_feeds(organizer_id) if key.is_for_feed(one.name)]
        return _respond({"feeds": [_state(one) for one in own]})


class FeedDetail(APIView):
    @extend_schema(
        operation_id="get_feed",
        tags=["feeds"],
        auth=FEED_KEY,
        summary="Show a feed's settings and counts (any scope of feeds)",
        responses={200: FeedStateSerializer, **_REFUSALS},
    )
    def get(self, request: Request, feed: str) -> Response:
        scopes = FeedKey.Scope.MANAGE_FEEDS, FeedKey.Scope.SEND, FeedKey.Scope.RECEIVE
        return _respond(_state(feeds.get_feed(_organizer_of(request, feed, *scopes), feed)))

    @extend_schema(
        operation_id="put_feed",
        tags=["feeds"],
        auth=FEED_KEY,
        summary="Create a feed, or change its settings for messages sent from now on (scope `feeds:manage`)",
        request=FeedSettingsSerializer,
        responses={
            200: FeedStateSerializer,
            201: FeedStateSerializer,
            409: OpenApiResponse(description="`feeds-max`: the organizer has its limit of feeds"),
            **_REFUSALS,
        },
    )
    def put(self, request: Request, feed: str) -> Response:
        organizer_id = _organizer_of(request, feed, FeedKey.Scope.MANAGE_FEEDS)
        name, (retention_seconds, receives_max) = bodies.check_name(feed), bodies.read_feed_settings(request)
        with transactions.write():
            events.lock_organizer(organizer_id)
            is_new = feeds.put_feed(organizer_id, name, retention_seconds, receives_max)
        return _respond(_state(feeds.get_feed(organizer_id, name)), status=201 if is_new else 200)

    @extend_schema(
        operation_id="delete_feed",
        tags=["feeds"],
        auth=FEED_KEY,
        summary="Delete a feed with its messages (scope `feeds:manage`)",
        responses={204: None, **_REFUSALS},
    )
    def delete(self, request: Request, feed: str) -> Response:
        feeds.delete_feed(_organizer_of(request, feed, FeedKey.Scope.MANAGE_FEEDS), feed)
        return Response(status=204, headers=NO_STORE_HEADERS)


class FeedMessages(APIView):
    @extend_schema(
        operation_id="send_feed_messages",
        tags=["feeds"],
        auth=FEED_KEY,
        summary="Send messages, all or none, in their order (scope `feeds:send`)",
        request=SendSerializer,
        responses={
            200: SentSerializer,
            409: OpenApiResponse(description="`feed-full`: a limit of the feed is reached"),
            422: OpenApiResponse(
                description="`invalid`; `idempotency-mismatch`: an id belongs to a message with another key or body"
            ),
            **_REFUSALS,
        },
    )
    def put(self, request: Request, feed: str) -> Response:
        organizer_id = _organizer_of(request, feed, FeedKey.Scope.SEND)
        sent = feeds.send(organizer_id, feed, bodies.read_messages(request))
        return _respond({"messages": [{"id": one.id, "sequence": one.sequence, "is_new": one.is_new} for one in sent]})

    @extend_schema(
        operation_id="receive_feed_messages",
        tags=["feeds"],
        auth=FEED_KEY,
        summary="Receive messages and hide them from other receivers (scope `feeds:receive`)",
        parameters=[
            _N,
            OpenApiParameter(
                "visibility_seconds",
                whole_number(0, feeds.VISIBILITY_SECONDS_MAX),
                default=feeds.VISIBILITY_SECONDS_DEFAULT,
                description="For how long they are hidden.",
            ),
            OpenApiParameter(
                "wait_seconds",
                whole_number(0, bodies.WAIT_SECONDS_MAX),
                default=0,
                description="How long to wait for a message if there is none.",
            ),
        ],
        responses={200: FeedMessagesSerializer, **_REFUSALS},
    )
    def get(self, request: Request, feed: str) -> HttpResponse:
        organizer_id = _organizer_of(request, feed, FeedKey.Scope.RECEIVE)
        bodies.read_wait_seconds(request.query_params)  # The fast path has waited (`async_views`).
        received = feeds.receive(
            organizer_id,
            feed,
            bodies.read_count(request.query_params),
            bodies.read_query_number(
                request.query_params,
                "visibility_seconds",
                0,
                feeds.VISIBILITY_SECONDS_MAX,
                feeds.VISIBILITY_SECONDS_DEFAULT,
            ),
        )
        return _respond_with_bodies(
            [
                {
                    **_content(one),
                    "receipt_handle": one.receipt_handle,
                    "visible_at": clock.iso(one.visible_at),
                }
                for one in received
            ]
        )


class ReceivedFeedMessage(APIView):
    @extend_schema(
        operation_id="delete_feed_message",
        tags=["feeds"],
        auth=FEED_KEY,
        summary="Delete a received message, so that it is not received again (scope `feeds:receive`)",
        responses={
            204: None,
            409: OpenApiResponse(description="`receipt-outdated`: it was received again; nothing was deleted"),
            **_REFUSALS,
        },
    )
    def delete(self, request: Request, feed: str, receipt_handle: str) -> Response:
        feeds.delete(_organizer_of(request, feed, FeedKey.Scope.RECEIVE), feed, receipt_handle)
        return Response(status=204, headers=NO_STORE_HEADERS)

    @extend_schema(
        operation_id="extend_feed_message",
        tags=["feeds"],
        auth=FEED_KEY,
        summary="Set how long from now on a received message is hidden (scope `feeds:receive`)",
        request=VisibilitySerializer,
        responses={
            200: VisibleAtSerializer,
            409: OpenApiResponse(description="`receipt-outdated`: it was received again, is deleted or a dead letter"),
            **_REFUSALS,
        },
    )
    def patch(self, request: Request, feed: str, receipt_handle: str) -> Response:
        organizer_id = _organizer_of(request, feed, FeedKey.Scope.RECEIVE)
        visible_at = feeds.extend(organizer_id, feed, receipt_handle, bodies.read_visibility(request))
        return _respond({"visible_at": clock.iso(visible_at)})


class FeedDeletions(APIView):
    @extend_schema(
        operation_id="delete_feed_messages",
        tags=["feeds"],
        auth=FEED_KEY,
        summary="Delete received messages; each that its handle does not delete is named (scope `feeds:receive`)",
        request=HandlesSerializer,
        responses={200: DeletionsSerializer, **_REFUSALS},
    )
    def post(self, request: Request, feed: str) -> Response:
        organizer_id = _organizer_of(request, feed, FeedKey.Scope.RECEIVE)
        handles = bodies.read_handles(request)
        refusals = feeds.delete_list(organizer_id, feed, handles)
        return _respond(
            {
                "messages": [
                    {"receipt_handle": handle, "outcome": "deleted" if refusal is None else refusal.type}
                    for handle, refusal in zip(handles, refusals, strict=True)
                ]
            }
        )


class DeadLetters(APIView):
    @extend_schema(
        operation_id="list_dead_letters",
        tags=["feeds"],
        auth=FEED_KEY,
        summary="List dead letters, oldest first (scope `feeds:manage`)",
        parameters=[
            _N,
            OpenApiParameter(
                "after",
                whole_number(0, SEQUENCE_MAX),
                default=0,
                description="The sequence number of the last one of the page before.",
            ),
        ],
        responses={200: DeadLettersSerializer, **_REFUSALS},
    )
    def get(self, request: Request, feed: str) -> HttpResponse:
        organizer_id = _organizer_of(request, feed, FeedKey.Scope.MANAGE_FEEDS)
        dead = feeds.list_dead_letters(
            organizer_id,
            feed,
            bodies.read_query_number(request.query_params, "after", 0, SEQUENCE_MAX, 0),
            bodies.read_query_number(request.query_params, "n", 1, feeds.LISTED_MAX, feeds.LISTED_MAX),
        )
        return _respond_with_bodies(
            [
                {
                    **_content(one),
                    "dead_at": clock.iso(one.dead_at),
                }
                for one in dead
            ]
        )


class RedriveDeadLetters(APIView):
    @extend_schema(
        operation_id="redrive_dead_letters",
        tags=["feeds"],
        auth=FEED_KEY,
        summary="Send the oldest dead letters again, at the end of the feed (scope `feeds:manage`)",
        request=None,
        responses={200: RedrivenSerializer, **_REFUSALS},
    )
    def post(self, request: Request, feed: str) -> Response:
        organizer_id = _organizer_of(request, feed, FeedKey.Scope.MANAGE_FEEDS)
        return _respond({"redriven": feeds.redrive(organizer_id, feed)})
