"""Conditional requests: whether the client already has a response."""

from django.utils.http import parse_etags


def has_etag(known: str, etag: str) -> bool:
    """Whether `If-None-Match` names this ETag. Weak and strong ETags compare equal, as RFC 9110 requires here."""
    tags = parse_etags(known)
    return "*" in tags or etag.removeprefix("W/") in [tag.removeprefix("W/") for tag in tags]
