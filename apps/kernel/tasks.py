from celery import Task, shared_task
from django.core.management import call_command

from apps.kernel.checks import auditor, reconciler, whole_audit
from apps.kernel.db.leader_election import Leadership
from apps.kernel.heavy_work import slow_slot

CHECKS_LOCK_KEY = b"fairchks"
SLOT_TRIES = 6
SLOT_AGAIN_SECONDS = 5
"""A check that finds the slot of slow runs taken tries again so often, and then runs beside the slow run."""


@shared_task(name="kernel.check", bind=True, max_retries=SLOT_TRIES)
def check(self: Task) -> bool:
    """Check what has changed since the last audit, then run a reconciliation that repairs nothing. Return whether this
    process did; not while another one does: checks that take longer than their interval must not occupy all processes
    of `worker`, which also claim the messages of sales. For the same reason it waits for a slow run of a scheduled
    task, and no other one starts meanwhile."""
    with slow_slot.take() as slot:
        if not slot.is_taken and self.request.retries < SLOT_TRIES:
            raise self.retry(countdown=SLOT_AGAIN_SECONDS)
        leadership = Leadership("checks", CHECKS_LOCK_KEY, options=whole_audit.SESSION_OPTIONS)
        try:
            if not leadership.holds():
                return False
            try:
                auditor.catch_up()
            finally:
                reconciler.run_and_record()
            return True
        finally:
            leadership.resign()


@shared_task(name="kernel.clear_sessions")
def clear_sessions() -> None:
    """Delete the sessions that have expired."""
    call_command("clearsessions")
