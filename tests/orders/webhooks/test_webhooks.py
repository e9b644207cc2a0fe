"""What organizers are told of a sale: written with the change, posted signed, or pulled from a feed."""

import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from standardwebhooks import Webhook, WebhookVerificationError

from apps.kernel import clock
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
from apps.orders.webhooks import feed, messages
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
    monkeypatch.setattr(webhook_delivery, "_paused_until", {})


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


def test_a_sale_is_told_and_its_refund(listener: WebhookReceiver) -> None:
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


def test_the_door_and_a_new_code_are_told() -> None:
    event = make_event()
    key, _ = make_feed_key(event)
    order = buy(hold(event, seats=["hall-A-1", "hall-A-2"]))
    first, second = order.tickets.order_by("id")
    scanned = Scan(uuid.uuid4().hex, first.code, door="North")
    for _ in range(2):  # Sent again it is the same scan, and told once.
        assert scan(event, scanned, "staff:1").outcome == "welcome"
    reissue.reissue_ticket(order.pk, second.code, "staff:1")
    _, came, renewed = pull(key, 10).json()["messages"]
    assert came["kind"] == "ticket.checked_in"
    assert [(one["code"], one["checked_in_at"] is not None) for one in came["tickets"]] == [(first.code, True)]
    assert renewed["kind"] == "ticket.reissued"
    assert [(one["code"] == second.code, one["valid"]) for one in renewed["tickets"]] == [
        (False, True),
        (True, False),
        (False, True),
    ]
    assert_audit_clean()


def test_a_message_is_signed_over_its_moment_and_its_bytes(listener: WebhookReceiver) -> None:
    endpoint = make_endpoint(listener.url)
    buy(hold(make_event(), seats=["hall-A-1"]))
    ((headers, body),) = listener.received
    when, _, signature = headers["Fairgate-Signature"].removeprefix("t=").partition(",v1=")
    told = hmac.new(endpoint.secret.encode(), f"{when}.".encode() + body, hashlib.sha256).hexdigest()
    assert signature == told
    assert abs(int(when) - clock.now().timestamp()) < 60
    assert headers["Fairgate-Message-Id"] == headers["webhook-id"] == json.loads(body)["message_id"]
    assert headers["webhook-timestamp"] == when


def test_a_library_of_standard_webhooks_takes_what_is_sent(listener: WebhookReceiver) -> None:
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
def test_a_secret_of_before_is_signed_with_as_it_stands(secret: str) -> None:
    """Its bytes are the key, though a library would decode something else from some of them without a word."""
    body, moment = b'{"name":"Zo\xc3\xab"}', clock.now()
    made = webhook_delivery.sign_standard(secret, "one", body, moment)
    signed = f"one.{int(moment.timestamp())}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    assert made["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    shown = webhook_delivery.standard_secret(secret)
    assert Webhook(shown).verify(body, made) == {"name": "Zoë"}


def test_a_new_secret_is_shown_as_it_is() -> None:
    for _ in range(50):
        secret = webhook_delivery.new_secret()
        assert webhook_delivery.standard_secret(secret) == secret
        assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32


def test_the_signature_of_the_documentation_is_the_one_we_make() -> None:
    """docs/payments.md shows this very one, so that whoever checks it in another language has something to check by."""
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


def test_a_change_that_is_undone_is_told_to_nobody() -> None:
    event = make_event()
    make_endpoint()
    make_feed_key()
    order = place_order(hold(event, seats=["hall-A-1"]))

    class Undone(Exception):
        pass

    def announce_and_fail() -> None:
        with transactions.write():
            messages.publish_message(lock_order(order.pk), messages.Kind.ORDER_CONFIRMED)
            raise Undone

    with pytest.raises(Undone):
        announce_and_fail()
    assert not OrganizerMessage.objects.exists()
    assert not OutboxMessage.objects.filter(topic=topics.WEBHOOK).exists()


def test_with_nobody_listening_nothing_is_written() -> None:
    other = make_event(slug="other")
    make_endpoint(event=other)
    make_endpoint(is_active=False)
    make_endpoint(kinds=["order.refunded"])
    make_feed_key(revoked_at=clock.now())
    make_feed_key(other)
    buy(hold(make_event(), seats=["hall-A-1"]))
    assert not OrganizerMessage.objects.exists()


def test_what_is_not_taken_is_tried_again_and_its_log_says_so(listener: WebhookReceiver) -> None:
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


def test_what_is_never_taken_is_given_up_and_can_be_replayed(listener: WebhookReceiver) -> None:
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
    assert not webhook_delivery.replay(delivery_of(endpoint).pk), "it is on its way"
    deliver_outbox()
    assert delivery_of(endpoint).status == "delivered"


def lose_every_worker(endpoint: WebhookEndpoint) -> None:
    """Whoever took the message in its last attempt, and all before, was killed."""
    OutboxMessage.objects.filter(topic=topics.WEBHOOK).update(attempts=webhook_delivery.ATTEMPTS_MAX)
    make_due()
    deliver_outbox()
    assert delivery_of(endpoint).status == "pending"
    assert OutboxMessage.objects.filter(topic=topics.WEBHOOK, dead_at__isnull=False).count() == 1


def test_whose_worker_was_lost_in_the_last_attempt_can_be_replayed_once(listener: WebhookReceiver) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    endpoint = make_endpoint(listener.url)
    with transactions.write():
        messages.publish_message(lock_order(order.pk), messages.Kind.ORDER_CONFIRMED)
    delivery = delivery_of(endpoint)
    assert not webhook_delivery.replay(delivery.pk), "it is on its way"
    lose_every_worker(endpoint)
    assert sorted(values(storm(4, lambda _: webhook_delivery.replay(delivery.pk)))) == [False, False, False, True]
    deliver_outbox()
    assert (delivery_of(endpoint).status, len(listener.received)) == ("delivered", 1)


def test_two_who_replay_at_once_send_it_once(listener: WebhookReceiver) -> None:
    endpoint = make_endpoint(listener.url)
    buy(hold(make_event(), seats=["hall-A-1"]))
    delivery = delivery_of(endpoint)
    assert sorted(values(storm(4, lambda _: webhook_delivery.replay(delivery.pk)))) == [False, False, False, True]
    deliver_outbox()
    assert len(listener.received) == 2


def test_an_endpoint_that_cannot_be_reached_rests_and_that_is_no_failure_of_the_others(
    listener: WebhookReceiver,
) -> None:
    gone = make_endpoint("http://127.0.0.1:9/")
    event = make_event()
    buy(hold(event, seats=["hall-A-1"]))
    buy(hold(event, seats=["hall-A-2"]))
    assert sorted(WebhookDelivery.objects.filter(endpoint=gone).values_list("attempts", flat=True)) == [0, 1]
    waiting = OutboxMessage.objects.get(topic=topics.WEBHOOK, attempts=0)
    assert "rests" in waiting.last_error


def test_a_private_address_gets_nothing_unless_the_operator_allows_it(listener: WebhookReceiver, settings: Any) -> None:
    settings.WEBHOOKS_TO_PRIVATE_ADDRESSES = False
    endpoint = make_endpoint(listener.url)
    buy(hold(make_event(), seats=["hall-A-1"]))
    assert listener.received == []
    assert delivery_of(endpoint).answer == "it is not a public address"


def test_an_endpoint_switched_off_is_sent_nothing_more(listener: WebhookReceiver) -> None:
    endpoint = make_endpoint(listener.url)
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    with transactions.write():
        messages.publish_message(lock_order(order.pk), messages.Kind.ORDER_CONFIRMED)
    WebhookEndpoint.objects.update(is_active=False)
    deliver_outbox()
    assert (listener.received, delivery_of(endpoint).status) == ([], "given_up")


def test_a_feed_gives_out_messages_and_forgets_what_is_deleted() -> None:
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
    assert delete(key, second["receipt_handle"]) == 404, "given out again, it has another handle"
    assert delete(other, again[0]["receipt_handle"]) == 404, "another key's"
    assert delete(key, again[0]["receipt_handle"]) == 204
    assert len(pull(other).json()["messages"]) == 3, "each key has a queue of its own"


def test_many_who_pull_with_one_key_share_the_messages() -> None:
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
def test_a_number_that_is_none_is_refused_by_name(n: str) -> None:
    key, _ = make_feed_key()
    answer = pull(key, n)
    assert (answer.status_code, answer.json()["type"]) == (422, "invalid")
    assert "n" in answer.json()["errors"]


def test_without_a_standing_key_the_feed_opens_for_nobody() -> None:
    revoked, _ = make_feed_key(revoked_at=clock.now())
    assert Client().get(MESSAGES).json()["type"] == "token-missing"
    for key in (revoked, "fgf_made_up", "\u00e9"):
        answer = pull(key)
        assert (answer.status_code, answer.json()["type"]) == (401, "token-invalid"), key
    assert delete(revoked, uuid.uuid4()) == 401


def test_after_seven_days_messages_are_gone_read_or_not() -> None:
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
    deliver_outbox()  # Two deliveries are gone: nothing is left to do for them.
    assert OutboxMessage.objects.filter(topic=topics.WEBHOOK, done_at__isnull=False).count() == 2


def test_the_webhooks_of_a_sale_are_a_topic_of_their_own_with_few_at_once() -> None:
    assert outbox._topics[topics.WEBHOOK].together_max == webhook_delivery.CONCURRENT_MAX
