"""Slow webhook endpoints of one organizer occupy one delivery thread, and its active endpoints are limited."""

import threading
from collections import Counter
from types import SimpleNamespace

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.events.models import Role
from apps.kernel import clock, safe_http
from apps.kernel.db import transactions
from apps.kernel.outbox.delivery import Delivery
from apps.orders.locks import lock_order
from apps.orders.models import FeedKey, WebhookEndpoint
from apps.orders.webhooks import delivery as webhook_delivery
from apps.orders.webhooks import endpoint_pauses, messages, subscriber_limits
from tests.support.factories import hold, make_event, make_member, make_organizer
from tests.support.orders.sale import place_order
from tests.support.orders.webhook_endpoints import make_endpoint
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)
SLOW_COUNT = 6
ADD, ADD_KEY = "/admin/orders/webhookendpoint/add/", "/admin/orders/feedkey/add/"
FORM = {"name": "Door", "url": "https://hook.example/", "is_active": "on"}


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(endpoint_pauses, "time", SimpleNamespace(monotonic=lambda: self.now))


class HeldRequests:
    """Requests to slow.example wait for `go_on`; others are answered at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on, self.called = threading.Event(), Counter[str]()
        self._changed = threading.Condition()
        monkeypatch.setattr(safe_http, "request", self.request)

    def request(self, method: str, url: str, *_: object, **__: object) -> safe_http.Answer:
        with self._changed:
            self.called[url.split("/")[2]] += 1
            self._changed.notify_all()
        if "slow" in url:
            assert self.go_on.wait(20)
        return safe_http.Answer(200, b"")

    def wait_for(self, host: str, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.called[host] > 0, seconds)


@pytest.mark.parametrize("by_organizer", [True, False], ids=["paused by organizer", "control: paused by endpoint"])
def test_slow_endpoints_of_one_organizer_delay_no_other(monkeypatch: pytest.MonkeyPatch, by_organizer: bool) -> None:
    """A: has more slow endpoints than a process has threads for webhooks, one of which was slow before
    B: an order's webhook is due after A's, and is delivered while the first of A's is under way
    Control: if only endpoints are paused, A occupies every thread
    """
    clock, requests, pauses = Clock(monkeypatch), HeldRequests(monkeypatch), endpoint_pauses.EndpointPauses()
    monkeypatch.setattr(webhook_delivery, "_pauses", pauses)
    if not by_organizer:
        monkeypatch.setattr(WebhookEndpoint, "owner_id", None)
    a, b = (make_event(slug, organizer=make_organizer(slug).slug) for slug in ("opera", "ballet"))
    slow = [make_endpoint(f"https://slow.example/{n}", a) for n in range(SLOW_COUNT - 1)]
    slow.append(make_endpoint("https://slow.example/all", organizer_id=a.organizer_id))
    make_endpoint("https://prompt.example/", b)

    begun_at, wait_seconds = pauses.begin(slow[0].pk, slow[0].owner_id)
    assert wait_seconds == 0
    clock.now += endpoint_pauses.SLOW_SECONDS
    pauses.end(slow[0].pk, slow[0].owner_id, begun_at, is_answered=True)
    clock.now += endpoint_pauses.SLOW_PAUSE_FACTOR * endpoint_pauses.SLOW_SECONDS

    monkeypatch.setattr("apps.kernel.outbox.facade._wake", [])
    orders = [place_order(hold(event, seats=["hall-A-2"])) for event in (a, b)]
    with transactions.write():
        for order in orders:
            messages.publish_message(lock_order(order.pk), messages.Kind.ORDER_CONFIRMED)
    delivery = Delivery(8)
    try:
        delivery.wake()
        assert requests.wait_for("prompt.example", 10 if by_organizer else 1) == by_organizer
        assert requests.called["slow.example"] == (1 if by_organizer else webhook_delivery.CONCURRENT_MAX)
    finally:
        requests.go_on.set()
        assert delivery.close(20)


def test_an_organizer_waits_for_its_slow_endpoints_and_the_whole_site_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pauses = Clock(monkeypatch), endpoint_pauses.EndpointPauses()
    pause_seconds = endpoint_pauses.SLOW_PAUSE_FACTOR * endpoint_pauses.SLOW_SECONDS
    begun = [(one, owner, pauses.begin(one, owner)[0]) for one, owner in ((1, 7), (2, 7), (3, None))]
    clock.now += endpoint_pauses.SLOW_SECONDS
    assert pauses.begin(4, 7)[1] > 0, "two deliveries are slow by now"
    assert pauses.begin(5, None)[1] == pauses.begin(6, 8)[1] == 0
    for one, owner, begun_at in begun:
        pauses.end(one, owner, begun_at, is_answered=True)
    assert [pauses.begin(one, owner)[1] for one, owner in ((1, 7), (3, None))] == [pause_seconds] * 2
    begun_at, wait_seconds = pauses.begin(4, 7)
    assert wait_seconds == 0, "it has not been slow"
    clock.now += pause_seconds
    assert pauses.begin(1, 7)[1] > 0, "one delivery at a time"
    pauses.end(4, 7, begun_at, is_answered=True)
    assert pauses.begin(4, 7)[1] == 2 * pause_seconds, "it took twice as long"
    clock.now += 2 * pause_seconds
    assert [pauses.begin(one, 7)[1] > 0 for one in (1, 2)] == [False, True]


@pytest.mark.parametrize("is_limited", [True, False], ids=["limited", "control: only slow deliveries are"])
def test_many_deliveries_that_are_just_not_slow_leave_half_of_the_threads(
    monkeypatch: pytest.MonkeyPatch, is_limited: bool
) -> None:
    """A: has a thousand deliveries of 1.9 s each waiting, and asks with each free thread; B: asks once a second."""
    clock, pauses = Clock(monkeypatch), endpoint_pauses.EndpointPauses()
    if not is_limited:
        monkeypatch.setattr(endpoint_pauses, "USED_SECONDS_MAX", float("inf"))
    took, minutes = endpoint_pauses.SLOW_SECONDS - 0.1, 2
    waiting = [clock.now] * 1_000
    under_way: list[float] = []
    asked = begun = free = 0
    for _ in range(600 * minutes):
        clock.now += 0.1
        for begun_at in [one for one in under_way if clock.now - one >= took]:
            under_way.remove(begun_at)
            pauses.end(1, 7, begun_at, is_answered=True)
        for at in [at for at, due in enumerate(waiting) if due <= clock.now]:
            if len(under_way) < webhook_delivery.CONCURRENT_MAX:
                asked += 1
                begun_at, wait_seconds = pauses.begin(1, 7)
                waiting[at] = clock.now + wait_seconds if wait_seconds else float("inf")
                if not wait_seconds:
                    under_way.append(begun_at)
                    begun += 1
        free += len(under_way) <= endpoint_pauses.THREADS
    if is_limited:
        assert free > 0.9 * 600 * minutes
        assert 0.8 * 60 * minutes * endpoint_pauses.THREADS / took < begun, "A has its share"
        assert asked < 10_000, "a delivery that waits asks about twice a minute"
    else:
        assert free < 0.1 * 600 * minutes
    assert pauses.begin(9, 8)[1] == 0


def test_an_organizer_has_a_limit_of_active_endpoints(browser: Client) -> None:
    organizer = make_organizer()
    event = make_event(organizer=organizer.slug)
    browser.force_login(make_member(organizer, Role.ORGANIZER))
    for _ in range(subscriber_limits.ACTIVE_MAX // 2):
        make_endpoint(event=event)
        make_endpoint(organizer=organizer)
    page = browser.post(ADD, FORM | {"organizer": event.organizer_id}).content.decode()
    assert "at most 10 active webhook endpoints" in page
    browser.post(ADD, FORM | {"organizer": event.organizer_id, "is_active": ""})
    inactive = WebhookEndpoint.objects.get(is_active=False)
    change = f"/admin/orders/webhookendpoint/{inactive.pk}/change/"
    assert "at most 10" in browser.post(change, FORM | {"event": event.id}).content.decode()
    # Those above the limit stay, and can be changed.
    WebhookEndpoint.objects.update(is_active=True)
    assert browser.post(change, FORM | {"event": event.id, "name": "Gate"}).status_code == 302
    assert WebhookEndpoint.objects.get(pk=inactive.pk).name == "Gate"
    browser.force_login(User.objects.create_superuser("admin"))
    assert browser.post(ADD, FORM).status_code == 302, "endpoints of the whole site have no limit"


def test_an_organizer_has_a_few_feed_keys_at_most(browser: Client) -> None:
    """Every message about an order is stored for each of them, in the transaction of the order."""
    organizer = make_organizer()
    browser.force_login(make_member(organizer, Role.ORGANIZER))
    form = {"name": "Door", "organizer": organizer.pk, "scopes": ["orders:receive"]}
    for _ in range(subscriber_limits.ACTIVE_MAX):
        assert browser.post(ADD_KEY, form).status_code == 302
    assert "at most 10 feed keys" in browser.post(ADD_KEY, form).content.decode()
    first = FeedKey.objects.earliest("pk")
    change = f"/admin/orders/feedkey/{first.pk}/change/"
    assert browser.post(change, form | {"name": "Gate"}).status_code == 302
    FeedKey.objects.filter(pk=first.pk).update(revoked_at=clock.now())
    assert browser.post(ADD_KEY, form).status_code == 302
    assert FeedKey.objects.filter(revoked_at=None).count() == subscriber_limits.ACTIVE_MAX


@pytest.mark.parametrize("is_locked", [True, False], ids=["locked", "control: without the lock"])
def test_concurrent_additions_keep_the_limit(monkeypatch: pytest.MonkeyPatch, is_locked: bool) -> None:
    if not is_locked:
        monkeypatch.setattr(subscriber_limits.events, "lock_organizer", lambda organizer_id: None)
    event = make_event(organizer=make_organizer().slug)
    for number in range(subscriber_limits.ACTIVE_MAX - 1):
        make_endpoint(f"https://hook.example/{number}", event)
    both = threading.Barrier(2)

    def add(_: int) -> bool:
        with transactions.write(lock_ms=20_000):
            try:
                subscriber_limits.require_room_for_endpoint(event.organizer_id, None)
            except subscriber_limits.TooMany:
                return False
            if not is_locked:
                both.wait(10)
            make_endpoint("https://more.example/", event)
        return True

    assert sorted(values(storm(2, add))) == [not is_locked, True]
