"""Settings of pages that are the same for all visitors: in the memory of `web`, and in caches in front
(docs/operations/cdn.md)."""

import environ
from django.core.exceptions import ImproperlyConfigured

from ticketing import settings_parser

_env = environ.Env()


def _whole(name: str, default: int, *, most: int, unit: str) -> int:
    try:
        value: int = _env.int(name, default=default)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} cannot be parsed: {error}") from error
    if not 0 <= value <= most:
        raise ImproperlyConfigured(f"{name} must be a number of {unit}, not {value}")
    return value


def _seconds(name: str, default: int) -> int:
    return _whole(name, default, most=31_536_000, unit="seconds from 0 to a year")


CACHE_PAGE_SECONDS = _seconds("CACHE_PAGE_SECONDS", 300)
CACHE_STALE_SECONDS = _seconds("CACHE_STALE_SECONDS", 60)  # Served stale while the cache revalidates.
CACHE_SOLD_OUT_SECONDS = _seconds("CACHE_SOLD_OUT_SECONDS", 30)  # Also for the catalog while it shows counts.
CACHE_COUNTS_SECONDS = _seconds("CACHE_COUNTS_SECONDS", 1)
CACHE_POSTER_SECONDS = _seconds("CACHE_POSTER_SECONDS", 3_600)
# Memory of each process of `web` for these pages and for static files; 0: none are kept.
PAGE_CACHE_MAX_BYTES = _whole("PAGE_CACHE_MAX_BYTES", 64 * 1024 * 1024, most=2**40, unit="bytes from 0 to a terabyte")
# Receives the URLs of changed pages; empty: none. The token is sent as Authorization: Bearer.
PURGE_URL = _env.str("PURGE_URL", default="")
PURGE_TOKEN = _env.str("PURGE_TOKEN", default="")
settings_parser.parse_hook_url("PURGE_URL", PURGE_URL)
if not (PURGE_TOKEN.isascii() and (PURGE_TOKEN.isprintable() or not PURGE_TOKEN)):
    raise ImproperlyConfigured("PURGE_TOKEN must be printable ASCII")
