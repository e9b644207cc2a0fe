"""The Celery application: workers run the tasks of the apps' `tasks` modules, beat's schedule is in the database."""

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
def begin(**about: Any) -> None:
    """Neither a worker nor beat starts without the house's key; whoever only sends tasks is not asked."""
    startup.begin()


@signals.worker_process_init.connect
def show_figures(**about: Any) -> None:
    """What a worker's process counts is in /metrics."""
    from apps.kernel.observability import metrics  # Needs Django set up, which the worker has done by now.

    metrics.begin("worker")


@signals.worker_process_shutdown.connect
def end_deliveries(**about: Any) -> None:
    """What a worker's process has begun to deliver has a moment to end. What does not is another's when its claim has
    run out."""
    from apps.kernel.outbox import delivery

    delivery.close(END_SECONDS_MAX)
