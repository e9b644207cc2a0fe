"""`GET /events` and `GET /events/{event}`: the public catalog."""

from dataclasses import asdict
from typing import Any

from django.urls import reverse
from django.utils.cache import patch_cache_control
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.events import event_views, selectors
from apps.events.serializers import EventDetailSerializer, EventListSerializer
from apps.kernel.http import problems

CATALOG_MAX_AGE_SECONDS = 2


def _card_document(card: selectors.EventCard) -> dict[str, Any]:
    return {
        "event_id": card.slug,
        "name": card.name,
        "venue": {"name": card.venue_name, "city": card.city, "timezone": card.timezone},
        "summary": card.summary,
        "performers": card.performers,
        "tags": card.tags,
        "language": card.language,
        "starts_at": card.starts_at,
        "status": card.state,
        "opens_at": card.opens_at,
        "lobby_opens_at": card.lobby_opens_at,
        "closes_at": card.closes_at,
        "currency": card.currency,
        "from_price_minor": card.from_price_minor,
        "available_seats": card.available,
        "poster_url": reverse("events:poster", args=[card.slug]),
    }


class PublicView(APIView):
    # The endpoints are public: an Authorization header, valid or not, is ignored.
    authentication_classes = ()
    permission_classes = ()


class EventList(PublicView):
    @extend_schema(
        operation_id="list_events",
        auth=[],
        summary="Public events that have not started, soonest first",
        parameters=[OpenApiParameter("q", str, description="Search words; all must occur in name, venue or city.")],
        responses=EventListSerializer,
    )
    def get(self, request: Request) -> Response:
        cards = selectors.list_catalog(request.query_params.get("q", ""))
        return _respond({"events": [_card_document(card) for card in cards]})


class EventDetail(PublicView):
    @extend_schema(operation_id="get_event", auth=[], summary="One event", responses=EventDetailSerializer)
    def get(self, request: Request, event: str) -> Response:
        try:
            page = selectors.get_event_page(event)
        except event_views.EventNotFound as error:
            raise problems.NotFound("There is no such event.") from error
        document = _card_document(page.card) | {
            "description": page.card.description,
            "hold_minutes": max(page.hold_seconds // 60, 1),
            "hold_seconds": page.hold_seconds,
            "seats_per_reservation": page.seats_per_reservation,
            "per_buyer_cap": page.per_buyer_cap,
            "presale": None if page.presale is None else asdict(page.presale),
            "price_policy": asdict(page.price_policy),
        }
        return _respond(EventDetailSerializer(document).data)


def _respond(data: Any) -> Response:
    response = Response(data)
    patch_cache_control(response, public=True, max_age=CATALOG_MAX_AGE_SECONDS)
    return response
