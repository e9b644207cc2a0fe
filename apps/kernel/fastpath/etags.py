"""Whether a client has these very bytes already."""

from django.utils.http import parse_etags


def has_etag(known: str, etag: str) -> bool:
    """Whether the answer of this ETag is among those that `If-None-Match` names, as a cache compares them: strong or
    weak is one."""
    tags = parse_etags(known)
    return "*" in tags or etag.removeprefix("W/") in [tag.removeprefix("W/") for tag in tags]
