"""Parsers for URLs, networks and rates in settings, so that a mistake causes one clear message at startup."""

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

from django.core.exceptions import ImproperlyConfigured

DATABASE_FORM = "postgres://user:password@host:port/name"
REDIS_FORM = "redis://:password@host:port/0"
SITE_FORM = "https://tickets.example.org"
HOOK_FORM = "http://host:port/path"
NETWORK_FORM = "10.1.2.3, 10.0.0.0/8 or fd00::/8"
KEYS_FORM = "kid:secret,kid:secret"
TOKEN_SECRET_BYTES_MIN = 32
BEARER_FORM = "at least 16 printable ASCII characters without spaces"
CONTACT_FORM = "mailto:security@example.org or https://example.org/security"
FACTOR_FORM = "203.0.113.7=10, 10.0.0.0/8=50: a network and a factor from 1 to 1000"
RATE_FORM = "RATE:BURST, requests per second and burst, as in 20:1000, or off"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class InvalidSetting(ImproperlyConfigured):
    """The variable has an invalid value. The message names it and the expected form, never the value: it may contain a
    password."""


def parse_database_url(variable: str, value: str) -> str:
    """Return the value if it is the URL of a PostgreSQL database. Raises InvalidSetting."""
    path = _check_url(variable, value, ("postgres", "postgresql"), DATABASE_FORM).path
    if not path.strip("/"):
        raise InvalidSetting(f"{variable} must look like {DATABASE_FORM}; it names no database")
    return value


def parse_redis_url(variable: str, value: str) -> str:
    """Return the value if it is the URL of a Redis server. Raises InvalidSetting."""
    if not _check_url(variable, value, ("redis", "rediss"), REDIS_FORM).hostname:
        raise InvalidSetting(f"{variable} must look like {REDIS_FORM}; it names no host")
    return value


def parse_site_url(variable: str, value: str) -> str:
    """Return the value if it is an HTTP URL. Raises InvalidSetting."""
    if not _check_url(variable, value, ("http", "https"), SITE_FORM).hostname:
        raise InvalidSetting(f"{variable} must look like {SITE_FORM}; it names no host")
    return value


def parse_hook_url(variable: str, value: str) -> str:
    """Return the value if it is an HTTP URL or empty. Raises InvalidSetting."""
    if value and not _check_url(variable, value, ("http", "https"), HOOK_FORM).hostname:
        raise InvalidSetting(f"{variable} must look like {HOOK_FORM}; it names no host")
    return value


def parse_networks(variable: str, values: Iterable[str]) -> list[Network]:
    """Return the networks named by the values. Raises InvalidSetting."""
    try:
        return [ipaddress.ip_network(value.strip()) for value in values if value.strip()]
    except ValueError as error:
        raise InvalidSetting(f"{variable} must name networks like {NETWORK_FORM}: {error}") from error


def parse_token_keys(variable: str, values: Iterable[str]) -> list[str]:
    """Return the kid:secret pairs. Raises InvalidSetting, which names a wrong pair by its position only."""
    pairs = [value.strip() for value in values if value.strip()]
    for position, pair in enumerate(pairs, 1):
        kid, colon, secret = pair.partition(":")
        if not colon:
            wrong = "is not kid:secret"
        elif not re.fullmatch(r"[A-Za-z0-9_-]{1,16}", kid):
            wrong = "has a kid that is not 1 to 16 letters, digits, - or _"
        elif len(secret.encode()) < TOKEN_SECRET_BYTES_MIN:
            wrong = f"has a secret of less than {TOKEN_SECRET_BYTES_MIN} bytes"
        elif kid in (other.partition(":")[0] for other in pairs[: position - 1]):
            wrong = "has the kid of an earlier key"
        else:
            continue
        raise InvalidSetting(f"{variable} must look like {KEYS_FORM}; key {position} {wrong}")
    return pairs


def parse_bearer_token(variable: str, value: str) -> str:
    """Return the token, which may be empty. Raises InvalidSetting."""
    if value and not re.fullmatch(r"[!-~]{16,}", value):
        raise InvalidSetting(f"{variable} must be {BEARER_FORM}")
    return value


def parse_contacts(variable: str, values: Iterable[str]) -> list[str]:
    """Return the URIs of these contacts. Raises InvalidSetting."""
    contacts = [value.strip() for value in values if value.strip()]
    for contact in contacts:
        if not re.fullmatch(r"mailto:[!-~]+@[!-~]+|https://[!-~]+|tel:\+[0-9-]+", contact):
            raise InvalidSetting(f"{variable} must be URIs like {CONTACT_FORM}, not {contact!r}")
    return contacts


def parse_count(variable: str, value: str) -> int:
    """Return the number, from 1 to a million. Raises InvalidSetting."""
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= 1_000_000):
        raise InvalidSetting(f"{variable} must be a number from 1 to 1000000")
    return int(value)


def parse_factors(variable: str, values: Iterable[str]) -> list[tuple[Network, int]]:
    """Return networks and their factors. Raises InvalidSetting."""
    found = []
    for value in values:
        text, _, factor = value.strip().partition("=")
        networks = parse_networks(variable, [text])
        if not (networks and factor.isascii() and factor.isdigit() and 1 <= int(factor) <= 1_000):
            raise InvalidSetting(f"{variable} must look like {FACTOR_FORM}")
        found.append((networks[0], int(factor)))
    return found


def parse_rate(variable: str, value: str) -> tuple[float, int] | None:
    """Return requests per second and burst, or None for "off". Raises InvalidSetting."""
    if value.strip().lower() == "off":
        return None
    per_second, _, burst = value.partition(":")
    try:
        found = float(per_second), int(burst)
    except ValueError as error:
        raise InvalidSetting(f"{variable} must look like {RATE_FORM}") from error
    if not (0.001 <= found[0] <= 1_000_000 and 1 <= found[1] <= 1_000_000):
        raise InvalidSetting(f"{variable} must look like {RATE_FORM}; from 0.001 and 1 to a million each")
    return found


def _check_url(variable: str, value: str, schemes: tuple[str, ...], form: str) -> SplitResult:
    expected = f"{variable} must look like {form}"
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 - the property parses the port
    except ValueError as error:
        raise InvalidSetting(f"{expected}; its host or port is invalid") from error
    if parts.scheme not in schemes or "://" not in value:
        found = f"it starts with {parts.scheme}://" if "://" in value else "it is not a URL"
        raise InvalidSetting(f"{expected}; {found}")
    return parts
