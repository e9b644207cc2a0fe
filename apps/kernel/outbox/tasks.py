import time

from celery import shared_task

from apps.kernel.outbox import delivery

PATIENCE_SECONDS = 2.0
"""The longest time for which a wake-up occupies a worker. A busy process thus leaves the next wake-up to another."""
AGAIN_SECONDS = 0.5
"""How often a process that waits for messages in progress looks for new ones: the other processes of the worker may be
occupied, so that nothing takes their wake-up meanwhile."""


@shared_task(name="outbox.deliver")
def deliver() -> bool:
    """Deliver due messages in this process; return whether all were settled within PATIENCE_SECONDS.

    The task has no arguments, because the rows list the work. Stuck messages keep their threads while the worker takes
    its next task.
    """
    deliverers = delivery.get_delivery()
    until = time.monotonic() + PATIENCE_SECONDS
    while (left := until - time.monotonic()) > 0:
        deliverers.wake()
        if deliverers.wait(min(AGAIN_SECONDS, left)):
            return True
    return False
