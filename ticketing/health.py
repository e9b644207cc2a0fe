"""What an operator asks: does it run, can it serve, how is it doing."""

import logging
from collections.abc import Iterable, Iterator

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.cache import never_cache
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
from apps.kernel.observability import metrics as metrics_of_processes
from apps.kernel.outbox import outbox_metrics
from apps.orders import facade as orders
from apps.reservations import facade as reservations

REDIS_TIMEOUT_SECONDS = 1
logger = logging.getLogger(__name__)
_measure = sql.load("ticketing", "measure")


@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """This process answers."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """200 while the ledger answers: `ok`, or `degraded` without Redis, which is slower and never wrong. 503 without
    the ledger."""
    checks = {
        "database": "ok" if is_database_available() else "away",
        "redis": "ok" if is_redis_available() else "away",
    }
    if checks["database"] == "away":
        return JsonResponse({"status": "unavailable", **checks}, status=503, headers={"Retry-After": "2"})
    # A house whose provider rests goes on selling: charges wait.
    resting = orders.list_unavailable_providers()
    checks["payments"] = f"resting: {', '.join(resting)}" if resting else "ok"
    return JsonResponse({"status": "ok" if checks["redis"] == "ok" else "degraded", **checks})


def is_database_available() -> bool:
    try:
        connection.ensure_connection()
    except DatabaseError as error:
        logger.warning("the database does not answer: %s", error)
        return False
    if connection.is_usable():
        return True
    # A connection that was kept from before a restart: a new one tells whether the server is back.
    connection.close()
    try:
        connection.ensure_connection()
    except DatabaseError as error:
        logger.warning("the database does not answer: %s", error)
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
        logger.warning("redis does not answer: %s", error)
        return False
    return True


class DatabaseCollector(Collector):
    """The house's own figures, read from the ledger at each scrape, so that every process tells the same."""

    def collect(self) -> Iterable[Metric]:
        gauges = {name: GaugeMetricFamily(f"fairgate_{name}", text, labels=labels) for name, text, labels in _FIGURES}
        up = GaugeMetricFamily("fairgate_database_up", "Whether the ledger answered this scrape.")
        redis_up = GaugeMetricFamily("fairgate_redis_up", "Whether Redis answered this scrape.")
        redis_up.add_metric([], float(is_redis_available()))
        differences = CounterMetricFamily(
            "fairgate_reconcile_differences",
            "How often the reconciler found a difference, by its kind; one that stands is found again at each run.",
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
            logger.warning("no figures in this scrape: %s", error)
            up.add_metric([], 0)
            return [up, redis_up]
        up.add_metric([], 1)
        for kind, count in found.items():
            differences.add_metric([kind], count)
        return [up, redis_up, *gauges.values(), differences]

    def describe(self) -> Iterable[Metric]:
        return []  # Nothing is asked of the database at registration.

    def _figures(self) -> Iterator[tuple[str, str, float]]:
        with connection.cursor() as cursor:
            for name, label, value in _measure.rows(cursor):
                yield name, label, float(value)
        outbox = outbox_metrics.get_status()
        yield "outbox_pending_count", "", float(outbox.pending)
        yield "outbox_stuck_count", "", float(outbox.stuck)
        yield "outbox_dead_count", "", float(outbox.given_up)
        yield "outbox_oldest_due_seconds", "", outbox.lag_seconds
        yield "outbox_deletion_mean_seconds", "", outbox.mean_seconds_to_deletion or 0.0
        for state, count in reservations.gate_states().items():
            yield "gates_count", state, float(count)


_FIGURES: list[tuple[str, str, list[str]]] = [
    ("outbox_pending_count", "Messages not yet delivered nor given up.", []),
    ("outbox_stuck_count", "Messages claimed more than five minutes ago and still not deleted.", []),
    ("outbox_dead_count", "Messages given up; a person must look.", []),
    ("outbox_oldest_due_seconds", "How long the longest-waiting unclaimed due message has waited.", []),
    ("outbox_deletion_mean_seconds", "From claim to deletion, of the last hour's latest 10,000.", []),
    ("payment_provider_faults_count", "Calls in a row that brought no answer.", ["provider"]),
    ("payment_provider_resting", "Whether the provider is left alone, or only being tried.", ["provider"]),
    ("audit_breaches_count", "What the latest audit found.", []),
    ("audit_unchecked_count", "Checks of the latest audit that came to no answer; nothing is known of them.", []),
    ("audit_finished_seconds", "Unix time of the latest audit.", []),
    ("reconcile_left_count", "Differences that the latest whole reconciliation left standing.", []),
    ("reconcile_failed_count", "Checks that the latest whole reconciliation could not make.", []),
    ("reconcile_finished_seconds", "Unix time of the latest whole reconciliation.", []),
    ("payments_unsettled_count", "Charges that a provider has and that nobody has settled yet.", []),
    ("payments_unsettled_seconds", "How long the oldest of them has been so.", []),
    ("refunds_open_count", "Refunds on their way.", []),
    ("payment_differences_count", "Listed differences with a provider's books that wait for a person.", ["kind"]),
    ("reservations_live_count", "Reservations that hold inventory, by status.", ["status"]),
    ("reservations_overdue_count", "Live reservations past their deadline that no sweep has ended yet.", []),
    ("reservations_overdue_seconds", "How long the most overdue of them has been so.", []),
    ("gates_count", "Gates of events on sale or about to be; a refused one waits for a person.", ["state"]),
    ("queue_ready_count", "Visitors admitted and shopping.", []),
]

registry = CollectorRegistry()
registry.register(DatabaseCollector())
registry.register(metrics_of_processes.machine_metrics)
# Of the process that answers the scrape.
for own in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
    registry.register(own)


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus's text form."""
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


root_urls = [
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", metrics),
]
