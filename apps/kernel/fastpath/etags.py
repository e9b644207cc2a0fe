"""Conditional requests: decides whether the client already has the current response."""

from django.utils.http import parse_etags

TAGS_MAX = 16
"""Longer lists match nothing: Django's parser takes a microsecond for each comma, also on the event loop."""


def has_etag(known: str, etag: str) -> bool:
    """Return whether `If-None-Match` names this ETag. Weak and strong ETags are equal here (RFC 9110)."""
    if known.count(",") >= TAGS_MAX:
        return False
    tags = parse_etags(known)
    return "*" in tags or etag.removeprefix("W/") in [tag.removeprefix("W/") for tag in tags]
