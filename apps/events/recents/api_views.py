"""`/search/recents`: the recent searches of the caller, an account or a browser."""

from typing import Any

from django.http import HttpRequest
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.events.models.recents import TEXT_CHARACTERS_MAX
from apps.events.recents import history, requests
from apps.events.recents.history import SEARCHES_MAX, Recents, clean
from apps.events.recents.owners import owner_of
from apps.kernel.http import problems

_COOKIES: Any = [{"recents": []}, {"session": []}, {}]
_HEADERS = {"Cache-Control": "private, no-store"}


class RecentSearchSerializer(serializers.Serializer):
    q = serializers.CharField(max_length=TEXT_CHARACTERS_MAX, help_text="The search words.")


class RecentSearchesSerializer(serializers.Serializer):
    is_on = serializers.BooleanField(help_text="Whether the caller's searches are saved. If not, there are none.")
    searches = RecentSearchSerializer(many=True, help_text=f"At most {SEARCHES_MAX}, newest first, none twice.")


class SavingSerializer(serializers.Serializer):
    is_on = serializers.BooleanField()


class RecentSearchesView(APIView):
    authentication_classes = ()
    """Only a browser's cookies count. A token in `Authorization` is not read."""

    @extend_schema(
        operation_id="list_recent_searches",
        tags=["search"],
        auth=_COOKIES,
        summary="Return the caller's recent searches",
        description="Of the session's account, else of the browser with the cookie `recents`. Every change that was "
        "confirmed before is included.",
        responses=RecentSearchesSerializer,
    )
    def get(self, request: Request) -> Response:
        owner = owner_of(_site_request(request))
        return _respond(Recents() if owner is None else history.read(owner))

    @extend_schema(
        operation_id="save_recent_search",
        tags=["search"],
        auth=_COOKIES,
        summary="Save a search as the caller's newest one",
        description="A search that the list has already moves to its head. Nothing is saved while `is_on` is false. "
        "A browser without an account gets the cookie `recents` with its first search.",
        request=RecentSearchSerializer,
        responses=RecentSearchesSerializer,
    )
    def post(self, request: Request) -> Response:
        text = clean(_only(request, "q"))
        response = _respond(Recents())
        response.data = requests.record(_site_request(request), response, text).document()
        return response

    @extend_schema(
        operation_id="switch_recent_searches",
        tags=["search"],
        auth=_COOKIES,
        summary="Save the caller's searches from now on, or save none and delete all",
        request=SavingSerializer,
        responses=RecentSearchesSerializer,
    )
    def patch(self, request: Request) -> Response:
        is_on = _only(request, "is_on")
        if not isinstance(is_on, bool):
            raise problems.Invalid({"is_on": "must be true or false"})
        response = _respond(Recents())
        response.data = requests.switch(_site_request(request), response, is_on=is_on).document()
        return response

    @extend_schema(
        operation_id="delete_recent_searches",
        tags=["search"],
        auth=_COOKIES,
        summary="Delete one of the caller's recent searches, or all",
        parameters=[
            OpenApiParameter(
                "q",
                {"type": "string", "minLength": 1, "maxLength": TEXT_CHARACTERS_MAX},
                description="The search to delete; without it, all are deleted.",
            )
        ],
        responses={200: RecentSearchesSerializer},
    )
    def delete(self, request: Request) -> Response:
        text = clean(request.query_params["q"]) if "q" in request.query_params else None
        owner = owner_of(_site_request(request))
        if owner is None:
            return _respond(Recents())
        if text is None:
            history.clear(owner)
        else:
            history.delete(owner, text)
        return _respond(history.read(owner))


def _site_request(request: Request) -> HttpRequest:
    # A DRF request has a user of its own, so the session itself is read.
    site_request: HttpRequest = request._request
    return site_request


def _only(request: Request, name: str) -> Any:
    """Return the only field of the body. Raises Invalid."""
    body = request.data
    if not isinstance(body, dict):
        raise problems.Invalid("a JSON object is expected")
    wrong = {str(other)[:80]: "unknown field" for other in body if other != name}
    if name not in body:
        wrong[name] = "is required"
    if wrong:
        raise problems.Invalid(wrong)
    return body[name]


def _respond(recents: Recents) -> Response:
    return Response(recents.document(), headers=_HEADERS)
