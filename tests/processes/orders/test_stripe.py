"""Stripe over its real protocol: the official SDK against a localstripe server, and its signed deliveries.

Where localstripe lacks a feature or sends no webhook, the tests sign payloads in Stripe's recorded form with the SDK's
scheme.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import stripe as sdk
from django.core import mail
from django.core.checks import run_checks
from django.test import Client

from apps.kernel import clock
from apps.kernel.http import problems
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import selectors
from apps.orders.access import order_link
from apps.orders.cancellation import order_cancellation
from apps.orders.errors import ProviderNotFound, SignatureInvalid
from apps.orders.models import Order, Payment, ProviderMessage, ProviderStanding, Refund, Ticket
from apps.orders.payments.providers import get_provider, read_webhook, stripe, stripe_objects
from apps.orders.payments.providers.protocol import ChargeRequest, Kind, MovementKind, ProviderFault, RefundRequest
from apps.orders.provider_sync import event_storage, inbox
from tests.processes.orders import stripe_account
from tests.processes.orders.stripe_account import Account, Delivery
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import buy, deliver_outbox, payment_of, place_order

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Account]:
    with stripe_account.serving() as account:
        yield account


@pytest.fixture(autouse=True)
def account(server: Account, settings: Any) -> Account:
    stripe_account.connect(server, settings)
    return server


def ordered(**event: Any) -> Order:
    """Return an order whose intent waits for the buyer's payment."""
    order = buy(hold(make_event(**event), seats=["hall-A-1"]), "card")
    assert order.status == Order.Status.PAYING
    return order


def client_secret(order: Order, attempt: int = 1) -> str:
    action = payment_of(order, attempt).next_action
    assert action is not None
    assert action["type"] == "stripe"
    assert action["publishable_key"] == stripe_account.PUBLISHABLE
    return str(action["client_secret"])


def receive(delivery: Delivery) -> None:
    """Receive the delivery unchanged and process its outbox messages."""
    answer = Client().post(
        "/api/webhooks/payments/stripe",
        delivery.raw,
        content_type="application/json",
        headers={"Stripe-Signature": delivery.headers["Stripe-Signature"]},
    )
    assert (answer.status_code, answer.json()) == (200, {"stored": True})
    deliver_outbox()


def receive_next(account: Account, order: Order, kind: str = "payment_intent.succeeded", attempt: int = 1) -> None:
    """Receive the account's next delivery of this kind about the order."""
    receive(account.next_delivery(kind, payment_of(order, attempt).reference))


def status_of(order: Order) -> str:
    order.refresh_from_db()
    return str(order.status)


def request_of(payment: Payment, **changes: Any) -> ChargeRequest:
    of_payment = {
        "key": payment.pk,
        "method": payment.method,
        "amount_minor": payment.amount_minor,
        "currency": payment.currency,
        "description": f"Order {payment.order.number}",
        "counts_until": payment.counts_until,
    }
    return ChargeRequest(**of_payment | changes)


def test_a_buyer_pays_in_stripes_form_and_the_signed_webhook_confirms(account) -> None:
    order = ordered()
    intent = account.pay(client_secret(order))
    assert (intent["status"], intent["metadata"]) == ("succeeded", {"payment": str(payment_of(order).pk)})
    assert (intent["amount"], intent["currency"]) == (order.total_minor, "usd")
    assert status_of(order) == "paying", "only the signed webhook confirms"
    receive_next(account, order)
    assert status_of(order) == "confirmed"
    payment = payment_of(order)
    assert (payment.reference, payment.captured_minor, payment.next_action) == (intent["id"], order.total_minor, None)
    assert Ticket.objects.count() == 1
    assert len(mail.outbox) == 1
    assert_audit_clean()


def test_a_repeated_delivery_and_one_after_an_inquiry_change_nothing(account) -> None:
    order = ordered()
    account.pay(client_secret(order))
    delivery = account.next_delivery("payment_intent.succeeded", payment_of(order).reference)
    event = get_provider("stripe").find_charge(payment_of(order).pk, payment_of(order).reference)
    assert event is not None
    inbox.record_provider_answer("stripe", event)
    for _ in range(2):
        receive(delivery)
    assert status_of(order) == "confirmed"
    outcomes = ProviderMessage.objects.filter(kind=Kind.SUCCEEDED).values_list("outcome", flat=True)
    assert sorted(outcomes) == ["confirmed", "known already"]
    assert_audit_clean()


def test_a_buyer_with_a_declined_card_pays_with_another(account) -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    order = buy(reservation, "card")
    refused = account.pay(client_secret(order), stripe_account.DECLINES)
    assert refused["error"]["code"] == "card_declined"
    receive_next(account, order, "payment_intent.payment_failed")
    view = selectors.get_order(order.pk)
    assert view.can_try_again
    assert (view.payment.state, view.payment.next_action) == ("declined", None)
    buy(reservation, "card")
    account.pay(client_secret(order, attempt=2))
    receive_next(account, order, attempt=2)
    assert status_of(order) == "confirmed"
    assert_audit_clean()


def test_3_d_secure_confirms_after_a_successful_challenge(account) -> None:
    order = ordered()
    assert account.pay(client_secret(order), stripe_account.ASKS_THEN_PAYS)["status"] == "requires_action"
    found = get_provider("stripe").find_charge(payment_of(order).pk, payment_of(order).reference)
    assert found is not None
    assert found.kind == Kind.PENDING
    assert account.prove(client_secret(order), is_them=True)["status"] == "succeeded"
    receive_next(account, order)
    assert status_of(order) == "confirmed"
    assert_audit_clean()


def test_a_failed_3_d_secure_challenge_is_a_decline_found_by_an_inquiry(account) -> None:
    """localstripe sends no webhook for it, as if the delivery were lost."""
    order = ordered()
    account.pay(client_secret(order), stripe_account.ASKS_THEN_PAYS)
    account.prove(client_secret(order), is_them=False)
    event = get_provider("stripe").find_charge(payment_of(order).pk, payment_of(order).reference)
    assert event is not None
    assert event.kind == Kind.DECLINED
    inbox.record_provider_answer("stripe", event)
    assert selectors.get_order(order.pk).can_try_again
    assert_audit_clean()


def test_a_refund_is_made_once_and_found_by_its_key(account) -> None:
    order = ordered()
    account.pay(client_secret(order))
    receive_next(account, order)
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    refund = Refund.objects.get()
    assert (status_of(order), refund.status) == ("refunded", Refund.Status.SUCCEEDED)
    request = RefundRequest(refund.pk, refund.payment.reference, refund.amount_minor, refund.currency)
    assert get_provider("stripe").refund(request).reference == refund.reference
    (stripe_refund,) = account.call("GET", "/v1/refunds")["data"]
    assert (stripe_refund["id"], stripe_refund["amount"]) == (refund.reference, order.total_minor)
    receive_next(account, order, "refund.created")
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert_audit_clean()


def test_two_requests_with_one_key_create_one_intent_with_one_amount(account) -> None:
    order = ordered()
    request = request_of(payment_of(order))
    assert get_provider("stripe").charge(request).reference == payment_of(order).reference
    with pytest.raises(ProviderFault, match="Idempotency"):
        get_provider("stripe").charge(request_of(payment_of(order), amount_minor=1_000))
    assert len([row for row in _intents(account) if row["metadata"] == {"payment": str(request.key)}]) == 1


def _intents(account: Account) -> list[Any]:
    return list(account.call("GET", "/v1/payment_intents?limit=100")["data"])


def lose_a_response(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lose the response to the next POST after Stripe has executed it. Return a list that will contain its URL."""
    real, lost = sdk.RequestsClient.request, list[str]()

    def losing(self: Any, method: str, url: str, *rest: Any, **more: Any) -> Any:
        answer = real(self, method, url, *rest, **more)
        if method == "post" and not lost:
            lost.append(url.partition("/v1/")[2])
            raise sdk.APIConnectionError("timed out")
        return answer

    monkeypatch.setattr(sdk.RequestsClient, "request", losing)
    return lost


def test_a_retry_after_a_timeout_finds_the_intent(account, monkeypatch) -> None:
    lost = lose_a_response(monkeypatch)
    order = place_order(hold(make_event(), seats=["hall-A-1"]), "card")
    deliver_outbox()
    assert lost == ["payment_intents"]
    assert len(_intents(account)) == 1
    assert payment_of(order).reference == ""
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now())
    deliver_outbox()
    assert len(_intents(account)) == 1
    account.pay(client_secret(order))
    receive_next(account, order)
    assert status_of(order) == "confirmed"
    assert_audit_clean()


def test_a_lost_response_to_a_refund_refunds_once(account, monkeypatch) -> None:
    order = ordered()
    account.pay(client_secret(order))
    receive_next(account, order)
    order_cancellation.refund_order(order.pk, "staff:1")
    lost = lose_a_response(monkeypatch)
    deliver_outbox()
    assert (lost, Refund.objects.get().status) == (["refunds"], Refund.Status.REQUESTED)
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now())
    deliver_outbox()
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert len(account.call("GET", "/v1/refunds")["data"]) == 1
    assert_audit_clean()


def test_an_unpaid_intent_is_canceled_and_cannot_be_paid_afterwards(account) -> None:
    order = ordered()
    secret = client_secret(order)
    provider = get_provider("stripe")
    request = request_of(payment_of(order))
    assert provider.cancel(request, payment_of(order).reference).kind == Kind.CANCELED
    assert provider.cancel(request, payment_of(order).reference).kind == Kind.CANCELED
    assert "error" in account.pay(secret)
    receive_next(account, order, "payment_intent.canceled")
    assert (status_of(order), payment_of(order).status) == ("failed", Payment.Status.ABANDONED)
    assert_audit_clean()


def test_a_charge_unknown_to_stripe_is_canceled_for_good(account) -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]), "card")
    assert get_provider("stripe").find_charge(payment_of(order).pk) is None
    assert get_provider("stripe").cancel(request_of(payment_of(order))).kind == Kind.CANCELED
    assert get_provider("stripe").find_charge(payment_of(order).pk).kind == Kind.CANCELED  # type: ignore[union-attr]


def test_cancel_returns_a_payment_that_succeeded_meanwhile(account) -> None:
    order = ordered()
    account.pay(client_secret(order))
    event = get_provider("stripe").cancel(request_of(payment_of(order)), payment_of(order).reference)
    assert event.kind == Kind.SUCCEEDED
    inbox.record_provider_answer("stripe", event)
    assert status_of(order) == "confirmed"


def test_movements_of_a_day_are_read_in_pages_and_contain_only_moved_money(account, monkeypatch) -> None:
    monkeypatch.setattr(stripe, "PAGE_SIZE", 1)
    event = make_event()
    orders = [buy(hold(event, seats=[seat]), "card") for seat in ("hall-A-1", "hall-A-2", "hall-A-3")]
    for order in orders[:2]:
        account.pay(client_secret(order))
        receive_next(account, order)
    account.pay(client_secret(orders[2]), stripe_account.DECLINES)
    order_cancellation.refund_order(orders[0].pk, "staff:1")
    deliver_outbox()
    today = clock.now().date()
    moved = list(get_provider("stripe").movements(today))
    captures = {move.reference: move for move in moved if move.kind == MovementKind.CAPTURE}
    assert set(captures) == {payment_of(order).reference for order in orders[:2]}
    assert {move.key for move in captures.values()} == {str(payment_of(order).pk) for order in orders[:2]}
    (refund,) = [move for move in moved if move.kind == MovementKind.REFUND]
    assert (refund.key, refund.reference) == (str(Refund.objects.get().pk), Refund.objects.get().reference)
    assert refund.charge_reference == payment_of(orders[0]).reference
    assert all(move.currency == "USD" and move.occurred_at.date() == today for move in moved)


def test_an_unreachable_server_and_refused_keys_are_provider_faults(settings) -> None:
    order = ordered()
    payment = payment_of(order)
    settings.STRIPE_SECRET_KEY = "nothing"
    with pytest.raises(ProviderFault):
        get_provider("stripe").find_charge(payment.pk, payment.reference)
    settings.STRIPE_SECRET_KEY, settings.STRIPE_API_BASE = stripe_account.SECRET, "http://127.0.0.1:1"
    for ask in (
        lambda: get_provider("stripe").find_charge(payment.pk, payment.reference),
        lambda: get_provider("stripe").charge(request_of(payment)),
        lambda: get_provider("stripe").cancel(request_of(payment), payment.reference),
        lambda: list(get_provider("stripe").movements(clock.now().date())),
    ):
        with pytest.raises(ProviderFault):
            ask()


# --- amounts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount_minor", "currency", "stripe_amount"),
    [
        (1_050, "USD", 1_050),
        (500, "JPY", 500),
        (5, "ISK", 500),
        (5, "UGX", 500),
        (5_120, "KWD", 5_120),
        (700, "MGA", 7),
    ],
)
def test_amounts_are_converted_to_stripes_units_and_back(amount_minor, currency, stripe_amount) -> None:
    assert stripe_objects.to_stripe(amount_minor, currency) == stripe_amount
    assert stripe_objects.from_stripe(stripe_amount, currency) == amount_minor


@pytest.mark.parametrize(("amount_minor", "currency"), [(5_124, "KWD"), (750, "MGA")])
def test_an_amount_that_stripe_cannot_represent_is_declined_without_a_call(account, amount_minor, currency) -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]), "card")
    request = request_of(payment_of(order), amount_minor=amount_minor, currency=currency)
    assert get_provider("stripe").charge(request).kind == Kind.DECLINED
    assert get_provider("stripe").cancel(request).kind == Kind.CANCELED
    assert _intents(account) == []


@pytest.mark.parametrize("in_lists", [True, False])
def test_a_currency_that_stripe_refuses_is_declined_and_does_not_pause_stripe(account, in_lists) -> None:
    order = place_order(hold(make_event(currency="IRR"), seats=["hall-A-1"]), "card")
    if in_lists:
        deliver_outbox()
        assert payment_of(order).status == Payment.Status.DECLINED
    else:
        assert get_provider("stripe").charge(request_of(payment_of(order))).kind == Kind.DECLINED
        assert get_provider("stripe").cancel(request_of(payment_of(order))).kind == Kind.CANCELED
    assert not ProviderStanding.objects.exists()
    assert _intents(account) == []


def test_yen_are_charged_and_confirmed_without_a_minor_unit(account) -> None:
    order = ordered(currency="JPY")
    assert account.pay(client_secret(order))["amount"] == order.total_minor
    receive_next(account, order)
    assert status_of(order) == "confirmed"


# --- deliveries -----------------------------------------------------------------------------------------------------


def now_seconds() -> int:
    return int(clock.process_now().timestamp())


def recorded(order: Order, kind: str = "payment_intent.succeeded", **intent: Any) -> bytes:
    """Return a delivery about the order's intent in the form of Stripe's API."""
    payment = payment_of(order)
    return json.dumps(
        {
            "id": "evt_1NG8Du2eZvKYlo2CUI79vXWy",
            "object": "event",
            "api_version": "2026-10-28.endive",
            "created": now_seconds(),
            "livemode": False,
            "pending_webhooks": 1,
            "request": {"id": None, "idempotency_key": None},
            "type": kind,
            "data": {
                "object": {
                    "id": payment.reference,
                    "object": "payment_intent",
                    "amount": payment.amount_minor,
                    "amount_received": payment.amount_minor,
                    "currency": "usd",
                    "latest_charge": "ch_3MtwBwLkdIwHu7ix28a3tqPa",
                    "metadata": {"payment": str(payment.pk)},
                    "status": "succeeded",
                    **intent,
                }
            },
        }
    ).encode()


def recorded_refund(order: Order, **refund: Any) -> bytes:
    body = json.loads(recorded(order, "refund.updated"))
    body["id"] = f"evt_{refund.get('status')}"
    body["data"]["object"] = {
        "id": "re_1Nispe2eZvKYlo2Cd31jOCgZ",
        "object": "refund",
        "amount": order.total_minor,
        "charge": "ch_1NirD82eZvKYlo2CIvbtLWuY",
        "currency": "usd",
        "metadata": {},
        "payment_intent": payment_of(order).reference,
        "reason": None,
        "status": "succeeded",
        **refund,
    }
    return json.dumps(body).encode()


def signed(raw: bytes, secret: str = stripe_account.SIGNING, at: int | None = None) -> dict[str, str]:
    return {"Stripe-Signature": sdk.WebhookSignature.generate_signature_header(raw.decode(), secret, at)}


def test_during_a_rotation_both_webhook_secrets_are_valid(settings) -> None:
    settings.STRIPE_WEBHOOK_SECRETS = ["whsec_next", "whsec_old"]
    raw = recorded(ordered())
    for secret in settings.STRIPE_WEBHOOK_SECRETS:
        assert read_webhook("stripe", raw, signed(raw, secret)).kind == Kind.SUCCEEDED  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "headers",
    [
        lambda raw: {},
        lambda raw: {"Stripe-Signature": ""},
        lambda raw: {"Stripe-Signature": "t=1,v1=ü"},
        lambda raw: {"Stripe-Signature": "t=٣,v1=00"},
        lambda raw: {"Stripe-Signature": "v1=00"},
        lambda raw: {"Stripe-Signature": "t=99999999999999999999,v1=00"},
        lambda raw: signed(raw, "whsec_other"),
        lambda raw: signed(raw + b" "),
        lambda raw: signed(raw, at=now_seconds() - 301),
    ],
)
def test_deliveries_with_a_wrong_or_old_signature_are_not_stored(headers: Callable[[bytes], dict[str, str]]) -> None:
    raw = recorded(ordered())
    before = ProviderMessage.objects.count()
    with pytest.raises(SignatureInvalid):
        event_storage.receive("stripe", raw, headers(raw))
    assert ProviderMessage.objects.count() == before


def test_without_a_webhook_secret_every_delivery_is_refused(settings) -> None:
    settings.STRIPE_WEBHOOK_SECRETS = []
    raw = recorded(ordered())
    with pytest.raises(SignatureInvalid):
        event_storage.receive("stripe", raw, signed(raw, ""))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[]",
        b'{"id":"evt_1","type":"payment_intent.succeeded","created":1,"data":{"object":{}}}',
        b'{"id":"evt_1","type":"payment_intent.succeeded","created":1795000000,"data":{"object":{}}}',
        b'{"id":"evt_1","type":"payment_intent.succeeded","created":1e999,"data":{"object":{}}}',
        b'{"id":"evt_\\u0000","type":"payment_intent.succeeded","created":1795000000,"data":{"object":{}}}',
        b"[" * 3_000,
        b"1" * 5_000,
    ],
)
def test_signed_malformed_bytes_are_refused_and_not_stored(raw) -> None:
    with pytest.raises(problems.MalformedBody):
        event_storage.receive("stripe", raw, signed(raw))
    assert not ProviderMessage.objects.exists()


@pytest.mark.parametrize(
    "wrong",
    [{"amount_received": -1}, {"amount_received": True}, {"currency": "dollars"}, {"currency": None}, {"id": 7}],
)
def test_an_invalid_intent_is_refused(wrong) -> None:
    raw = recorded(ordered(), **wrong)
    with pytest.raises(problems.MalformedBody):
        event_storage.receive("stripe", raw, signed(raw))


@pytest.mark.parametrize(
    "metadata", [None, {}, {"payment": 7}, {"payment": "another system's"}, {"payment": "x" * 999}]
)
def test_an_unknown_intent_is_stored_and_changes_nothing(metadata) -> None:
    order = ordered()
    raw = recorded(order, metadata=metadata, id="pi_elsewhere")
    assert event_storage.receive("stripe", raw, signed(raw))
    deliver_outbox()
    assert status_of(order) == "paying"
    assert ProviderMessage.objects.get(message_id__startswith="evt_").outcome == inbox.UNKNOWN_PAYMENT


def test_an_ignored_event_type_is_accepted_and_not_stored() -> None:
    raw = recorded(ordered(), "customer.created")
    before = ProviderMessage.objects.count()
    assert event_storage.receive("stripe", raw, signed(raw)) is False
    assert ProviderMessage.objects.count() == before


def test_a_refund_that_fails_days_later_is_recorded(account) -> None:
    """localstripe's refunds always succeed at once, so this one's webhook is signed here."""
    order = ordered()
    account.pay(client_secret(order))
    receive_next(account, order)
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    refund = Refund.objects.get()
    raw = recorded_refund(
        order,
        id=refund.reference,
        metadata={"refund": str(refund.pk)},
        status="failed",
        failure_reason="lost_or_stolen_card",
    )
    event_storage.receive("stripe", raw, signed(raw))
    deliver_outbox()
    refund.refresh_from_db()
    assert (refund.status, refund.failure) == (Refund.Status.FAILED, "lost_or_stolen_card")


def test_stripe_requires_configuration_and_old_payments_keep_their_provider(settings) -> None:
    settings.PAYMENT_PROVIDER = "sandbox"
    assert get_provider("stripe").name == "stripe"
    settings.STRIPE_SECRET_KEY = ""
    with pytest.raises(ProviderNotFound):
        event_storage.receive("stripe", b"{}", {})


@pytest.mark.parametrize(
    ("setting", "value", "found"),
    [
        ("STRIPE_SECRET_KEY", "", "orders.E002"),
        ("STRIPE_PUBLISHABLE_KEY", "", "orders.E003"),
        ("STRIPE_WEBHOOK_SECRETS", [], "orders.E004"),
        ("STRIPE_PUBLISHABLE_KEY", "pk_live_x", "orders.E005"),
        ("STRIPE_API_BASE", "http://api.stripe.example", "orders.E006"),
        ("PAYMENT_PROVIDER", "bank", "orders.E001"),
    ],
)
def test_the_system_check_reports_missing_settings(settings, setting, value, found) -> None:
    assert [check for check in run_checks() if check.id.startswith("orders.")] == []
    setattr(settings, setting, value)
    assert [check.id for check in run_checks() if check.id.startswith("orders.")] == [found]


# --- the page -------------------------------------------------------------------------------------------------------


def page_of(order: Order) -> Any:
    return Client().get(order_link(order.pk), follow=True)


def test_the_orders_page_has_stripes_form_and_a_content_security_policy_for_it(account) -> None:
    order = ordered()
    page = page_of(order)
    text, policy = page.content.decode(), page.headers["Content-Security-Policy"]
    assert client_secret(order) in text
    assert stripe_account.PUBLISHABLE in text
    assert "https://js.stripe.com/v3/" in text
    assert stripe_account.SECRET not in text
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert "https://js.stripe.com" in allowed["script-src"]
    assert "https://hooks.stripe.com" in allowed["frame-src"]
    assert allowed["connect-src"] == "'self' https://api.stripe.com"
    assert allowed["default-src"] == "'self'"
    account.pay(client_secret(order))
    receive_next(account, order)
    page = page_of(order)
    assert "stripe" not in page.content.decode().lower().replace("stripes", "")
    assert "stripe" not in page.headers["Content-Security-Policy"]


def test_until_the_intent_exists_the_page_polls_for_its_form() -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]), "card")
    text = page_of(order).content.decode()
    assert "js/stripe_pay" in text
    assert "js.stripe.com" not in text


def test_another_providers_page_does_not_load_stripe(settings) -> None:
    settings.PAYMENT_PROVIDER = "sandbox"
    page = page_of(place_order(hold(make_event(), seats=["hall-A-1"])))
    assert "stripe_pay" not in page.content.decode()
    assert "stripe" not in page.headers["Content-Security-Policy"]
