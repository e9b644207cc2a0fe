"""The audit of everything, again and again, slowly enough that no sale notices it.

Each gatekeeper has this loop in a thread of its own; one of them leads. After each batch the loop rests REST_FACTOR
times as long as the batch took, so it costs a fixed share of one processor however much history there is: what grows
with history is the duration of a pass, and with it the age of its result.
"""

import logging
import threading

import psycopg
from django.db import close_old_connections

from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.kernel.db.leader_election import Leadership
from apps.kernel.models import AuditRun
from apps.kernel.observability.repeated_errors import RepeatedErrors

logger = logging.getLogger(__name__)

REST_FACTOR = 39.0
"""Rest after a batch, by its duration: a pass works a fortieth of the time."""
PAUSE_SECONDS = 600.0
"""The pause between the end of a pass and the beginning of the next."""
TICK_SECONDS = 5.0
LOCK_KEY = b"fairaudt"
SESSION_OPTIONS = "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
"""Without an idle limit: during a pass the session only holds the lock."""


class _Stopping(Exception):
    """The process ends; the pass is given up."""


def run_if_due(rest_factor: float, stopping: threading.Event) -> AuditRun | None:
    """Run and store an audit of everything if the last one ended PAUSE_SECONDS ago or never ran. None: it is not due,
    or `stopping` was set."""
    latest = AuditRun.objects.filter(scope=AuditRun.Scope.EVERYTHING).first()
    if latest is not None and (clock.now() - latest.finished_at).total_seconds() < PAUSE_SECONDS:
        return None

    def rest(worked_seconds: float) -> None:
        if stopping.wait(worked_seconds * rest_factor):
            raise _Stopping

    try:
        return auditor.run_and_record(rest)
    except _Stopping:
        return None


def loop(stopping: threading.Event) -> None:
    """Run passes, or stand by while another process does, until `stopping` is set."""
    leadership = Leadership("whole audit", LOCK_KEY, options=SESSION_OPTIONS)
    errors = RepeatedErrors(logger)
    try:
        while not stopping.wait(TICK_SECONDS):
            try:
                if leadership.holds():
                    run_if_due(REST_FACTOR, stopping)
                errors.over("the audit of everything failed")
            except psycopg.Error:
                pass  # Another process leads from now on, or PostgreSQL is away.
            except Exception as error:  # noqa: BLE001 - The loop survives any error.
                errors.record_failure("the audit of everything failed", error)
            finally:
                close_old_connections()
    finally:
        leadership.resign()
