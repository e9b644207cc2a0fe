"""Changes of recent searches by a request, with the cookie that identifies its browser."""

from django.http import HttpRequest

from apps.events.recents import history
from apps.events.recents.history import Recents
from apps.events.recents.owners import (
    Owner,
    browser_owner,
    may_get_cookie,
    new_browser,
    owner_of,
    renew_cookie,
    set_new_cookie,
)
from apps.kernel.http.request_types import AnyResponse


def record(request: HttpRequest, response: AnyResponse, text: str) -> Recents:
    """Save a search; of a browser without a cookie, with a new one. Returns the list."""
    owner = owner_of(request)
    if owner is None:
        owner = _begin_browser(request, response)
        return Recents() if owner is None else history.record(owner, text)
    if owner.account_id is not None:
        # What the browser searched before the log-in, or while it was under way.
        history.merge(browser_owner(request), owner.account_id)
        return history.record(owner, text)
    recents = history.record(owner, text)
    if recents.is_on:  # The cookie of a choice to save none ends a year after the choice, as its row does.
        renew_cookie(request, response)
    return recents


def switch(request: HttpRequest, response: AnyResponse, *, is_on: bool) -> Recents:
    """Save searches or save none from now on. The browser gets a cookie if that is needed to store its choice. Returns
    the list."""
    owner = owner_of(request)
    if owner is None:
        owner = None if is_on else _begin_browser(request, response)
        if owner is None:
            return Recents()
    history.switch(owner, is_on=is_on)
    return history.read(owner)


def _begin_browser(request: HttpRequest, response: AnyResponse) -> Owner | None:
    """Set the cookie of a new browser and return it; None for a request from another site."""
    if not may_get_cookie(request):
        return None
    owner, secret = new_browser()
    set_new_cookie(request, response, secret)
    return owner
