"""Which limit a request falls under, by its method and path: the same answer in the lane and at the site."""

import re

_UNLIMITED = ("/static/", "/healthz", "/readyz", "/metrics", "/api/webhooks/", "/favicon.ico")
"""Files that any cache may keep, what operators ask, and providers' messages, which are signed and all come from a
few addresses."""
_FEED = "/api/organizer/"
_SAFE = frozenset(("GET", "HEAD", "OPTIONS", "TRACE"))
_LOG_IN = frozenset(("/accounts/log-in", "/accounts/sign-up", "/api/auth/token", "/api/auth/token/refresh"))
_OF_EVENT = re.compile(
    r"/(?:api/)?events/[^/]+/(?:"
    r"(?P<join>queue|join)|(?P<poll>queue/status|wait)|(?P<read>sections|announcements|choose/status\.json)|(?P<hold>reservations|choose)"
    r")/?"
)
_VISITOR = re.compile(r"(?:^|;\s*)(?:sessionid|visitor)=([^;]{1,200})")
_WRITES = frozenset(("join", "hold"))


def kind_of(method: str, path: str) -> str | None:
    """The kind, for `limits.ask`; None where no limit holds."""
    if path.startswith(_UNLIMITED):
        return None
    if path.startswith(_FEED):
        return "feed"
    is_write = method not in _SAFE
    if is_write and path in _LOG_IN:
        return "log-in"
    found = _OF_EVENT.fullmatch(path)
    if found is not None:
        kind = found.lastgroup
        # The page on which one joins or chooses, and leaving the line, are none of these.
        if kind is not None and is_write == (kind in _WRITES) and method != "DELETE":
            return kind
    return "write" if is_write else "page"


def token_of(authorization: str, cookie: str) -> str:
    """What names the one who asks where nobody has verified it: the bearer token, else the session or visitor cookie;
    empty without any. Who makes one up has a bucket for it, and is limited by address."""
    if authorization:
        return authorization
    found = _VISITOR.search(cookie)
    return found[1] if found else ""
