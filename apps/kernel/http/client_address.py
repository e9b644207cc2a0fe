"""The client's address and scheme, determined by the fast path and accepted from it by the site.

The address is the connection's peer, unless that is a proxy named in TRUSTED_PROXIES: then X-Forwarded-For is read from
the right, trusted proxies are skipped, and the first other entry is the client. The client itself may have written the
entries further left. If an entry is not an address, the peer is used. Only this module evaluates these headers; the
servers ignore them.

The site accepts the fast path's decision: the fast path replaces these headers with its result and adds a token derived
from the secret key. A request that reaches the site in another way has no token, and the site ignores its headers, also
from a proxy: WSGI merges `X-Forwarded-For` and `X_Forwarded_For` into one variable, and a proxy that sets the first may
pass the second on from its client.
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
"""The address of a client on a Unix socket. Limits by address do not apply to it."""
HOPS_MAX = 16
FORWARDED_LENGTH_MAX = 1_024


def address_from_scope(scope: Mapping[str, Any]) -> str:
    """Return the client address of an ASGI request."""
    peer = client[0] if (client := scope.get("client")) else UNKNOWN
    if not _has_proxies():
        return peer
    return _resolve_client(peer, _joined(scope, b"x-forwarded-for")[-FORWARDED_LENGTH_MAX:])


def scheme_from_scope(scope: Mapping[str, Any]) -> str:
    """Return https or http, as a trusted proxy reports it, else the scheme of the connection itself."""
    scheme = scope.get("scheme", "http")
    client = scope.get("client")
    if client and _has_proxies() and _is_trusted(client[0]):
        forwarded = _joined(scope, b"x-forwarded-proto").rpartition(",")[2].strip().lower()
        return forwarded if forwarded in ("http", "https") else scheme
    return scheme


def address_from_environ(environ: Mapping[str, Any]) -> str:
    """Return the client address of a WSGI request."""
    if is_forwarded_by_fastpath(environ):
        return environ.get("HTTP_X_FORWARDED_FOR", UNKNOWN)
    return environ.get("REMOTE_ADDR") or UNKNOWN


def is_forwarded_by_fastpath(environ: Mapping[str, Any]) -> bool:
    """Return whether our own fast path forwarded this WSGI request. Its X-Forwarded-* headers are then trusted and its
    rate limit has been checked."""
    given: str = environ.get("HTTP_X_FAIRGATE_LANE", "")
    if not given:
        return False
    # While SECRET_KEY is being changed, the fast path may still have the previous one.
    return any(hmac.compare_digest(given.encode("latin-1", "replace"), token) for token in _accepted_tokens())


def strip_untrusted_headers(environ: MutableMapping[str, Any]) -> None:
    """Remove X-Forwarded-Proto from a WSGI request unless our fast path set it."""
    if not is_forwarded_by_fastpath(environ):
        environ.pop("HTTP_X_FORWARDED_PROTO", None)


def is_proxy(peer: str) -> bool:
    """Return whether connections from this peer carry requests of other clients: a proxy in TRUSTED_PROXIES."""
    return _has_proxies() and _is_trusted(peer)


def forget_settings() -> None:
    """Clear the caches that depend on settings (tests)."""
    forward_token.cache_clear()
    _accepted_tokens.cache_clear()
    _has_proxies.cache_clear()
    _resolve_client.cache_clear()
    _is_trusted.cache_clear()


@cache
def forward_token() -> str:
    """Return the token by which the site recognizes the fast path. It never leaves the deployment: the fast path drops
    this header from clients' requests."""
    return _token_of(secret_key.require_key())


@cache
def _accepted_tokens() -> tuple[bytes, ...]:
    return tuple(_token_of(key).encode() for key in secret_key.accepted_keys())


def _token_of(key: str) -> str:
    return blake2b(b"the lane speaks to the site", key=blake2b(key.encode()).digest(), digest_size=24).hexdigest()


def _joined(scope: Mapping[str, Any], name: bytes) -> str:
    return ",".join(value.decode("latin-1") for key, value in scope["headers"] if key == name)


@cache
def _has_proxies() -> bool:
    # Cached, because reading Django's settings would cost each poll more than the rest of this module.
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
    """Return the address in an entry, to which some proxies append a port; None if it is invalid."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
