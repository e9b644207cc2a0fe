"""The check-in page for the doors. It works as a plain form; its script adds the camera scanner and offline operation.

POST needs no CSRF token: `apps.kernel.http.same_origin` refuses writes that come from another site.
"""

import uuid
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_safe

from apps.events import facade as events
from apps.kernel.http import problems
from apps.orders.checkin.check_in import ScanAnswer, scan
from apps.orders.checkin.counts import count_entered
from apps.orders.checkin.door_links import Doorkeeper, authenticate_doorkeeper, set_link_cookie
from apps.orders.checkin.scan_messages import SCAN_MESSAGES, build_scan_message
from apps.orders.checkin.scan_parser import read_scan

PERMISSIONS_POLICY = "camera=(self), microphone=(), geolocation=()"
"""This page's Permissions-Policy; all other pages forbid the camera."""


@csrf_exempt
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def check_in(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the check-in form and the outcome of a scan. A door link is exchanged for a cookie, so that its key does not
    stay in the address bar."""
    event = events.get_event(slug)
    if request.method != "POST" and request.GET.get("link"):
        response = redirect("orders:check_in", event.slug)
        set_link_cookie(request, response, event, request.GET["link"])
        return response
    try:
        keeper = authenticate_doorkeeper(request, event)
    except problems.TokenMissing:
        return redirect(f"{reverse(settings.LOGIN_URL)}?next={quote(request.path)}")
    if request.method != "POST":
        return _page(request, event, keeper)
    payload: dict[str, Any] = {field: request.POST.get(field, "") for field in ("scan_id", "code", "undo", "door")}
    payload["anyway"] = request.POST.get("anyway") == "yes"
    try:
        answer = scan(event, read_scan(payload, door=keeper.door), keeper.who, only_own=keeper.only_own)
    except problems.Invalid as problem:
        return _page(request, event, keeper, error=problem.detail, status=422)
    return _page(request, event, keeper, answer=answer)


def _page(
    request: HttpRequest,
    event: events.EventView,
    keeper: Doorkeeper,
    *,
    answer: ScanAnswer | None = None,
    error: str = "",
    status: int = 200,
) -> HttpResponse:
    context = {
        "event": event,
        "keeper": keeper,
        "door": keeper.door or request.POST.get("door", ""),
        "counts": count_entered(event.id),
        "scan_id": uuid.uuid4().hex,
        "answer": answer,
        "code": request.POST.get("code", ""),
        "words": None if answer is None else build_scan_message(event, answer),
        "error": error,
        "say": {str(outcome): {"tone": tone, "icon": icon} for outcome, (tone, icon, _) in SCAN_MESSAGES.items()},
    }
    response = render(request, "orders/check_in.html", context, status=status)
    response.headers["Permissions-Policy"] = PERMISSIONS_POLICY
    response.headers["X-Robots-Tag"] = "noindex"
    return response


@never_cache
@require_safe
def service_worker(request: HttpRequest) -> HttpResponse:
    """Serve the service worker that caches the page for offline use. The worker's URL is under the page's path, which
    limits its scope. The script contains no personal data."""
    path = finders.find("js/check-in-worker.js")
    assert isinstance(path, str)
    with open(path, encoding="utf-8") as file:
        return HttpResponse(file.read(), content_type="text/javascript; charset=utf-8")
