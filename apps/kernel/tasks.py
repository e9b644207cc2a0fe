from celery import shared_task
from django.core.management import call_command

from apps.kernel.checks import auditor, reconciler, whole_audit
from apps.kernel.db.leader_election import Leadership

CHECKS_LOCK_KEY = b"fairchks"


@shared_task(name="kernel.check")
def check() -> bool:
    """Check what has changed since the last audit, then run a reconciliation that repairs nothing. Return whether this
    process did; not while another one does: checks that take longer than their interval must not occupy all processes
    of `worker`, which also claim the messages of sales."""
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
