"""Limits of feeds, the message queues of organizers' programs (docs/api.md), from the environment."""

import environ
from django.core.exceptions import ImproperlyConfigured

_env = environ.Env()


def _whole(name: str, default: int) -> int:
    try:
        value: int = _env.int(name, default=default)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} must be a number: {error}") from error
    if value < 1:
        raise ImproperlyConfigured(f"{name} must be at least 1, not {value}")
    return value


FEEDS_MAX = _whole("FEEDS_MAX", 20)
"""Feeds of one organizer."""
FEED_MESSAGES_MAX = _whole("FEED_MESSAGES_MAX", 1_000_000)
"""Messages that are not deleted, in one feed."""
FEED_BYTES_MAX = _whole("FEED_BYTES_MAX", 256 * 1024 * 1024)
"""The size of their bodies."""
