"""The kind of a request, by its method and path, for the fast path and the site."""

import re

_WEBHOOKS = "/api/webhooks/"
"""Providers' webhooks: only those without a valid signature are limited (`ticketing/server/failure_limits.py`)."""
_UNLIMITED_READS = frozenset(("/healthz", "/favicon.ico"))
"""Answered without queries. Other paths that only begin like these, and writes, are limited."""
_FEEDS = ("/api/organizer/", "/api/feeds")
_SAFE = frozenset(("GET", "HEAD", "OPTIONS", "TRACE"))
_LOG_IN = ("/accounts/", "/api/auth/", "/admin/login/", "/admin/password_change/")
"""All pages and calls that check or set a password, or send mail to an account."""
_NOT_LOG_IN = frozenset(("/accounts/log-out", "/accounts/erase"))
"""They check no password: those who log in must not wait for them."""
_OF_EVENT = re.compile(
    r"/(?:api/)?events/[^/]+/(?:"
    r"(?P<join>queue|join)|(?P<poll>queue/status|wait)|(?P<read>sections|announcements|choose/status\.json)|(?P<hold>reservations|choose)|(?P<offer>offers)|(?P<view>views)"
    r")/?"
)
_SEARCHES = re.compile(r"/search|/searches/?|/api/search/recents(?:/.*)?")
"""Each of these may save a search and begin a browser's list of them; the page of the list may be read at any rate."""
_DOCUMENT = re.compile(
    r"/(?:tickets/[^/]+/ticket|orders/[^/]+/tickets|orders/[^/]+/invoices/[^/]+)\.pdf|/accounts/data\.json"
)
"""Files that the site makes for each request, which takes a few tenths of a second."""
_VISITOR = re.compile(r"(?:^|;\s*)(?:sessionid|visitor)=([^;]{1,200})")
_WRITES = frozenset(("join", "hold", "offer", "view"))


def kind_of(method: str, path: str) -> str | None:
    """Return the request's kind for `check_request`; None if it is unlimited."""
    is_write = method not in _SAFE
    if is_write and path.startswith(_WEBHOOKS):
        return None
    if path.startswith(_FEEDS):
        return "feed"
    if path in _UNLIMITED_READS and not is_write:
        return None
    if is_write and path.startswith(_LOG_IN) and path not in _NOT_LOG_IN:
        return "log-in"
    found = _OF_EVENT.fullmatch(path)
    if found is not None:
        kind = found.lastgroup
        # The pages for joining and choosing, and leaving the queue, have other kinds.
        if kind is not None and is_write == (kind in _WRITES) and method != "DELETE":
            return kind
    if (is_write or path == "/search") and _SEARCHES.fullmatch(path):
        return "search"
    if is_write:
        return "write"
    return "document" if _DOCUMENT.fullmatch(path) else "page"


def token_of(authorization: str, cookie: str) -> str:
    """Return the unverified credentials: the bearer token, without the scheme and blanks that can be written in several
    ways, else the session or visitor cookie, else "".

    A client that invents credentials gets a bucket for them, and is still limited by address.
    """
    if authorization:
        return authorization.partition(" ")[2].strip() or authorization
    found = _VISITOR.search(cookie)
    return found[1] if found else ""
