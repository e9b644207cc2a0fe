from celery import shared_task

from apps.kernel.outbox import delivery

PATIENCE_SECONDS = 2.0
"""So long a wake-up stays with a process whose deliverers are at work: the next one goes to another process."""


@shared_task(name="outbox.deliver")
def deliver() -> bool:
    """What was due is being delivered by this process; whether it was done with in time to say so. The task carries
    nothing: the rows are the work. What is stuck is left to its thread, and the worker is free for the next task."""
    deliverers = delivery.get_delivery()
    deliverers.wake()
    return deliverers.wait(PATIENCE_SECONDS)
