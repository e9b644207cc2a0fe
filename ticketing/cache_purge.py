"""Caches in front of the house are told which addresses to forget: one POST of JSON to PURGE_URL, from the outbox.

Whoever listens there does what its cache needs (docs/operations/cdn.md). Any 2xx means that it is done. Nothing waits
for it: a hook that is away delays deliveries by a moment, and sales by nothing.
"""

import http.client
import json
import logging
import threading
import time
from datetime import timedelta
from urllib.parse import urlsplit

from django.conf import settings

from apps.kernel import clock
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
    parts = urlsplit(settings.PURGE_URL)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"Content-Type": "application/json", "User-Agent": "fairgate"}
    if settings.PURGE_TOKEN:
        headers["Authorization"] = f"Bearer {settings.PURGE_TOKEN}"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    wire = kind(parts.hostname or "", parts.port, timeout=HOOK_SECONDS_MAX)
    # A time-out counts from one byte to the next: a hook that drips would hold the worker. This ends all of it.
    watch = threading.Timer(HOOK_SECONDS_MAX, _cut, [wire])
    watch.daemon = True
    watch.start()
    try:
        wire.request("POST", target, body=body, headers=headers)
        status = wire.getresponse().status
    except (OSError, ValueError, http.client.HTTPException, AttributeError) as error:
        # AttributeError: http.client, when it is cut off between two steps of its own.
        raise NotPurged(f"the hook is away or was cut off: {type(error).__name__}") from error
    finally:
        watch.cancel()
        wire.close()
    if not 200 <= status < 300:
        raise NotPurged(f"the hook answered {status}")


def _cut(wire: http.client.HTTPConnection) -> None:
    sock = wire.sock
    if sock is not None:
        try:
            # Closing alone would leave a read of another thread where it is.
            sock.shutdown(2)
        except OSError as error:
            logger.debug("purge hook: the connection had ended: %s", error)
