"""Messages to organizers: written with the change, posted with a signature, or pulled from a feed."""

import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from standardwebhooks import Webhook, WebhookVerificationError

from apps.kernel import clock, safe_http
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import topics
from apps.orders.cancellation import order_cancellation
from apps.orders.checkin.check_in import Scan, scan
from apps.orders.locks import lock_order
from apps.orders.models import FeedMessage, OrganizerMessage, WebhookDelivery, WebhookEndpoint
from apps.orders.tickets import reissue
from apps.orders.webhooks import delivery as webhook_delivery
from apps.orders.webhooks import endpoint_pauses, feed, messages
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import buy, deliver_outbox, place_order
from tests.support.orders.webhook_endpoints import delivery_of, make_endpoint, make_feed_key
from tests.support.races import storm, values
from tests.support.servers import CHECKOUT
from tests.support.webhook_receiver import WebhookReceiver, run_receiver

pytestmark = pytest.mark.django_db(transaction=True)
MESSAGES = "/api/organizer/messages"


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_delivery, "_pauses", endpoint_pauses.EndpointPauses())


@pytest.fixture
def listener(settings: Any) -> Iterator[WebhookReceiver]:
    settings.WEBHOOKS_OVER_HTTP = settings.WEBHOOKS_TO_PRIVATE_ADDRESSES = True
    with run_receiver() as one:
        yield one


def make_due() -> None:
    OutboxMessage.objects.filter(topic=topics.WEBHOOK).update(available_at=clock.now() - timedelta(seconds=1))


def pull(key: str, n: int | str | None = None) -> Any:
    path = MESSAGES if n is None else f"{MESSAGES}?n={n}"
    return Client().get(path, headers={"Authorization": f"Bearer {key}"})


def delete(key: str, receipt: object) -> int:
    return Client().delete(f"{MESSAGES}/{receipt}", headers={"Authorization": f"Bearer {key}"}).status_code


def test_a_sale_and_its_refund_are_posted(listener: WebhookReceiver) -> None:
    event = make_event()
    make_endpoint(listener.url, event)
    order = buy(hold(event, seats=["hall-A-1"]))
    assert order_cancellation.refund_order(order.pk, who="staff")
    deliver_outbox()
    bodies = [json.loads(body) for _, body in listener.received]
    assert [body["kind"] for body in bodies] == ["order.confirmed", "order.refunded"]
    confirmed, refunded = bodies
    assert confirmed["event"] == event.slug
    assert (confirmed["order"]["number"], confirmed["order"]["status"]) == (order.number, "confirmed")
    (ticket,) = confirmed["tickets"]
    assert (ticket["row"], ticket["number"], ticket["valid"]) == ("A", "1", True)
    assert refunded["order"]["refunded_minor"] == order.total_minor
    assert [ticket["valid"] for ticket in refunded["tickets"]] == [False]
    assert set(WebhookDelivery.objects.values_list("status", "attempts")) == {("delivered", 1)}
    assert_audit_clean()


def test_check_ins_and_reissues_are_published() -> None:
    event = make_event()
    key, _ = make_feed_key(event)
    order = buy(hold(event, seats=["hall-A-1", "hall-A-2"]))
    first, second = order.tickets.order_by("id")
    scanned = Scan(uuid.uuid4().hex, first.code, door="North", anyway=True)
    for _ in range(2):  # A retry is the same scan and causes no second message.
        assert scan(event, scanned, "staff:1").outcome == "welcome"
    reissue.reissue_ticket(order.pk, second.code, "staff:1")
    _, checked_in, reissued = pull(key, 10).json()["messages"]
    assert checked_in["kind"] == "ticket.checked_in"
    assert [(one["code"], one["checked_in_at"] is not None) for one in checked_in["tickets"]] == [(first.code, True)]
    assert reissued["kind"] == "ticket.reissued"
    assert [(one["code"] == second.code, one["valid"]) for one in reissued["tickets"]] == [
        (False, True),
        (True, False),
        (False, True),
    ]
    assert_audit_clean()


def test_a_message_is_signed_over_its_timestamp_and_bytes(listener: WebhookReceiver) -> None:
    endpoint = make_endpoint(listener.url)
    buy(hold(make_event(), seats=["hall-A-1"]))
    ((headers, body),) = listener.received
    when, _, signature = headers["Fairgate-Signature"].removeprefix("t=").partition(",v1=")
    expected = hmac.new(endpoint.secret.encode(), f"{when}.".encode() + body, hashlib.sha256).hexdigest()
    assert signature == expected
    assert abs(int(when) - clock.now().timestamp()) < 60
    assert headers["Fairgate-Message-Id"] == headers["webhook-id"] == json.loads(body)["message_id"]
    assert headers["webhook-timestamp"] == when


def test_a_standard_webhooks_library_verifies_deliveries(listener: WebhookReceiver) -> None:
    endpoint = make_endpoint(listener.url)
    buy(hold(make_event(), seats=["hall-A-1"]))
    ((headers, body),) = listener.received
    library = Webhook(endpoint.secret)
    assert library.verify(body, dict(headers))["kind"] == "order.confirmed"
    with pytest.raises(WebhookVerificationError):
        library.verify(body + b" ", dict(headers))
    with pytest.raises(WebhookVerificationError):
        library.verify(body, {**headers, "webhook-id": str(uuid.uuid4())})


@pytest.mark.parametrize(
    "secret", ["whsec_example", "whsec_bJ0-kO_3mYq5vX2rT8wZ1cF6hN9sL4dG7pA0eU-iKoM", "whsec_é", "no prefix at all"]
)
def test_an_older_secret_signs_with_its_text_as_the_key(secret: str) -> None:
    """The secret's bytes are the key, although a library would silently decode another key from some secrets."""
    body, moment = b'{"name":"Zo\xc3\xab"}', clock.now()
    made = webhook_delivery.sign_standard(secret, "one", body, moment)
    signed = f"one.{int(moment.timestamp())}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    assert made["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    shown = webhook_delivery.standard_secret(secret)
    assert Webhook(shown).verify(body, made) == {"name": "Zoë"}


def test_a_new_secret_is_shown_unchanged() -> None:
    for _ in range(50):
        secret = webhook_delivery.new_secret()
        assert webhook_delivery.standard_secret(secret) == secret
        assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32


def test_the_documented_signature_is_the_one_we_create() -> None:
    """docs/payments.md shows this signature, as a reference for implementations in other languages."""
    moment = clock.now().fromtimestamp(1_790_000_000, tz=clock.now().tzinfo)
    assert webhook_delivery.sign("whsec_example", b'{"kind":"order.confirmed"}', moment) == (
        "t=1790000000,v1=43595a2ebe583913eb3ee3434f66751c1594f415331d107e7f2c29168ebbc8f4"
    )
    secret, message_id = f"whsec_{base64.b64encode(bytes(range(32))).decode()}", "01990000-0000-7000-8000-000000000000"
    made = webhook_delivery.sign_standard(secret, message_id, b'{"kind":"order.confirmed"}', moment)
    assert made["webhook-signature"] == "v1,aQMLN8EpNi2aD2j0bTHkbkkOqlOL+m5d9qaqKGxVXdQ="
    text = (CHECKOUT / "docs/payments.md").read_text()
    assert all(f"`{shown}`" in text for shown in (secret, message_id, made["webhook-signature"]))
    assert f"`{webhook_delivery.standard_secret('whsec_example')}`" in text


def test_a_rolled_back_change_publishes_nothing() -> None:
    event = make_event()
    make_endpoint()
    make_feed_key()
    order = place_order(hold(event, seats=["hall-A-1"]))

    class Undone(Exception):
        pass

    def publish_and_fail() -> None:
        with transactions.write():
            messages.publish_message(lock_order(order.pk), messages.Kind.ORDER_CONFIRMED)
            raise Undone

    with pytest.raises(Undone):
        publish_and_fail()
    assert not OrganizerMessage.objects.exists()
    assert not OutboxMessage.objects.filter(topic=topics.WEBHOOK).exists()


def test_without_a_subscriber_nothing_is_written() -> None:
    other = make_event(slug="other")
    make_endpoint(event=other)
    make_endpoint(is_active=False)
    make_endpoint(kinds=["order.refunded"])
    make_feed_key(revoked_at=clock.now())
    make_feed_key(other)
    buy(hold(make_event(), seats=["hall-A-1"]))
    assert not OrganizerMessage.objects.exists()


def test_a_rejected_delivery_is_retried_and_logged(listener: WebhookReceiver) -> None:
    endpoint = make_endpoint(listener.url)
    listener.status, listener.body = 503, b"<b>closed</b>"
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    assert order.status == "confirmed"
    delivery = delivery_of(endpoint)
    assert (delivery.status, delivery.attempts, delivery.answer_status) == ("pending", 1, 503)
    assert delivery.answer == "<b>closed</b>"
    listener.status = 204
    make_due()
    deliver_outbox()
    delivery.refresh_from_db()
    assert (delivery.status, delivery.attempts, delivery.answer_status) == ("delivered", 2, 204)
    ids = {json.loads(body)["message_id"] for _, body in listener.received}
    assert len(ids) == 1


def test_a_delivery_is_given_up_after_all_attempts_and_can_be_replayed(listener: WebhookReceiver) -> None:
    endpoint = make_endpoint(listener.url)
    listener.status = 500
    buy(hold(make_event(), seats=["hall-A-1"]))
    OutboxMessage.objects.filter(topic=topics.WEBHOOK).update(attempts=webhook_delivery.ATTEMPTS_MAX - 1)
    make_due()
    deliver_outbox()
    assert delivery_of(endpoint).status == "given_up"
    assert OutboxMessage.objects.filter(topic=topics.WEBHOOK, dead_at__isnull=False).count() == 1
    listener.status = 204
    assert webhook_delivery.replay(delivery_of(endpoint).pk)
    assert not webhook_delivery.replay(delivery_of(endpoint).pk), "it is queued"
    deliver_outbox()
    assert delivery_of(endpoint).status == "delivered"


def lose_every_worker(endpoint: WebhookEndpoint) -> None:
    """Claim the message in all attempts, as by workers that were killed."""
    OutboxMessage.objects.filter(topic=topics.WEBHOOK).update(attempts=webhook_delivery.ATTEMPTS_MAX)
    make_due()
    deliver_outbox()
    assert delivery_of(endpoint).status == "pending"
    assert OutboxMessage.objects.filter(topic=topics.WEBHOOK, dead_at__isnull=False).count() == 1


def test_a_delivery_whose_worker_died_in_the_last_attempt_can_be_replayed_once(listener: WebhookReceiver) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    endpoint = make_endpoint(listener.url)
    with transactions.write():
        messages.publish_message(lock_order(order.pk), messages.Kind.ORDER_CONFIRMED)
    delivery = delivery_of(endpoint)
    assert not webhook_delivery.replay(delivery.pk), "it is queued"
    lose_every_worker(endpoint)
    assert sorted(values(storm(4, lambda _: webhook_delivery.replay(delivery.pk)))) == [False, False, False, True]
    deliver_outbox()
    assert (delivery_of(endpoint).status, len(listener.received)) == ("delivered", 1)


def test_two_concurrent_replays_send_it_once(listener: WebhookReceiver) -> None:
    endpoint = make_endpoint(listener.url)
    buy(hold(make_event(), seats=["hall-A-1"]))
    delivery = delivery_of(endpoint)
    assert sorted(values(storm(4, lambda _: webhook_delivery.replay(delivery.pk)))) == [False, False, False, True]
    deliver_outbox()
    assert len(listener.received) == 2


def test_an_unreachable_endpoint_rests_and_does_not_affect_others(
    listener: WebhookReceiver,
) -> None:
    unreachable = make_endpoint("http://127.0.0.1:9/")
    event = make_event()
    buy(hold(event, seats=["hall-A-1"]))
    buy(hold(event, seats=["hall-A-2"]))
    assert sorted(WebhookDelivery.objects.filter(endpoint=unreachable).values_list("attempts", flat=True)) == [0, 1]
    waiting = OutboxMessage.objects.get(topic=topics.WEBHOOK, attempts=0)
    assert "unreachable" in waiting.last_error


def test_a_slow_endpoint_rests_so_that_its_backlog_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, other = make_endpoint("https://slow.example/"), make_endpoint("https://other.example/")
    called: list[str] = []

    def request(method: str, url: str, *_: object, **__: object) -> safe_http.Answer:
        called.append(url)
        if url == slow.url:
            passed[0] += endpoint_pauses.SLOW_SECONDS
        return safe_http.Answer(500 if url == slow.url else 200, b"")

    passed = [0.0]
    monkeypatch.setattr(endpoint_pauses, "time", SimpleNamespace(monotonic=lambda: passed[0]))
    monkeypatch.setattr(safe_http, "request", request)
    event = make_event()
    for number in range(1, 4):
        buy(hold(event, seats=[f"hall-A-{number}"]))
    assert (called.count(slow.url), called.count(other.url)) == (1, 3)
    passed[0] += endpoint_pauses.SLOW_PAUSE_FACTOR * endpoint_pauses.SLOW_SECONDS
    make_due()
    deliver_outbox()
    assert called.count(slow.url) == 2


def test_private_addresses_are_refused_unless_the_operator_allows_them(
    listener: WebhookReceiver, settings: Any
) -> None:
    settings.WEBHOOKS_TO_PRIVATE_ADDRESSES = False
    endpoint = make_endpoint(listener.url)
    buy(hold(make_event(), seats=["hall-A-1"]))
    assert listener.received == []
    assert delivery_of(endpoint).answer == "it is not a public address"


def test_an_inactive_endpoint_receives_nothing(listener: WebhookReceiver) -> None:
    endpoint = make_endpoint(listener.url)
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    with transactions.write():
        messages.publish_message(lock_order(order.pk), messages.Kind.ORDER_CONFIRMED)
    WebhookEndpoint.objects.update(is_active=False)
    deliver_outbox()
    assert (listener.received, delivery_of(endpoint).status) == ([], "given_up")


def test_a_feed_returns_messages_until_they_are_deleted() -> None:
    event = make_event()
    key, _ = make_feed_key(event)
    other, _ = make_feed_key()
    for seat in (1, 2, 3):
        buy(hold(event, seats=[f"hall-A-{seat}"]))
    answer = pull(key, 2)
    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    first, second = answer.json()["messages"]
    assert (first["kind"], first["created_at"] <= second["created_at"]) == ("order.confirmed", True)
    assert [delete(key, first["receipt_handle"]) for _ in range(2)] == [204, 204]
    assert len(pull(key).json()["messages"]) == 1
    assert pull(key).json() == {"messages": []}
    FeedMessage.objects.update(visible_at=clock.now())
    again = pull(key).json()["messages"]
    assert again[0]["message_id"] == second["message_id"]
    assert len(again) == 2
    assert delete(key, second["receipt_handle"]) == 404, "received again, it has another handle"
    assert delete(other, again[0]["receipt_handle"]) == 404, "another key's"
    assert delete(key, again[0]["receipt_handle"]) == 204
    assert len(pull(other).json()["messages"]) == 3, "each key has its own queue"


def test_concurrent_receivers_with_one_key_share_the_messages() -> None:
    event = make_event()
    _, row = make_feed_key(event)
    order = place_order(hold(event, seats=["hall-A-1"]))
    with transactions.write():
        for _ in range(40):
            messages.publish_message(lock_order(order.pk), messages.Kind.ORDER_CONFIRMED)

    def work(_: int) -> list[str]:
        return [one["message_id"] for _ in range(4) for one in feed.receive(row, 3)]

    given = [one for batch in values(storm(6, work)) for one in batch]
    given += [one["message_id"] for one in feed.receive(row, 100)]
    assert (len(given), len(set(given))) == (40, 40)


@pytest.mark.parametrize("n", ["0", "101", "-1", "ten", "", "1e1", "٣", "9999999999"])
def test_an_invalid_number_is_refused_by_field(n: str) -> None:
    key, _ = make_feed_key()
    answer = pull(key, n)
    assert (answer.status_code, answer.json()["type"]) == (422, "invalid")
    assert "n" in answer.json()["errors"]


def test_the_feed_requires_a_valid_key() -> None:
    revoked, _ = make_feed_key(revoked_at=clock.now())
    assert Client().get(MESSAGES).json()["type"] == "token-missing"
    for key in (revoked, "fgf_made_up", "\u00e9"):
        answer = pull(key)
        assert (answer.status_code, answer.json()["type"]) == (401, "token-invalid"), key
    assert delete(revoked, uuid.uuid4()) == 401


def test_messages_are_deleted_after_seven_days_read_or_not() -> None:
    event = make_event()
    key, _ = make_feed_key(event)
    make_endpoint()
    order = place_order(hold(event, seats=["hall-A-1"]))
    with transactions.write():
        for _ in range(3):
            messages.publish_message(lock_order(order.pk), messages.Kind.ORDER_CONFIRMED)
    old = OrganizerMessage.objects.order_by("created_at").values_list("pk", flat=True)[:2]
    OrganizerMessage.objects.filter(pk__in=list(old)).update(created_at=clock.now() - timedelta(days=7, seconds=1))
    assert [feed.delete_old_messages(limit=1), feed.delete_old_messages(), feed.delete_old_messages()] == [1, 1, 0]
    assert FeedMessage.objects.count() == WebhookDelivery.objects.count() == 1
    assert len(pull(key).json()["messages"]) == 1
    deliver_outbox()  # Two deliveries were deleted: their outbox messages do nothing.
    assert OutboxMessage.objects.filter(topic=topics.WEBHOOK, done_at__isnull=False).count() == 2


def test_webhooks_have_their_own_topic_with_limited_concurrency() -> None:
    assert outbox._topics[topics.WEBHOOK].together_max == webhook_delivery.CONCURRENT_MAX
