"""Wiring of outbox and scheduler: which function handles which topic, and how workers are woken after a commit and for
scheduled tasks.

The Celery message is only a wake-up. If the broker is unavailable it is dropped at once; the maintenance loop, which
needs PostgreSQL only, finds waiting messages: it first wakes a worker again, then delivers them itself.
"""

import logging
import time
from functools import cache
from typing import Any

from celery import signals
from django.conf import settings
from kombu import Connection
from kombu.exceptions import OperationalError
from kombu.pools import producers

from apps.kernel import maintenance
from apps.kernel.outbox import delivery
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.tasks import deliver
from apps.kernel.page_cache import version as page_version
from apps.kernel.scheduler import facade as scheduler
from apps.kernel.scheduler.tasks import execute
from apps.orders import facade as orders
from apps.reservations import facade as reservations
from ticketing import cache_purge
from ticketing.celery import app

logger = logging.getLogger(__name__)

WAKE_AGAIN_AFTER_SECONDS = 1.0
DELIVER_HERE_AFTER_SECONDS = 3.0
BROKER_SECONDS_MAX = 0.5
"""A request waits at most this long for the broker; after a failure, no request tries for BROKER_PAUSE_SECONDS."""
BROKER_PAUSE_SECONDS = 10.0

_broker = {"rests_until": 0.0}
"""`rests_until`: no attempt before this time of the process's monotonic clock."""


def register() -> None:
    """Register the handler of every topic, the wake-up after commits, and the maintenance jobs."""
    app.set_default()
    for each in orders.handlers():
        outbox.register_handler(each.topic, each.handle, each.visibility, **each.options)
    outbox.register_handler(reservations.PAGE_CHANGED, cache_purge.purge, cache_purge.VISIBILITY)
    outbox.register_wake(wake_worker)
    scheduler.register_wake(wake_executors)
    maintenance.register("deliver outbox", 1, deliver_waiting)
    if settings.PURGE_URL:
        maintenance.register("purge changed pages from caches", 1, reservations.publish_page_changes)
    maintenance.register("collect outbox garbage", 60, outbox.collect_garbage)
    maintenance.register("forget old changes of pages", 600, page_version.delete_old_changes)


def wake_worker() -> bool:
    """Wake a worker to deliver messages, if the broker responds in time; return whether it did."""
    return _send(deliver, "the maintenance loop delivers meanwhile")


@signals.worker_process_init.connect
def deliver_own_messages(**kwargs: Any) -> None:
    """Let this process of a worker deliver the messages that it writes itself."""
    outbox.register_wake(wake_this_worker)


def wake_this_worker() -> bool:
    """Deliver here what this process, a worker, has just written; if all its threads are occupied, wake another."""
    return delivery.get_delivery().wake_if_free() or wake_worker()


def wake_executors(count: int) -> bool:
    """Wake so many executors of scheduled tasks, if the broker responds in time; return whether it did."""
    return all(_send(execute, "the pickers execute tasks meanwhile") for _ in range(count))


def _send(task: Any, meanwhile: str) -> bool:
    if time.monotonic() < _broker["rests_until"]:
        return False
    try:
        with producers[_broker_connection()].acquire(block=True, timeout=BROKER_SECONDS_MAX) as producer:
            task.apply_async(producer=producer, retry=False)
    except (OperationalError, OSError) as error:
        _broker["rests_until"] = time.monotonic() + BROKER_PAUSE_SECONDS
        logger.warning("the broker is unavailable (%s); %s", error, meanwhile)
        return False
    return True


@cache
def _broker_connection() -> Connection:
    """Return a connection that, unlike a worker's, connects once and waits BROKER_SECONDS_MAX at most."""
    timeouts = {"socket_connect_timeout": BROKER_SECONDS_MAX, "socket_timeout": BROKER_SECONDS_MAX, "max_retries": 0}
    return app.connection_for_write(transport_options={**settings.CELERY_BROKER_TRANSPORT_OPTIONS, **timeouts})


def deliver_waiting() -> None:
    """Wake a worker again if its messages have waited too long; if that fails or has not helped, deliver them here.

    Threads beside the maintenance loop then deliver many messages at once: a provider that uses up its timeout must
    delay neither the loop's other jobs nor other messages.
    """
    waited_seconds = outbox.oldest_due_seconds(outbox.worker_groups())
    if waited_seconds is None or waited_seconds < WAKE_AGAIN_AFTER_SECONDS:
        return
    if waited_seconds < DELIVER_HERE_AFTER_SECONDS and wake_worker():
        return
    delivery.get_delivery().wake()
