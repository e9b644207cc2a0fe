"""The Django view of `POST /events/{event}/views`: for requests that do not come through the fast path."""

import uuid

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.events import event_views
from apps.events.api_views import PublicView
from apps.events.interest import identities, intake
from apps.events.interest.log import Batch, appends
from apps.kernel.http import client_address, problems


class ViewSerializer(serializers.Serializer):
    seconds = serializers.IntegerField(
        min_value=0, max_value=intake.SECONDS_MAX, help_text="How long the page has been visible."
    )
    referrer = serializers.RegexField(
        rf"^{intake.HOST}$",
        required=False,
        allow_blank=True,
        max_length=253,
        help_text="The host that linked to the page, without scheme, path and query.",
    )


class EventViews(PublicView):
    @extend_schema(
        operation_id="report_view",
        auth=[],
        summary="Report a view of the event's page",
        description=(
            "Sent by the page's script after some seconds. Whether the view counts is decided later, by the operator's "
            "rules; the answer does not depend on it. Persons and addresses are kept as digests under a key that "
            "changes every day."
        ),
        request=ViewSerializer,
        responses={202: OpenApiResponse(description="Accepted. The response has no body.")},
    )
    def post(self, request: Request, event: str) -> Response:
        if not isinstance(request.data, dict):
            raise problems.Invalid("a JSON object is expected")
        report = intake.parse_report(request.data)
        found = event_views.read_cached_event(event)
        terms = intake.terms.read(identities.current_day())
        address = client_address.address_from_environ(request.META)
        arrived = intake.arrive(terms, request._request, address, found.id, report)
        appends.submit_sync(Batch(uuid.uuid4(), intake.mark_staff([arrived])), intake.APPEND_TIMEOUT_MS)
        return Response(status=202, headers={"Cache-Control": "no-store"})
