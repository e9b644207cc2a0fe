"""Health and metrics endpoints for operators: /healthz, /readyz and /metrics.

At the public address the details of /readyz and all of /metrics need METRICS_TOKEN; the operations port
(apps/kernel/observability/operations_port.py) needs none.
"""

import fcntl
import hmac
import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis import Redis, RedisError

from apps.kernel.checks import reconciler
from apps.kernel.db import sql
from apps.kernel.fastpath import cache
from apps.kernel.feeds import feed_metrics
from apps.kernel.observability import metrics as metrics_of_processes
from apps.kernel.observability.operations_port import JSON, Answer
from apps.kernel.outbox import facade as outbox
from apps.kernel.scheduler import facade as scheduler
from apps.kernel.scheduler import scheduler_metrics
from apps.orders import facade as orders
from apps.reservations import facade as reservations

REDIS_TIMEOUT_SECONDS = 1
KEPT_SECONDS = 1.0
"""How long the result of /readyz is kept."""
Result = tuple[int, dict[str, str]]
logger = logging.getLogger(__name__)
_measure = sql.load("ticketing", "measure")


@never_cache
@csrf_exempt  # Other methods get 405, not a page about forms.
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Return 200, because the process responds."""
    return JsonResponse({"status": "ok"})


@never_cache
@csrf_exempt
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Return 200 if PostgreSQL responds: `ok`, or `degraded` without Redis (slower but correct). Otherwise 503. With
    METRICS_TOKEN the response includes the result of each check."""
    status, body = check_readiness()
    if not has_token(request):
        body = {"status": body["status"]}
    return JsonResponse(body, status=status, headers={"Retry-After": "2"} if status == 503 else {})


def has_token(request: HttpRequest) -> bool:
    """Return whether the request has METRICS_TOKEN as its bearer token."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    is_given = scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), settings.METRICS_TOKEN.encode())
    return is_given and bool(settings.METRICS_TOKEN)


class _Readiness:
    """The result of the last check, and a lock that allows one check at a time in this process."""

    def __init__(self) -> None:
        self.checking = threading.Lock()
        self.clear()

    def clear(self) -> None:
        self.result: Result = 503, {"status": "unavailable", "database": "unknown", "redis": "unknown"}
        self.checked_at = float("-inf")


_readiness = cache.register(_Readiness())


def check_readiness() -> Result:
    """Return the status and the content of /readyz, with the result of each check.

    The result is kept for KEPT_SECONDS. While a thread is checking, others return the last result, also an older one: a
    Redis that accepts connections and does not respond makes a check last a second or two, and many requests at once
    must not occupy the threads of the site for that time.
    """
    is_fresh = time.monotonic() - _readiness.checked_at < KEPT_SECONDS
    if not is_fresh and _readiness.checking.acquire(blocking=False):
        try:
            _readiness.result, _readiness.checked_at = _check(), time.monotonic()
        finally:
            _readiness.checking.release()
    status, body = _readiness.result
    return status, dict(body)


def _check() -> Result:
    checks = {
        "database": "ok" if is_database_available() else "away",
        "redis": "ok" if is_redis_available() else "away",
    }
    if checks["database"] == "away":
        return 503, {"status": "unavailable", **checks}
    # Sales continue while a provider is unavailable: charges wait.
    resting = orders.list_unavailable_providers()
    checks["payments"] = f"resting: {', '.join(resting)}" if resting else "ok"
    return 200, {"status": "ok" if checks["redis"] == "ok" else "degraded", **checks}


def is_database_available() -> bool:
    try:
        connection.ensure_connection()
        if not connection.is_usable():
            # The connection may date from before a restart: a new one shows whether the server is back.
            connection.close()
            connection.ensure_connection()
    except DatabaseError as error:
        logger.warning("the database does not respond: %s", error)
        return False
    return True


def is_redis_available() -> bool:
    try:
        with Redis.from_url(
            settings.REDIS_URL,
            socket_connect_timeout=REDIS_TIMEOUT_SECONDS,
            socket_timeout=REDIS_TIMEOUT_SECONDS,
        ) as client:
            client.ping()
    except RedisError as error:
        logger.warning("redis does not respond: %s", error)
        return False
    return True


class DatabaseCollector(Collector):
    """Metrics read from PostgreSQL at each scrape, so that every process reports the same values."""

    def collect(self) -> Iterable[Metric]:
        gauges = {name: GaugeMetricFamily(f"fairgate_{name}", text, labels=labels) for name, text, labels in _FIGURES}
        up = GaugeMetricFamily("fairgate_database_up", "Whether PostgreSQL responded to this scrape.")
        redis_up = GaugeMetricFamily("fairgate_redis_up", "Whether Redis responded to this scrape.")
        redis_up.add_metric([], float(is_redis_available()))
        differences = CounterMetricFamily(
            "fairgate_reconcile_differences",
            "Differences found by the reconciler, by kind; a persistent one is counted at each run.",
            labels=["kind"],
        )
        found = dict.fromkeys(reconciler.kinds(), 0.0)
        try:
            for name, label, value in self._figures():
                if name == "reconcile_differences":
                    found[label] = value
                else:
                    gauges[name].add_metric([label] if label else [], value)
        except DatabaseError as error:
            logger.warning("no database metrics in this scrape: %s", error)
            up.add_metric([], 0)
            return [up, redis_up]
        up.add_metric([], 1)
        for kind, count in found.items():
            differences.add_metric([kind], count)
        return [up, redis_up, *gauges.values(), differences]

    def _figures(self) -> Iterator[tuple[str, str, float]]:
        with connection.cursor() as cursor:
            for name, label, value in _measure.rows(cursor):
                yield name, label, float(value)
        messages = outbox.get_status()
        yield "outbox_pending_count", "", float(messages.pending)
        yield "outbox_stuck_count", "", float(messages.stuck)
        yield "outbox_dead_count", "", float(messages.given_up)
        yield "outbox_oldest_due_seconds", "", messages.lag_seconds
        yield "outbox_mail_pending_count", "", float(messages.mail_pending)
        yield "outbox_mail_oldest_due_seconds", "", messages.mail_lag_seconds
        yield "outbox_deletion_mean_seconds", "", messages.mean_seconds_to_deletion or 0.0
        tasks, plan = scheduler_metrics.read_queue(), scheduler.read_plan()
        yield "scheduler_due_count", "", float(tasks.due)
        yield "scheduler_oldest_due_seconds", "", tasks.oldest_due_seconds
        yield "scheduler_running_count", "", float(tasks.running)
        yield "scheduler_failed_count", "", float(tasks.failed)
        yield "scheduler_picker_lag_seconds", "", tasks.picker_lag_seconds
        yield "scheduler_executors_count", "", float(plan.executors)
        yield "scheduler_executors_needed_count", "", float(plan.executors_needed)
        totals = feed_metrics.read_totals()
        yield "feeds_messages_count", "", float(totals.messages)
        yield "feeds_dead_count", "", float(totals.dead)
        yield "feeds_oldest_due_seconds", "", totals.oldest_due_seconds
        for state, count in reservations.gate_states().items():
            yield "gates_count", state, float(count)


_FIGURES: list[tuple[str, str, list[str]]] = [
    ("outbox_pending_count", "Messages neither delivered nor given up.", []),
    ("outbox_stuck_count", "Messages claimed more than five minutes ago and not deleted.", []),
    ("outbox_dead_count", "Messages given up, which need an operator.", []),
    ("outbox_oldest_due_seconds", "Age of the oldest unclaimed due message, mail apart.", []),
    ("outbox_mail_pending_count", "Pending messages for mail.", []),
    ("outbox_mail_oldest_due_seconds", "Age of the oldest unclaimed due message for mail.", []),
    ("outbox_deletion_mean_seconds", "Mean time from claim to deletion, over the last hour's latest 10,000.", []),
    ("scheduler_due_count", "Runs of scheduled tasks that are due and have not started.", []),
    ("scheduler_oldest_due_seconds", "How long the oldest of them has been due.", []),
    ("scheduler_running_count", "Runs of scheduled tasks that are running.", []),
    ("scheduler_failed_count", "Runs of scheduled tasks that failed in the last day.", []),
    ("scheduler_picker_lag_seconds", "How late the first scheduled task is that no picker has picked.", []),
    ("scheduler_executors_count", "Executors of the workers that reported in the last minute.", []),
    ("scheduler_executors_needed_count", "Executors that start the runs of the next ten minutes in time.", []),
    ("feeds_messages_count", "Messages of all feeds that are not deleted.", []),
    ("feeds_dead_count", "Dead letters of all feeds.", []),
    ("feeds_oldest_due_seconds", "The longest wait of a message that a feed's receivers can receive.", []),
    ("payment_provider_faults_count", "Consecutive calls without a response.", ["provider"]),
    ("payment_provider_resting", "Whether the circuit breaker of the provider is open.", ["provider"]),
    ("audit_breaches_count", "Breaches found by the latest audits of changes and of everything.", []),
    ("audit_unchecked_count", "Checks of these audits that did not finish, so that their result is unknown.", []),
    ("audit_finished_seconds", "Unix time of the latest audit.", []),
    ("audit_whole_finished_seconds", "Unix time of the latest audit of everything.", []),
    ("reconcile_left_count", "Differences left by the latest complete reconciliation.", []),
    ("reconcile_failed_count", "Checks of the latest complete reconciliation that failed.", []),
    ("reconcile_finished_seconds", "Unix time of the latest complete reconciliation.", []),
    ("payments_unsettled_count", "Charges sent to a provider and not settled.", []),
    ("payments_unsettled_seconds", "Age of the oldest unsettled charge.", []),
    ("refunds_open_count", "Refunds requested or pending.", []),
    ("payment_differences_count", "Differences with a provider's books that need an operator.", ["kind"]),
    ("reservations_live_count", "Reservations that hold inventory, by status.", ["status"]),
    ("reservations_overdue_count", "Live reservations past their deadline that no sweep has ended.", []),
    ("reservations_overdue_seconds", "How long the most overdue reservation is past its deadline.", []),
    ("gates_count", "Gates of events on sale or about to be; a refused one needs an operator.", ["state"]),
    ("queue_ready_count", "Visitors admitted and shopping.", []),
]

registry = CollectorRegistry()
registry.register(DatabaseCollector())
registry.register(metrics_of_processes.machine_metrics)
# These describe the process that responds to the scrape.
for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
    registry.register(collector)


def scrape() -> bytes | None:
    """Return all metrics in the Prometheus text format; None while another process or thread of this machine computes
    them. A scrape takes about a second of a processor, so there is one at a time."""
    try:
        lock = os.open(Path(settings.METRICS_FOLDER) / "scrape.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return generate_latest(registry)  # Without a folder there are only the metrics of this process.
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return generate_latest(registry)
    except BlockingIOError:
        return None
    finally:
        os.close(lock)  # Also releases the lock.


@never_cache
@csrf_exempt
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """All metrics, for requests with METRICS_TOKEN. Without that setting there is no such page."""
    if not settings.METRICS_TOKEN:
        raise Http404
    if not has_token(request):
        return HttpResponse(status=401, headers={"WWW-Authenticate": "Bearer"})
    body = scrape()
    if body is None:
        return HttpResponse(status=503, headers={"Retry-After": "2"})
    return HttpResponse(body, content_type=CONTENT_TYPE_LATEST)


def answer_readyz() -> Answer:
    """Answer /readyz at the operations port."""
    status, body = check_readiness()
    return status, JSON, json.dumps(body).encode()


def answer_metrics() -> Answer:
    """Answer /metrics at the operations port."""
    body = scrape()
    return (503, JSON, b'{"status":"busy"}') if body is None else (200, CONTENT_TYPE_LATEST, body)


root_urls = [
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", metrics),
]
