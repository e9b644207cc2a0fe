"""Caches are notified once when a page changes, also over restarts, and an unavailable hook delays nothing."""

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from apps.events.models import Category, Event, OnSale
from apps.kernel import clock
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.facade import Message
from apps.kernel.outbox.models import OutboxMessage
from apps.reservations import facade as reservations
from apps.reservations.inventory import cache_invalidation
from apps.reservations.models import ToldPage
from tests.support.factories import backdate_deadline, hold, make_event
from tests.support.races import storm, values
from ticketing import cache_purge

STOCK_PATHS = ["/", "/events/concert/", "/api/events", "/api/events/concert"]


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_invalidation, "INTERVAL_SECONDS_MIN", -1.0)
    monkeypatch.setattr(outbox, "_wake", [])
    monkeypatch.setitem(cache_purge._hook, "rests_until", 0.0)


def publish() -> list[dict[str, Any]]:
    """Publish page changes, mark their messages as delivered, and return their bodies."""
    cache_invalidation.publish_page_changes()
    waiting = OutboxMessage.objects.filter(topic=reservations.PAGE_CHANGED, done_at__isnull=True)
    bodies = [message.body for message in waiting.order_by("id")]
    waiting.update(done_at=clock.now())
    return bodies


def reasons() -> list[str]:
    return [body["reason"] for body in publish()]


@pytest.mark.django_db
def test_caches_are_notified_when_the_event_sells_out_and_when_it_is_restocked(django_assert_num_queries: Any) -> None:
    event = make_event(rows=1, seats_per_row=2, general_admission=1)
    assert reasons() == ["published"]
    first = hold(event, seats=["hall-A-1", "hall-A-2"])
    assert reasons() == [], "a ticket is left"
    hold(event, ga_section="floor", ga_quantity=1)
    assert publish() == [{"event": "concert", "paths": STOCK_PATHS, "reason": "sold-out"}]
    assert reasons() == []
    backdate_deadline(first.id)
    reservations.sweep_all(by="test")
    assert publish() == [{"event": "concert", "paths": STOCK_PATHS, "reason": "restocked"}]
    make_event("another")
    assert reasons() == ["published"]
    with django_assert_num_queries(1):
        assert cache_invalidation.publish_page_changes() == 0


@pytest.mark.django_db
def test_caches_are_notified_of_changes_by_staff_and_not_of_those_by_time() -> None:
    make_event(general_admission=5)
    publish()
    Category.objects.filter(key="Floor").update(price_minor=1)
    (body,) = publish()
    assert body["reason"] == "changed"
    assert {"/events/concert/plan.json", "/events/concert/poster.svg"} < set(body["paths"])
    OnSale.objects.update(hold_seconds=540)
    assert reasons() == ["changed"]
    Event.objects.update(status=Event.Status.CANCELED)
    assert reasons() == ["canceled"]
    soon = make_event("soon", opens_at=clock.now() + timedelta(days=1))
    assert reasons() == ["published"]
    assert ToldPage.objects.get(pk=soon.id).stock == ""
    # As if its opening time had passed: the page is unchanged, and something is free.
    OnSale.objects.filter(event=soon.id).update(opens_at=clock.now() - timedelta(hours=1))
    assert reasons() == ["changed"]
    ToldPage.objects.filter(pk=soon.id).update(stock="")
    assert reasons() == []
    assert ToldPage.objects.get(pk=soon.id).stock == "free"


@pytest.mark.django_db
def test_a_page_that_changes_again_soon_waits_and_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    event = make_event(rows=1, seats_per_row=1)
    publish()
    monkeypatch.setattr(cache_invalidation, "INTERVAL_SECONDS_MIN", 60.0)
    held = hold(event, seats=["hall-A-1"])
    assert reasons() == []
    ToldPage.objects.update(told_at=clock.now() - timedelta(seconds=61))
    assert cache_invalidation.publish_page_changes() == 1
    reservations.release(held.id, who="test")
    ToldPage.objects.update(told_at=clock.now() - timedelta(seconds=61))
    assert cache_invalidation.publish_page_changes() == 0, "the waiting message will purge this too"
    assert ToldPage.objects.get().stock == "free"
    assert reasons() == ["sold-out"]


@pytest.mark.django_db(transaction=True)
def test_of_several_loops_one_publishes() -> None:
    event = make_event(rows=1, seats_per_row=1)
    assert sorted(values(storm(4, lambda _: cache_invalidation.publish_page_changes()))) == [0, 0, 0, 1]
    OutboxMessage.objects.update(done_at=clock.now())
    hold(event, seats=["hall-A-1"])
    assert sorted(values(storm(4, lambda _: cache_invalidation.publish_page_changes()))) == [0, 0, 0, 1]


class Hook(BaseHTTPRequestHandler):
    status = 204

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, self.headers["Authorization"], json.loads(body)))  # type: ignore[attr-defined]
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def hook(settings: Any) -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), type("OwnHook", (Hook,), {})) as server:
        server.received = []  # type: ignore[attr-defined]
        settings.PURGE_URL = f"http://127.0.0.1:{server.server_port}/purge?zone=1"
        settings.PURGE_TOKEN = "secret"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.django_db(transaction=True)
def test_the_hook_is_called_and_retried_until_it_succeeds(hook: Any) -> None:
    make_event(rows=1, seats_per_row=1)
    cache_invalidation.publish_page_changes()
    hook.RequestHandlerClass.status = 500
    outbox.deliver()
    message = OutboxMessage.objects.get(topic=reservations.PAGE_CHANGED)
    assert (message.done_at, message.attempts) == (None, 1)
    assert "responded with 500" in message.last_error
    hook.RequestHandlerClass.status = 204
    OutboxMessage.objects.update(available_at=clock.now() - timedelta(seconds=1))
    outbox.deliver()
    assert len(hook.received) == 1, "after a failure there is a pause"
    cache_purge._hook["rests_until"] = 0.0
    OutboxMessage.objects.update(available_at=clock.now() - timedelta(seconds=1))
    outbox.deliver()
    assert OutboxMessage.objects.get(topic=reservations.PAGE_CHANGED).done_at is not None
    assert hook.received == [("/purge?zone=1", "Bearer secret", message.body)] * 2


def _message(reason: str, age_seconds: float) -> Message:
    created_at = clock.now() - timedelta(seconds=age_seconds)
    return Message(1, reservations.PAGE_CHANGED, "concert", {"reason": reason}, None, 1, created_at, created_at)  # type: ignore[arg-type]


@pytest.mark.django_db
def test_a_page_that_no_cache_can_hold_any_more_is_not_purged(hook: Any, settings: Any) -> None:
    cache_purge.purge(_message("sold-out", 361))
    assert hook.received == []
    cache_purge.purge(_message("changed", 361))
    cache_purge.purge(_message("sold-out", 300))
    assert len(hook.received) == 2
    settings.PURGE_URL = ""
    cache_purge.purge(_message("changed", 0))
    settings.PURGE_URL = "http://127.0.0.1:1/"
    with pytest.raises(cache_purge.NotPurged):
        cache_purge.purge(_message("changed", 0))
    assert len(hook.received) == 2
