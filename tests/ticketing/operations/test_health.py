"""Health and metrics endpoints."""

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import OperationalError, connection
from django.test import Client

from apps.events import facade as events
from apps.kernel import clock, rate_limits
from apps.kernel.checks import auditor
from apps.kernel.models import AuditRun
from apps.kernel.outbox.models import OutboxMessage
from tests.support import factories
from tests.support.api_client import scraper
from ticketing.operations import health

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def operator() -> Client:
    """A client with the token of /metrics."""
    return scraper()


def test_healthz_responds(client: Client) -> None:
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert "no-store" in response.headers["Cache-Control"]


def test_readyz_is_ok_with_all_servers(operator: Client, db: None) -> None:
    response = operator.get("/readyz")
    expected = {"status": "ok", "database": "ok", "redis": "ok", "payments": "ok"}
    assert (response.status_code, response.json()) == (200, expected)


def test_the_public_answer_of_readyz_has_no_details(
    client: Client, operator: Client, db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get("/readyz").json() == {"status": "ok"}
    wrong = {"authorization": "Bearer " + "x" * 16}
    assert client.get("/readyz", headers=wrong).json() == {"status": "ok"}
    settings.REDIS_URL = NOWHERE
    assert client.get("/readyz").json() == {"status": "degraded"}
    settings.METRICS_TOKEN = ""
    assert operator.get("/readyz").json() == {"status": "degraded"}
    assert client.get("/readyz", headers={"authorization": "Bearer "}).json() == {"status": "degraded"}
    monkeypatch.setattr(health, "is_database_available", lambda: False)
    response = client.get("/readyz")
    assert (response.status_code, response.json()) == (503, {"status": "unavailable"})


def test_readyz_is_degraded_without_redis(operator: Client, db: None, settings: Any) -> None:
    settings.REDIS_URL = NOWHERE
    response = operator.get("/readyz")
    assert (response.status_code, response.json()["status"]) == (200, "degraded")
    assert response.json()["redis"] == "away"


def test_requests_for_readyz_do_not_wait_for_a_redis_that_does_not_respond(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request checks; the others get the last result at once, and no further check begins."""
    assert client.get("/readyz").json() == {"status": "ok"}
    begun, go_on, probes = threading.Event(), threading.Event(), []

    def is_redis_available() -> bool:
        probes.append(1)
        begun.set()
        return not go_on.wait(20)

    monkeypatch.setattr(health, "is_redis_available", is_redis_available)
    monkeypatch.setattr(health, "is_database_available", lambda: True)
    monkeypatch.setattr(health.orders, "list_unavailable_providers", list)
    thread = threading.Thread(target=health.check_readiness)
    thread.start()
    assert begun.wait(20)
    assert [client.get("/readyz").json()["status"] for _ in range(20)] == ["ok"] * 20
    assert probes == [1]
    go_on.set()
    thread.join(20)
    assert client.get("/readyz").json() == {"status": "degraded"}


def test_the_result_of_readyz_is_kept_for_a_moment(
    client: Client, db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "KEPT_SECONDS", 60.0)
    assert client.get("/readyz").json() == {"status": "ok"}
    settings.REDIS_URL = NOWHERE
    assert client.get("/readyz").json() == {"status": "ok"}


def test_readyz_is_unavailable_during_the_first_check_of_a_process(client: Client) -> None:
    with health._readiness.checking:
        response = client.get("/readyz")
    assert (response.status_code, response.json()) == (503, {"status": "unavailable"})


def test_readyz_is_unavailable_without_postgresql(client: Client, db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OperationalError("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "ensure_connection", refuse)
        response = client.get("/readyz")
    assert (response.status_code, response.json()["status"]) == (503, "unavailable")
    assert int(response.headers["Retry-After"]) > 0


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Bearer wrong-but-long-enough", "Basic {token}", "Bearer {token} x",
     "Bearer é", "{token}"],
)  # fmt: skip
@pytest.mark.parametrize("address", ["127.0.0.1", "203.0.113.7"])
def test_metrics_need_the_token_also_from_loopback(
    client: Client, db: None, settings: Any, authorization: str | None, address: str
) -> None:
    headers = {} if authorization is None else {"authorization": authorization.format(token=settings.METRICS_TOKEN)}
    response = client.get("/metrics", headers=headers, REMOTE_ADDR=address)
    assert (response.status_code, response.headers["WWW-Authenticate"], response.content) == (401, "Bearer", b"")


def test_without_the_setting_there_are_no_public_metrics(client: Client, db: None, settings: Any) -> None:
    settings.METRICS_TOKEN = ""
    for headers in ({}, {"authorization": "Bearer "}):
        assert client.get("/metrics", headers=headers).status_code == 404


@pytest.mark.parametrize("path", ["/metricsX", "/metrics/", "/readyzX", "/healthzX"])
def test_similar_paths_are_limited_and_redirected_to_https(
    client: Client, db: None, settings: Any, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    assert client.get(path).status_code == 404
    settings.SECURE_SSL_REDIRECT = True
    assert Client().get(path).headers["Location"] == f"https://testserver{path}"
    monkeypatch.setattr(rate_limits, "check_request", lambda *args: 3)
    assert client.get(path).status_code == 429


def test_one_scrape_at_a_time(operator: Client, db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second scrape arrives while the first one is computed, in this process or another one of the machine."""
    concurrent = []

    def compute(registry: Any) -> bytes:
        monkeypatch.setattr(health, "generate_latest", generate_latest)
        concurrent.append(operator.get("/metrics"))
        assert health.answer_metrics()[0] == 503
        return generate_latest(registry)

    generate_latest = health.generate_latest
    monkeypatch.setattr(health, "generate_latest", compute)
    Path(django_settings.METRICS_FOLDER).mkdir(parents=True, exist_ok=True)
    assert operator.get("/metrics").status_code == 200
    (second,) = concurrent
    assert (second.status_code, second.headers["Retry-After"]) == (503, "2")
    assert operator.get("/metrics").status_code == health.answer_metrics()[0] == 200


def test_without_a_writable_folder_a_scrape_still_works(operator: Client, db: None, settings: Any) -> None:
    settings.METRICS_FOLDER = "/nowhere/metrics"
    assert operator.get("/metrics").status_code == 200


def figures(operator: Client) -> dict[str, float]:
    response = operator.get("/metrics")
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain")
    lines = [line for line in response.content.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_an_idle_system_reports_zeros(operator: Client, db: None) -> None:
    found = figures(operator)
    assert found["fairgate_database_up"] == found["fairgate_redis_up"] == 1
    assert found["fairgate_outbox_pending_count"] == 0
    assert found['fairgate_reservations_live_count{status="paying"}'] == 0
    assert found["process_resident_memory_bytes"] > 0
    assert "fairgate_audit_breaches_count" not in found, "absent before the first audit"


def test_the_metrics_of_batches_are_served(operator: Client, db: None) -> None:
    served = operator.get("/metrics").content.decode()
    for name in ("batch_size", "batch_waiting_count", "batch_queued_seconds", "batch_commit_seconds"):
        assert f"# TYPE fairgate_{name} " in served


def test_database_metrics_match_the_rows(operator: Client, db: None) -> None:
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
    found = figures(operator)
    assert found['fairgate_reservations_live_count{status="pending_payment"}'] == 2
    assert found["fairgate_reservations_overdue_count"] == 1
    assert found["fairgate_reservations_overdue_seconds"] >= 90
    assert found["fairgate_queue_ready_count"] == 2
    assert found["fairgate_outbox_pending_count"] == 2
    assert found["fairgate_outbox_dead_count"] == 1
    assert found["fairgate_outbox_oldest_due_seconds"] >= 30
    assert found["fairgate_audit_breaches_count"] == 4
    assert abs(found["fairgate_audit_finished_seconds"] - clock.now().timestamp()) < 60


def test_a_scrape_without_postgresql_reports_it(operator: Client, db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise OperationalError("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "cursor", refuse)
        found = figures(operator)
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
