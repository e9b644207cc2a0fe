"""The Celery application. Workers run the apps' `tasks` modules; beat's schedule is in the database."""

import os
from typing import Any

from celery import Celery, signals

from ticketing import startup

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")
startup.load_settings()

END_SECONDS_MAX = 3.0
CONSUMER_SECONDS_MAX = 60.0
"""The consumer of a worker sends a heartbeat every two seconds while it is connected to the broker."""

EXECUTOR_QUEUE = "scheduler"
_executors = {"count": 0}

app = Celery("fairgate")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@signals.worker_init.connect
def begin_worker(**kwargs: Any) -> None:
    """Start the main process of a worker; it ends if its settings are not safe. Processes that only send tasks are not
    checked."""
    from apps.kernel.observability import heartbeats

    startup.begin("worker")
    heartbeats.allow_waiting("consumer", is_broker_away)
    beat_consumer()


@signals.heartbeat_sent.connect
def beat_consumer(**kwargs: Any) -> None:
    """Record that the worker's consumer runs."""
    from apps.kernel.observability import heartbeats

    heartbeats.beat("consumer", CONSUMER_SECONDS_MAX)


@signals.worker_ready.connect
def count_executors(sender: Any, **kwargs: Any) -> None:
    """Count the processes of this worker as executors of scheduled tasks, unless it leaves their queue to others."""
    consumed = sender.app.amqp.queues.consume_from
    _executors["count"] = sender.controller.concurrency if EXECUTOR_QUEUE in consumed else 0


@signals.heartbeat_sent.connect
def report_executors(**kwargs: Any) -> None:
    """Report how many scheduled tasks this worker executes at once, while it is connected to the broker."""
    from apps.kernel.scheduler import orchestrator

    orchestrator.report_executors(_executors["count"])


def is_broker_away() -> bool:
    """Return whether the broker does not answer. The consumer then waits for it, and a restart would not help."""
    try:
        with app.connection_for_read() as broker:
            broker.ensure_connection(max_retries=1, interval_start=0)
    except Exception:  # noqa: BLE001 - each transport has its own errors
        return True
    return False


@signals.beat_init.connect
def begin_beat(**kwargs: Any) -> None:
    """Start `beat`; it ends if its settings are not safe."""
    startup.begin("beat")


@signals.worker_process_init.connect
def show_figures(**kwargs: Any) -> None:
    """Include the metrics of worker processes in /metrics."""
    from apps.kernel.observability import metrics  # Imported after the worker has set up Django.

    metrics.begin("worker")


@signals.worker_process_shutdown.connect
def end_deliveries(**kwargs: Any) -> None:
    """Wait briefly for deliveries in progress. Unfinished ones are retried by another process when their claims
    expire."""
    from apps.kernel.outbox import delivery

    delivery.close(END_SECONDS_MAX)
