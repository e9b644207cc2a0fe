"""`GET /search` and `GET /search/suggestions`: the public search of events."""

from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.urls import reverse
from django.utils.cache import patch_cache_control
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.events.api_views import PublicView
from apps.events.search import engine, filters
from apps.events.search.documents import PRICE_MAX
from apps.events.search.missed import missed_searches
from apps.events.search.pipeline import QUERY_CHARACTERS_MAX, Matched
from apps.kernel.http import client_address, problems

MAX_AGE_SECONDS = 2


class SearchResultSerializer(serializers.Serializer):
    event = serializers.SlugField(help_text="The event's slug, as in its URLs.")
    name = serializers.CharField()
    matched = serializers.ChoiceField(
        choices=[matched.value for matched in Matched],
        allow_null=True,
        help_text="Why it matched, by its least sure word: the word itself, another form of it, words written as one "
        "or apart, a synonym, a spelling within two edits, or the sound. Null without search words.",
    )


class FacetValueSerializer(serializers.Serializer):
    value = serializers.CharField(help_text="For the parameter of the facet's name.")
    count = serializers.IntegerField(help_text="Events with this value and all other filters.")


class FacetsSerializer(serializers.Serializer):
    when = FacetValueSerializer(many=True)
    city = FacetValueSerializer(many=True)
    price_max = FacetValueSerializer(many=True)
    available = FacetValueSerializer(many=True)
    accessible = FacetValueSerializer(many=True)


class SuggestionSerializer(serializers.Serializer):
    q = serializers.CharField()
    total = serializers.IntegerField()


class SearchSerializer(serializers.Serializer):
    results = SearchResultSerializer(many=True)
    did_you_mean = serializers.CharField(allow_null=True, help_text="The search words as the results matched them.")
    ignored = serializers.ListField(
        child=serializers.CharField(), help_text="Search words without which the results were found."
    )
    facets = FacetsSerializer()
    total = serializers.IntegerField()
    next = serializers.CharField(allow_null=True, help_text="The path of the next page.")
    suggestions = SuggestionSerializer(many=True, help_text="Without results: search words that have some.")


class CompletedEventSerializer(serializers.Serializer):
    event = serializers.SlugField(help_text="The event's slug, as in its URLs.")
    name = serializers.CharField()
    city = serializers.CharField()
    day = serializers.DateField(help_text="Of its start, at the venue.")


class CompletionSerializer(serializers.Serializer):
    events = CompletedEventSerializer(many=True)
    queries = serializers.ListField(child=serializers.CharField())


_FILTERS = [
    OpenApiParameter("q", str, description=f"Search words, at most {QUERY_CHARACTERS_MAX} characters."),
    OpenApiParameter(
        "when",
        str,
        description=f"{', '.join(filters.WHENS)}, a day, or two days as in {filters.EXAMPLE}; on the venues' clocks.",
    ),
    OpenApiParameter(
        "city", {"type": "string", "maxLength": filters.CITY_CHARACTERS_MAX}, description="As in the facet."
    ),
    OpenApiParameter(
        "price_max",
        {"type": "integer", "minimum": 0, "maximum": PRICE_MAX},
        description="The highest price, in hundredths of the event's currency; 0: free events.",
    ),
    OpenApiParameter("available", int, enum=[0, 1], description="1: events with tickets left only."),
    OpenApiParameter("accessible", int, enum=[0, 1], description="1: events with accessible seats left only."),
    OpenApiParameter("sort", str, enum=list(filters.SORTS), description="Default: best with search words, else date."),
    OpenApiParameter("page", {"type": "integer", "minimum": 1, "maximum": filters.PAGE_MAX}),
    OpenApiParameter(
        "size",
        {"type": "integer", "minimum": 1, "maximum": filters.SIZE_MAX, "default": filters.SIZE},
        description="Results a page.",
    ),
]


class Search(PublicView):
    @extend_schema(
        operation_id="search_events",
        auth=[],
        summary="Public events that match, best first",
        parameters=_FILTERS,
        responses=SearchSerializer,
    )
    def get(self, request: Request) -> Response:
        try:
            query = filters.read_query(request.query_params)
        except filters.QueryInvalid as error:
            raise problems.Invalid({error.name: error.why}) from error
        found = engine.search(query)
        if not found.total and not query.is_filtered and query.page == 1:
            missed_searches.record(query.text, client_address.address_from_environ(request.META))
        following = urlencode(filters.parameters(query, page=query.page + 1))
        return respond(
            {
                "results": [_result(result) for result in found.results],
                "did_you_mean": found.did_you_mean or None,
                "ignored": found.ignored,
                "facets": {
                    name: [{"value": facet.value, "count": facet.count} for facet in facets]
                    for name, facets in found.facets.items()
                },
                "total": found.total,
                "next": f"{reverse('events_api_search')}?{following}" if found.has_next else None,
                "suggestions": [{"q": one.text, "total": one.count} for one in found.suggestions],
            }
        )


class Suggestions(PublicView):
    @extend_schema(
        operation_id="complete_search",
        auth=[],
        summary="Events and search words for an incomplete search",
        parameters=[_FILTERS[0]],
        responses=CompletionSerializer,
    )
    def get(self, request: Request) -> Response:
        events, queries = engine.complete(request.query_params.get("q", ""))
        shown = [{"event": one.slug, "name": one.name, "city": one.city, "day": one.day} for one in events]
        return respond({"events": shown, "queries": queries})


def _result(result: engine.Result) -> dict[str, Any]:
    return {"event": result.slug, "name": result.name, "matched": result.matched}


def respond(data: dict[str, Any]) -> Response:
    response = Response(data)
    patch_cache_control(
        response, public=True, max_age=MAX_AGE_SECONDS, stale_while_revalidate=settings.CACHE_STALE_SECONDS
    )
    return response
