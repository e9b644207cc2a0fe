from celery import shared_task

from apps.kernel.outbox import delivery

PATIENCE_SECONDS = 2.0
"""The longest time for which a wake-up occupies a worker. A busy process thus leaves the next wake-up to another."""


@shared_task(name="outbox.deliver")
def deliver() -> bool:
    """Start delivering due messages in this process; return whether all were settled within PATIENCE_SECONDS.

    The task has no arguments, because the rows list the work. Stuck messages keep their threads while the worker takes
    its next task.
    """
    deliverers = delivery.get_delivery()
    deliverers.wake()
    return deliverers.wait(PATIENCE_SECONDS)
