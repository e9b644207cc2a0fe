from celery import shared_task

from apps.kernel.scheduler import executor

EXPIRES_SECONDS = 10
"""While runs wait, the pickers send messages every half second. What no worker takes is dropped."""


@shared_task(name="scheduler.execute", expires=EXPIRES_SECONDS)
def execute() -> int:
    """Execute runs that are due for a second or so; return how many."""
    return executor.execute_due()
