"""The one call for the personal parts of a page: the header's account, holds, staff links and one-time messages."""

from typing import Any

from django.contrib import messages
from django.contrib.auth import get_user
from django.http import HttpRequest
from django.middleware.csrf import get_token
from django.urls import Resolver404, resolve, reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts import facade as accounts
from apps.kernel import clock
from apps.kernel.http import problems
from apps.queue import facade as queue
from apps.reservations.page_header import held_tickets, serializers

PATH_LENGTH_MAX = 200
_COOKIES: Any = [{"visitor": []}, {"session": []}, {}]
_HEADERS = {"Cache-Control": "private, no-store"}


class HeaderView(APIView):
    authentication_classes = ()
    """Only a browser's cookies count. A token in `Authorization` is not read."""

    @extend_schema(
        operation_id="get_header",
        tags=["pages"],
        summary="Return the personal parts of a page: account, holds, messages and links for staff",
        auth=_COOKIES,
        parameters=[
            OpenApiParameter(
                "path",
                {"type": "string", "minLength": 1, "maxLength": PATH_LENGTH_MAX},
                description="The page's path, for `staff_links`.",
            ),
            OpenApiParameter(
                "shared",
                {"type": "string", "enum": ["1"]},
                description="The page was rendered without the request: include the account and one-time messages.",
            ),
        ],
        responses={200: serializers.Header},
    )
    def get(self, request: Request) -> Response:
        path, is_shared = _parse(request)
        site_request: HttpRequest = request._request
        user = get_user(site_request)
        is_logged_in = isinstance(user, accounts.User)
        caller = queue.Caller(
            account_id=user.pk if is_logged_in else None, visitor_id=queue.visitor_id_of(site_request)
        )
        named = held_tickets.named_reservations(site_request.COOKIES)
        found = held_tickets.find_held_tickets(caller, named)
        document: dict[str, Any] = {
            "now": clock.iso(clock.process_now()),
            "account": None,
            "messages": [],
            "holds": [_hold(one) for one in found],
            "staff_links": [],
        }
        if is_logged_in:
            slug = _event_of(path)
            document["staff_links"] = [link._asdict() for link in accounts.list_staff_links(user, slug)]
        if is_logged_in and is_shared:
            document["account"] = {"name": user.get_username(), "csrf_token": get_token(site_request)}
        if is_shared:
            document["messages"] = [
                {"level": message.level_tag, "text": str(message)} for message in messages.get_messages(site_request)
            ]
        response = Response(document, headers=_HEADERS)
        if not is_logged_in:
            accounts.delete_signed_in_cookie(response)
        if named and [one.id for one in found] != named:
            held_tickets.keep_named(site_request, response, [one.id for one in found])
        return response


def _parse(request: Request) -> tuple[str, bool]:
    """Return the path of the page, empty without one, and whether it is a shared page. Raises Invalid."""
    path, shared = request.GET.get("path"), request.GET.get("shared")
    wrong = {}
    if path is not None and not 1 <= len(path) <= PATH_LENGTH_MAX:
        wrong["path"] = f"must have 1 to {PATH_LENGTH_MAX} characters"
    if shared not in (None, "1"):
        wrong["shared"] = "must be 1"
    if wrong:
        raise problems.Invalid(wrong)
    return path or "", shared is not None


def _hold(held: held_tickets.HeldTickets) -> dict[str, Any]:
    return {
        "reservation_id": str(held.id),
        "event": held.event.slug,
        "event_name": held.event.name,
        "status": held.status,
        "count": held.count,
        "noun": held.noun,
        "deadline": clock.iso(held.deadline),
        "url": reverse("reservations:reservation", args=[held.id]),
        # By URL name, since checkout belongs to the app above.
        "checkout_url": reverse("orders:checkout", args=[held.id]),
    }


def _event_of(path: str) -> str:
    """Return the slug of the event that this path of a page names; empty for other paths."""
    try:
        kwargs = resolve(path).kwargs
    except Resolver404:
        return ""
    slug = kwargs.get("slug", "")
    return slug if isinstance(slug, str) and path.startswith("/events/") else ""
