"""Django views of `GET /events/{event}/announcements` and its history, open to any client."""

import msgspec
from django.http import HttpResponse, HttpResponseBase
from django.utils.cache import get_conditional_response, patch_cache_control
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request

from apps.events import event_views
from apps.events.announcements import archive, feed
from apps.events.announcements.serializers import AnnouncementHistorySerializer, AnnouncementsSerializer
from apps.events.api_views import PublicView
from apps.kernel.http.openapi import NOT_MODIFIED, whole_number

_NUMBER = whole_number(0, feed.NUMBER_MAX)


class AnnouncementsView(PublicView):
    @extend_schema(
        operation_id="list_announcements",
        tags=["announcements"],
        auth=[],
        summary="Current announcements, or those posted or changed since a version",
        parameters=[OpenApiParameter("since", _NUMBER, description="The `latest` of the previous response.")],
        responses={200: AnnouncementsSerializer, 304: NOT_MODIFIED},
    )
    def get(self, request: Request, event: str) -> HttpResponseBase:
        found = feed.feed_of_event(event)
        encoded = found.response_since(feed.parse_since(request.query_params.get("since")))
        response = HttpResponse(encoded.body, content_type="application/json", headers={"ETag": encoded.etag})
        patch_cache_control(response, public=True, max_age=feed.MAX_AGE_SECONDS)
        return get_conditional_response(request._request, etag=encoded.etag, response=response) or response


class AnnouncementHistoryView(PublicView):
    @extend_schema(
        operation_id="list_announcement_history",
        tags=["announcements"],
        auth=[],
        summary="All current announcements, newest first, paginated",
        parameters=[OpenApiParameter("before", _NUMBER, description="The `next_before` of the previous page.")],
        responses=AnnouncementHistorySerializer,
    )
    def get(self, request: Request, event: str) -> HttpResponse:
        event_id = event_views.get_event(event).id
        page = archive.history(event_id, feed.parse_before(request.query_params.get("before")))
        response = HttpResponse(msgspec.json.encode(page), content_type="application/json")
        patch_cache_control(response, public=True, max_age=feed.MAX_AGE_SECONDS)
        return response
