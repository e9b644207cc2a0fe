"""Whose request this is: one answer in the lane (ASGI) and at the site (WSGI).

The peer of the connection, unless that is a proxy named in TRUSTED_PROXIES: then X-Forwarded-For is read from its
right end, past every entry that is a trusted proxy too, and the first other one is the client. What stands further left
the client wrote itself. An entry that is no address ends the reading, and the peer it is. The servers believe no such
header themselves: this module is the only one that does.

Between our own two processes the lane decides, and the site takes its word: the lane replaces every such header by what
it found, and signs with a mark that follows from the house's key. Whoever reaches the site otherwise, a proxy that
routes pages to it or anybody on the machine, has no mark and is judged like a client of the lane.
"""

import hmac
import ipaddress
from collections.abc import Mapping, MutableMapping
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any

from django.conf import settings

from apps.kernel import secret_key

FORWARDED_BY_HEADER = "x-fairgate-lane"
UNKNOWN = ""
"""Where the connection has no address: a socket file. It is not limited by address."""
HOPS_MAX = 16
FORWARDED_LENGTH_MAX = 1_024


def address_from_scope(scope: Mapping[str, Any]) -> str:
    """The address of the client of an ASGI request."""
    client = scope.get("client")
    peer = client[0] if client else UNKNOWN
    if not _has_proxies():
        return peer
    return _resolve_client(peer, _joined(scope, b"x-forwarded-for")[-FORWARDED_LENGTH_MAX:])


def scheme_from_scope(scope: Mapping[str, Any]) -> str:
    """https or http, as the client asked: of a trusted proxy what it says, else what the connection is."""
    scheme = scope.get("scheme", "http")
    client = scope.get("client")
    if client and _has_proxies() and _is_trusted(client[0]):
        said = _joined(scope, b"x-forwarded-proto").rpartition(",")[2].strip().lower()
        return said if said in ("http", "https") else scheme
    return scheme


def address_from_environ(environ: Mapping[str, Any]) -> str:
    """The address of the client of a WSGI request."""
    peer = environ.get("REMOTE_ADDR") or UNKNOWN
    forwarded = environ.get("HTTP_X_FORWARDED_FOR", "")
    if is_forwarded_by_fastpath(environ):
        return forwarded
    return _resolve_client(peer, forwarded[-FORWARDED_LENGTH_MAX:]) if _has_proxies() else peer


def is_forwarded_by_fastpath(environ: Mapping[str, Any]) -> bool:
    """Whether our own lane forwarded this WSGI request: its X-Forwarded-* are true, and it has been counted."""
    given: str = environ.get("HTTP_X_FAIRGATE_LANE", "")
    return bool(given) and hmac.compare_digest(given.encode("latin-1", "replace"), forward_token().encode())


def strip_untrusted_headers(environ: MutableMapping[str, Any]) -> None:
    """What nobody whom we believe has said about a WSGI request is not in it any more."""
    if is_forwarded_by_fastpath(environ) or _is_trusted(environ.get("REMOTE_ADDR") or UNKNOWN):
        return
    environ.pop("HTTP_X_FORWARDED_PROTO", None)


def forget_settings() -> None:
    """What was found by settings that have changed since is forgotten (tests)."""
    _has_proxies.cache_clear()
    _resolve_client.cache_clear()
    _is_trusted.cache_clear()


@cache
def forward_token() -> str:
    """By which the site knows the lane. Never leaves the house: the lane drops what a client sends under its name."""
    key = secret_key.require_key().encode()
    return blake2b(b"the lane speaks to the site", key=blake2b(key).digest(), digest_size=24).hexdigest()


def _joined(scope: Mapping[str, Any], name: bytes) -> str:
    return ",".join(value.decode("latin-1") for key, value in scope["headers"] if key == name)


@cache
def _has_proxies() -> bool:
    # Remembered: each look into Django's settings costs a poll more than all else that is done here.
    return bool(settings.TRUSTED_PROXIES)


@lru_cache(maxsize=4_096)
def _resolve_client(peer: str, forwarded: str) -> str:
    if not forwarded or not _is_trusted(peer):
        return peer
    entries = forwarded.split(",")
    if len(forwarded) == FORWARDED_LENGTH_MAX:
        entries[0] = "cut off"
    found = peer
    for entry in reversed(entries[-HOPS_MAX:]):
        address = _address(entry.strip())
        if address is None:
            return peer
        found = str(address)
        if not any(address in network for network in settings.TRUSTED_PROXIES):
            return found
    return found


@lru_cache(maxsize=1_024)
def _is_trusted(peer: str) -> bool:
    address = _address(peer)
    return address is not None and any(address in network for network in settings.TRUSTED_PROXIES)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address in an entry, which some proxies write with its port."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
