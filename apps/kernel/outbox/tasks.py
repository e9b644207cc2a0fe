from celery import shared_task

from apps.kernel.outbox import delivery

PATIENCE_SECONDS = 2.0
"""Longest time a wake-up occupies a worker while its process delivers; the next one then goes to another process."""


@shared_task(name="outbox.deliver")
def deliver() -> bool:
    """Start delivering due messages in this process; return whether all were settled within PATIENCE_SECONDS.

    The task has no arguments: the rows are the work. Stuck messages keep their threads, and the worker takes its next
    task.
    """
    deliverers = delivery.get_delivery()
    deliverers.wake()
    return deliverers.wait(PATIENCE_SECONDS)
