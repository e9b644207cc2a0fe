"""API of a sale's report."""

from django.http import HttpResponse, HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.events import facade as events
from apps.kernel.http.openapi import NOT_MODIFIED
from apps.orders.reports.publication import latest_report
from apps.orders.reports.views import cacheable


class Report(APIView):
    authentication_classes = ()
    permission_classes = ()

    @extend_schema(
        operation_id="sale_report",
        tags=["events"],
        summary="Get the signed public report of a past sale; its fields are described in docs/fairness.md",
        auth=[],
        responses={
            200: OpenApiTypes.OBJECT,
            304: NOT_MODIFIED,
            404: OpenApiResponse(description="`not-found`: no report of this sale has been published"),
        },
    )
    def get(self, request: Request, event: str) -> HttpResponseBase:
        found = latest_report(events.get_event(event))
        # As it was signed and stored, byte for byte.
        response = HttpResponse(found.document, content_type="application/json")
        return cacheable(request._request, response, f'"{found.event_id}-{found.version}"')
