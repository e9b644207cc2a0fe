"""The Celery application. Workers run the apps' `tasks` modules; beat's schedule is in the database."""

import os
from typing import Any

from celery import Celery, signals

from ticketing import startup

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")

END_SECONDS_MAX = 3.0

app = Celery("fairgate")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@signals.worker_init.connect
@signals.beat_init.connect
def begin(**kwargs: Any) -> None:
    """Stop a worker or beat that has no secret key. Processes that only send tasks are not checked."""
    startup.begin()


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
