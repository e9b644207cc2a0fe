"""What happens after a commit: which app's function takes which outbox topic, and how a worker is woken for it.

The Celery message is only a wake-up. With the broker away it is dropped at once, and the maintenance loop, which needs
PostgreSQL only, finds what waits: first it wakes again, then it delivers by itself.
"""

import logging
import time
from functools import cache

from django.conf import settings
from kombu import Connection
from kombu.exceptions import OperationalError
from kombu.pools import producers

from apps.kernel import maintenance
from apps.kernel.outbox import delivery
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.tasks import deliver
from apps.orders import facade as orders
from apps.reservations import facade as reservations
from ticketing import cache_purge
from ticketing.celery import app

logger = logging.getLogger(__name__)

WAKE_AGAIN_AFTER_SECONDS = 1.0
DELIVER_HERE_AFTER_SECONDS = 3.0
BROKER_SECONDS_MAX = 0.5
"""A buyer waits no longer than this for the broker, and then nobody does for BROKER_PAUSE_SECONDS."""
BROKER_PAUSE_SECONDS = 10.0

_broker = {"rests_until": 0.0}
"""On the process's monotonic clock."""


def register() -> None:
    """Every topic has its handler, and whoever writes a message wakes a worker after the commit."""
    app.set_default()
    for each in orders.handlers():
        outbox.register_handler(
            each.topic,
            each.handle,
            each.visibility,
            attempts_max=each.attempts_max,
            backoff=each.backoff,
            together_max=each.together_max,
        )
    outbox.register_handler(reservations.PAGE_CHANGED, cache_purge.purge, cache_purge.VISIBILITY)
    outbox.register_wake(wake_worker)
    maintenance.register("deliver outbox", 1, deliver_waiting)
    if settings.PURGE_URL:
        maintenance.register("tell caches of pages that have turned", 1, reservations.publish_page_changes)
    maintenance.register("collect outbox garbage", 60, outbox.collect_garbage)


def wake_worker() -> None:
    """A worker knows that there may be something to deliver, if the broker can be reached within a moment."""
    _try_to_wake()


def _try_to_wake() -> bool:
    if time.monotonic() < _broker["rests_until"]:
        return False
    try:
        with producers[_broker_connection()].acquire(block=True, timeout=BROKER_SECONDS_MAX) as producer:
            deliver.apply_async(producer=producer, retry=False)
    except (OperationalError, OSError) as error:
        _broker["rests_until"] = time.monotonic() + BROKER_PAUSE_SECONDS
        logger.warning("the broker is away (%s); the maintenance loop delivers meanwhile", error)
        return False
    return True


@cache
def _broker_connection() -> Connection:
    """Impatient, unlike a worker's own: it connects once and waits BROKER_SECONDS_MAX at most."""
    patience = {"socket_connect_timeout": BROKER_SECONDS_MAX, "socket_timeout": BROKER_SECONDS_MAX, "max_retries": 0}
    return app.connection_for_write(transport_options={**settings.CELERY_BROKER_TRANSPORT_OPTIONS, **patience})


def deliver_waiting() -> None:
    """What has waited too long is moved along: by another wake-up, and if that fails or did not help, here.

    Here means beside the loop, many at once: a provider that takes its whole time-out must keep neither the loop's
    other jobs waiting nor anybody else's message.
    """
    waited_seconds = outbox.oldest_due_seconds()
    if waited_seconds is None or waited_seconds < WAKE_AGAIN_AFTER_SECONDS:
        return
    if waited_seconds < DELIVER_HERE_AFTER_SECONDS and _try_to_wake():
        return
    delivery.get_delivery().wake()
