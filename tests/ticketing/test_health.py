"""Health and metrics endpoints."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.kernel.models import AuditRun
from apps.kernel.outbox.models import OutboxMessage
from tests.support import factories

NOWHERE = "redis://127.0.0.1:1/0"


def test_healthz_responds(client: Client) -> None:
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert "no-store" in response.headers["Cache-Control"]


def test_readyz_is_ok_with_all_servers(client: Client, db: None) -> None:
    response = client.get("/readyz")
    expected = {"status": "ok", "database": "ok", "redis": "ok", "payments": "ok"}
    assert (response.status_code, response.json()) == (200, expected)


def test_readyz_is_degraded_without_redis(client: Client, db: None, settings: Any) -> None:
    settings.REDIS_URL = NOWHERE
    response = client.get("/readyz")
    assert (response.status_code, response.json()["status"]) == (200, "degraded")
    assert response.json()["redis"] == "away"


def test_readyz_is_unavailable_without_postgresql(client: Client, db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OperationalError("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "ensure_connection", refuse)
        response = client.get("/readyz")
    assert (response.status_code, response.json()["status"]) == (503, "unavailable")
    assert int(response.headers["Retry-After"]) > 0


def figures(client: Client) -> dict[str, float]:
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain")
    lines = [line for line in response.content.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_an_idle_system_reports_zeros(client: Client, db: None) -> None:
    found = figures(client)
    assert found["fairgate_database_up"] == found["fairgate_redis_up"] == 1
    assert found["fairgate_outbox_pending_count"] == 0
    assert found['fairgate_reservations_live_count{status="paying"}'] == 0
    assert found["process_resident_memory_bytes"] > 0
    assert "fairgate_audit_breaches_count" not in found, "absent before the first audit"


def test_the_metrics_of_batches_are_served(client: Client, db: None) -> None:
    served = client.get("/metrics").content.decode()
    for name in ("batch_size", "batch_waiting_count", "batch_queued_seconds", "batch_commit_seconds"):
        assert f"# TYPE fairgate_{name} " in served


def test_database_metrics_match_the_rows(client: Client, db: None) -> None:
    event = factories.make_event("concert")
    factories.hold(event, seats=["hall-A-1"])
    factories.backdate_deadline(factories.hold(event, seats=["hall-A-2"]).id, seconds=90)
    now = clock.now()
    for number in range(3):
        OutboxMessage.objects.create(
            topic="t", key=str(number), body={}, created_at=now, available_at=now - timedelta(seconds=30),
            dead_at=now if number == 2 else None,
        )  # fmt: skip
    auditor.run_and_record()
    AuditRun.objects.update(breach_count=4)
    found = figures(client)
    assert found['fairgate_reservations_live_count{status="pending_payment"}'] == 2
    assert found["fairgate_reservations_overdue_count"] == 1
    assert found["fairgate_reservations_overdue_seconds"] >= 90
    assert found["fairgate_queue_ready_count"] == 2
    assert found["fairgate_outbox_pending_count"] == 2
    assert found["fairgate_outbox_dead_count"] == 1
    assert found["fairgate_outbox_oldest_due_seconds"] >= 30
    assert found["fairgate_audit_breaches_count"] == 4
    assert abs(found["fairgate_audit_finished_seconds"] - clock.now().timestamp()) < 60


def test_a_scrape_without_postgresql_reports_it(client: Client, db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise OperationalError("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "cursor", refuse)
        found = figures(client)
    assert found["fairgate_database_up"] == 0
    assert "fairgate_outbox_pending_count" not in found


def test_without_postgresql_the_api_responds_with_503(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(slug: str) -> events.EventView:
        raise OperationalError("connection refused")

    monkeypatch.setattr("apps.queue.api_views.events.get_event", refuse)
    response = client.post("/api/events/concert/queue")
    assert (response.status_code, response.json()["type"]) == (503, "ledger-away")
    assert int(response.headers["Retry-After"]) > 0
