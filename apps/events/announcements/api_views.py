"""`GET /events/{event}/announcements` and its history, for anyone."""

import msgspec
from django.http import HttpResponse, HttpResponseBase
from django.utils.cache import get_conditional_response, patch_cache_control
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.events import event_views
from apps.events.announcements import archive, feed
from apps.events.announcements.serializers import AnnouncementHistorySerializer, AnnouncementsSerializer


class _Public(APIView):
    # Whatever token a client carries for other calls neither helps nor hurts here.
    authentication_classes = ()
    permission_classes = ()


class AnnouncementsView(_Public):
    @extend_schema(
        operation_id="list_announcements",
        tags=["announcements"],
        summary="What the organizer says: what stands, or what was said or changed since",
        parameters=[OpenApiParameter("since", int, description="The `latest` of the answer before.")],
        responses={200: AnnouncementsSerializer, 304: OpenApiResponse(description="Unchanged since that ETag")},
    )
    def get(self, request: Request, event: str) -> HttpResponseBase:
        found = feed.feed_of_event(event)
        said = found.response_since(feed.parse_since(request.query_params.get("since")))
        answer = HttpResponse(said.body, content_type="application/json", headers={"ETag": said.etag})
        patch_cache_control(answer, public=True, max_age=feed.MAX_AGE_SECONDS)
        return get_conditional_response(request._request, etag=said.etag, response=answer) or answer


class AnnouncementHistoryView(_Public):
    @extend_schema(
        operation_id="list_announcement_history",
        tags=["announcements"],
        summary="All announcements that stand, newest first, page by page",
        parameters=[OpenApiParameter("before", int, description="The `next_before` of the page before.")],
        responses=AnnouncementHistorySerializer,
    )
    def get(self, request: Request, event: str) -> HttpResponse:
        event_id = event_views.get_event(event).id
        page = archive.history(event_id, feed.parse_before(request.query_params.get("before")))
        answer = HttpResponse(msgspec.json.encode(page), content_type="application/json")
        patch_cache_control(answer, public=True, max_age=feed.MAX_AGE_SECONDS)
        return answer
