"""Purging of shared caches: the outbox sends the URLs of changed pages to PURGE_URL in one POST of JSON.

The hook at that URL purges the operator's cache (docs/operations/cdn.md). Any 2xx means success. If the hook is
unavailable, other deliveries are briefly delayed, and sales not at all.
"""

import json
import logging
import time
from datetime import timedelta

from django.conf import settings

from apps.kernel import clock, safe_http
from apps.kernel.outbox.facade import Message
from apps.reservations import facade as reservations

logger = logging.getLogger(__name__)

HOOK_SECONDS_MAX = 3.0
"""Timeout of the whole request, response included."""
PAUSE_SECONDS = 10.0
"""A failed hook is not called for this long, so that the worker can deliver other messages."""
VISIBILITY = timedelta(seconds=30)

_hook = {"rests_until": 0.0}
"""`rests_until`: no call before this time of the process's monotonic clock."""


class NotPurged(Exception):
    """The hook did not confirm the purge; the outbox retries."""


def purge(message: Message) -> None:
    """Send the URLs to the hook. Skips a stock change that is older than every cached copy. Raises NotPurged."""
    if not settings.PURGE_URL:
        return
    kept = timedelta(seconds=settings.CACHE_PAGE_SECONDS + settings.CACHE_STALE_SECONDS)
    if message.body["reason"] in reservations.PAGE_CHANGED_BY_STOCK and clock.now() - message.created_at > kept:
        logger.warning("%s: not purged in time; all cached copies have expired by now", message.key)
        return
    if time.monotonic() < _hook["rests_until"]:
        raise NotPurged("the hook failed recently and is paused")
    try:
        _post(json.dumps(message.body).encode())
    except NotPurged:
        _hook["rests_until"] = time.monotonic() + PAUSE_SECONDS
        raise


def _post(body: bytes) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "fairgate"}
    if settings.PURGE_TOKEN:
        headers["Authorization"] = f"Bearer {settings.PURGE_TOKEN}"
    try:
        response = safe_http.request(
            "POST",
            settings.PURGE_URL,
            headers,
            body,
            seconds_max=HOOK_SECONDS_MAX,
            answer_bytes_max=0,
            allowed=safe_http.OPERATOR_URL,
        )
    except (safe_http.RequestFailed, safe_http.AddressRefused) as error:
        raise NotPurged(f"the hook is unavailable or timed out: {error}") from error
    if not 200 <= response.status < 300:
        raise NotPurged(f"the hook responded with {response.status}")
