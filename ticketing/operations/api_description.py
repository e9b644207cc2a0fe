"""/api/schema: the OpenAPI document, generated once by each process, since generating it takes most of a second.

drf-spectacular's own view generates it for each request. It also writes the query's `version` into a header, and loads
and keeps translations for the query's `lang`, whatever these are.
"""

from functools import lru_cache
from typing import Any

from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import spectacular_settings
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request
from rest_framework.views import APIView


class Description(APIView):
    """The document as YAML or JSON, as the client accepts, or as `format` says."""

    renderer_classes = SpectacularAPIView.renderer_classes

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        kind = request.accepted_renderer
        name = f"{spectacular_settings.TITLE}.{kind.format}"
        headers = {"Content-Disposition": f'inline; filename="{name}"'}
        return HttpResponse(_render(kind.media_type), content_type=f"{kind.media_type}; charset=utf-8", headers=headers)


@lru_cache
def _render(media_type: str) -> str | bytes:
    (kind,) = (kind for kind in Description.renderer_classes if kind.media_type == media_type)
    return kind().render(generate_document(), media_type, {})


def generate_document() -> Any:
    """Return the OpenAPI document."""
    return SchemaGenerator().get_schema(request=None, public=True)
