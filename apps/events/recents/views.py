"""The page of recent searches, for browsers without scripts and for a link; and the search form without scripts, which
saves the search before it shows the catalog, since the catalog is the same for every visitor."""

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from apps.events.recents import history, requests
from apps.events.recents.history import Recents
from apps.events.recents.owners import owner_of
from apps.kernel.http import problems, same_origin

_PARAMETERS = ("q", "when", "city", "price_max", "available", "accessible", "sort")


@never_cache
@require_safe
def search(request: HttpRequest) -> HttpResponseBase:
    """Save the search and redirect to its results. Only a form of our own pages saves it, no link and no prefetch."""
    values = {name: request.GET[name] for name in _PARAMETERS if request.GET.get(name)}
    response = redirect(f"{reverse('events:catalog')}?{urlencode(values)}" if values else reverse("events:catalog"))
    if request.method == "GET" and same_origin.is_same_origin_request(request) and not _is_prefetch(request):
        try:
            text = history.clean(request.GET.get("q"))
        except problems.Invalid:
            return response  # A search by filters alone, or one that the catalog shortens.
        requests.record(request, response, text)
    return response


def _is_prefetch(request: HttpRequest) -> bool:
    return "prefetch" in request.headers.get("Sec-Purpose", "") or "prefetch" in request.headers.get("Purpose", "")


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def recent_searches(request: HttpRequest) -> HttpResponse:
    """Show the list; by POST delete a search (`delete`), all (`clear`), or switch saving `on` or `off`."""
    if request.method != "POST":
        owner = owner_of(request)
        recents = Recents() if owner is None else history.read(owner)
        return render(request, "events/recent_searches.html", {"recents": recents})
    response = redirect("events:recent_searches")
    act, owner = request.POST.get("act", ""), owner_of(request)
    if act in ("on", "off"):
        requests.switch(request, response, is_on=act == "on")
    elif act == "clear" and owner is not None:
        history.clear(owner)
    elif act == "delete":
        text = history.clean(request.POST.get("q"))
        if owner is not None:
            history.delete(owner, text)
    elif act != "clear":
        raise problems.Invalid({"act": "must be delete, clear, on or off"})
    return response
