from celery import shared_task
from django.core.management import call_command

from apps.kernel.checks import auditor, reconciler


@shared_task(name="kernel.audit")
def run_audit() -> int:
    """Check what has changed since the last audit, and return the number of breaches."""
    return auditor.catch_up().breach_count


@shared_task(name="kernel.reconcile")
def reconcile() -> int:
    """Run a reconciliation that repairs nothing, and return the number of differences."""
    return reconciler.run_and_record().difference_count


@shared_task(name="kernel.clear_sessions")
def clear_sessions() -> None:
    """Delete the sessions that have expired."""
    call_command("clearsessions")
