from celery import shared_task

from apps.kernel.scheduler import executor


@shared_task(name="scheduler.execute")
def execute(run_ids: list[int]) -> int:
    """Execute these runs; return how many were started here. The others were started elsewhere, or canceled."""
    return executor.execute_all(run_ids)
