"""Caches in front of the house are told which addresses to forget: one POST of JSON to PURGE_URL, from the outbox.

Whoever listens there does what its cache needs (docs/operations/cdn.md). Any 2xx means that it is done. Nothing waits
for it: a hook that is away delays deliveries by a moment, and sales by nothing.
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
"""For the whole of it, however slowly the hook speaks."""
PAUSE_SECONDS = 10.0
"""A hook that failed is asked nothing for so long: what else is to be delivered has the worker."""
VISIBILITY = timedelta(seconds=30)

_hook = {"rests_until": 0.0}
"""On the process's monotonic clock."""


class NotPurged(Exception):
    """The hook did not say that it is done; the outbox tries again."""


def purge(message: Message) -> None:
    """The hook has been told and said 2xx, or nothing is left to purge. Raises NotPurged."""
    if not settings.PURGE_URL:
        return
    kept = timedelta(seconds=settings.CACHE_PAGE_SECONDS + settings.CACHE_STALE_SECONDS)
    if message.body["reason"] in reservations.PAGE_CHANGED_BY_STOCK and clock.now() - message.created_at > kept:
        logger.warning("%s: not purged in time, and by now no copy is that old", message.key)
        return
    if time.monotonic() < _hook["rests_until"]:
        raise NotPurged("the hook failed a moment ago and rests")
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
        answer = safe_http.request(
            "POST",
            settings.PURGE_URL,
            headers,
            body,
            seconds_max=HOOK_SECONDS_MAX,
            answer_bytes_max=0,
            allowed=safe_http.OPERATOR_URL,
        )
    except (safe_http.RequestFailed, safe_http.AddressRefused) as error:
        raise NotPurged(f"the hook is away or was cut off: {error}") from error
    if not 200 <= answer.status < 300:
        raise NotPurged(f"the hook answered {answer.status}")
