"""Live updates of an order: authorization, payload, and when they are published."""

import uuid
from typing import Any

import pytest
from django.db import transaction
from django.http import HttpRequest
from django.test import RequestFactory

from apps.kernel.http import problems
from apps.kernel.push import channel_layer
from apps.kernel.push.channel_names import group_of
from apps.orders import access
from apps.orders.checkout.followed_state import state_summary
from apps.orders.errors import OrderNotFound
from apps.orders.models import Order, Payment
from apps.orders.order_pages import live
from apps.orders.payments.providers import sandbox
from apps.orders.selectors import get_order
from apps.queue import facade as queue
from tests.support.factories import hold, join, make_event
from tests.support.orders.sale import buy, place_order

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def order() -> Order:
    """A placed order that is not charged yet."""
    return place_order(hold(make_event(), seats=["hall-A-1"]))


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(channel_layer, "send_to_group", lambda group, message: found.append((group, message)))
    return found


def request(query: str = "", **cookies: str) -> HttpRequest:
    made = RequestFactory().get(f"/{query}")
    made.COOKIES.update(cookies)
    return made


def may_listen(caller: queue.Caller, order_id: uuid.UUID, made: HttpRequest | None = None) -> bool:
    try:
        access.require_order_access(caller, made or request(), order_id)
    except problems.Problem:
        return False
    return True


def test_only_its_owner_and_holders_of_its_link_may_subscribe(order: Order) -> None:
    owner, other = queue.Caller(entry_id=order.entry_id), queue.Caller(entry_id=join(make_event("other")).id)
    assert may_listen(owner, order.pk)
    assert not may_listen(other, order.pk)
    assert not may_listen(queue.Caller(), order.pk)
    assert may_listen(queue.Caller(), order.pk, request(f"?key={access.link_key(order.pk)}"))
    assert not may_listen(queue.Caller(), order.pk, request(f"?key={access.link_key(uuid.uuid4())}"))
    cookie = access._cookies[access.COOKIE].sign(f"{order.pk}~0~9999999999")
    assert may_listen(queue.Caller(), order.pk, request(orders=cookie))
    with pytest.raises(OrderNotFound):
        access.require_order_access(owner, request(), uuid.uuid4())


@pytest.mark.parametrize("method", [sandbox.APPROVES, sandbox.DECLINES, "sandbox_challenge", "sandbox_timeout_charged"])
def test_an_update_matches_what_the_page_shows(method: str) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1", "hall-A-2"]), method)
    (update,) = live.read_order_updates([order.pk]).values()
    fields = [update[name] for name in ("status", "payment_state", "attempt", "refunded_minor")] + [
        update["action"] or ""
    ]
    view = get_order(order.pk)
    assert state_summary(view) == " ".join(map(str, fields))
    # What a client needs to offer another attempt.
    assert update["attempts_left"] == view.contract()["payment"]["attempts_left"]
    assert update["pay_deadline"] == view.contract()["pay_deadline"]


def test_many_orders_are_read_at_once_and_unknown_ids_are_omitted(order: Order, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        found = live.read_order_updates([order.pk, uuid.uuid4()])
    assert list(found) == [order.pk]


def test_several_saves_in_one_transaction_publish_once_after_its_commit(
    order: Order, published: list[tuple[str, dict[str, Any]]]
) -> None:
    payment = Payment.objects.get(order=order)
    with transaction.atomic():
        order.save(update_fields=["status"])
        payment.save(update_fields=["faults_count"])
        order.save(update_fields=["status"])
        assert published == []
    update = {"type": "news", "event": order.event_id, "owned": [["order", str(order.pk)]]}
    assert published == [(group_of(order.event_id), update)]
    payment.save(update_fields=["faults_count"])
    assert len(published) == 2


def test_a_rollback_publishes_nothing_and_a_failed_publication_fails_nothing(
    order: Order, published: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with transaction.atomic():
        order.save(update_fields=["status"])
        transaction.set_rollback(True)
    assert published == []

    def fail(*args: Any) -> None:
        raise OSError("the layer is away")

    monkeypatch.setattr(channel_layer, "send_to_group", fail)
    order.save(update_fields=["status"])
