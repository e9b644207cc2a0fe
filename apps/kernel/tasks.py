from celery import shared_task

from apps.kernel.checks import auditor, reconciler


@shared_task(name="kernel.audit")
def run_audit() -> int:
    """An audit has run; how many breaches it found."""
    return auditor.run_and_record().breach_count


@shared_task(name="kernel.reconcile")
def reconcile() -> int:
    """A reconciliation has run and reported, and repaired nothing; how many differences it found."""
    return reconciler.run_and_record().difference_count
