"""A sale through the public API, by both entry points."""

import json
from typing import Any

import pytest
from django.test import Client

from apps.kernel import clock
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.rate_limits import mail_caps
from apps.orders import access, topics
from apps.orders.models import Order, ProviderMessage, ReturnPolicy
from apps.orders.payments.providers import sandbox
from tests.support.api_client import Api, assert_problem
from tests.support.factories import PLACE_PRICE_MINOR, assert_audit_clean, make_event
from tests.support.orders.sale import SAME_ORIGIN, deliver_outbox, joined_browser, late_webhook
from tests.support.queue.rooms import make_room, tick

pytestmark = pytest.mark.django_db(transaction=True)
BODY = {"email": "guest@example.org", "name": "Guest Buyer"}


@pytest.fixture
def concert():
    return make_event("concert", general_admission=20)


@pytest.fixture(params=[False, True], ids=["site", "fast path"])
def api(request: pytest.FixtureRequest) -> Api:
    return Api(through_fast_path=request.param)


def held(api: Api, **body: object) -> tuple[str, str]:
    """Hold seats; return the reservation's id and its owner's token."""
    token = api.admission("concert")
    response = api.post(
        "/events/concert/reservations", body or {"ga_section": "floor", "ga_quantity": 2}, token=token, key="h"
    )
    assert response.status_code == 201, response.content
    return response.json()["reservation_id"], token


def test_a_guest_buys_general_admission_with_only_a_token(api, concert) -> None:
    reservation, token = held(api)
    response = api.post(f"/reservations/{reservation}/checkout", BODY, token=token, key="pay")
    assert response.status_code == 202
    shown = response.json()
    assert shown.keys() == {"order_id", "status", "total_minor", "currency", "bill", "payment"}
    assert (shown["total_minor"], shown["currency"]) == (2 * PLACE_PRICE_MINOR, "USD")
    deliver_outbox()
    order = api.get(f"/orders/{shown['order_id']}", token=token).json()
    assert order["status"] == "confirmed"
    assert order["payment"]["state"] == "succeeded"
    assert [ticket["label"] for ticket in order["tickets"]] == ["Floor, 1 of 2", "Floor, 2 of 2"]
    assert api.get("/orders", token=token).json()["orders"] == [order]
    assert api.get(f"/reservations/{reservation}", token=token).json()["status"] == "confirmed"
    assert_audit_clean()


def test_after_a_sale_the_buyer_can_join_again_and_buy_up_to_the_cap(api) -> None:
    """One slot, three tickets per buyer. The buyer buys two while another visitor waits. The tokens of that sale are
    invalid afterwards; the buyer joins again behind the other, and at their turn can buy one more but not two."""
    event = make_room("concert", active=1, per_buyer_max=3, general_admission=20)
    place = api.join("concert", visitor_id="a-buyer-who-returns")
    hold = "/events/concert/reservations"

    def floor(quantity: int, token: str, key: str) -> Any:
        return api.post(hold, {"ga_section": "floor", "ga_quantity": quantity}, token=token, key=key)

    reservation = floor(2, place["admission_token"], "first").json()["reservation_id"]
    other = api.join("concert")
    assert other["status"] == "waiting"
    paid = api.post(f"/reservations/{reservation}/checkout", BODY, token=place["admission_token"], key="pay")
    assert paid.status_code == 202
    deliver_outbox()
    for token in (place["admission_token"], place["queue_token"]):
        assert_problem(floor(1, token, "replayed"), 410, "admission-expired")
        status = api.get("/events/concert/queue/status", token=token).json()
        assert status["status"] == "completed"
        assert "admission_token" not in status
    again = api.post("/events/concert/queue", token=place["queue_token"]).json()
    assert (again["status"], again["position_in_queue"]) == ("waiting", 2)
    assert api.join("concert", visitor_id="a-buyer-who-returns")["position_in_queue"] == 2, (
        "a second join keeps the position"
    )
    assert_problem(floor(1, again["queue_token"], "too early"), 429, "not-admitted")
    assert tick(event) == 1
    assert api.delete("/events/concert/queue", token=other["queue_token"]).status_code == 200
    assert tick(event) == 1
    ready = api.get("/events/concert/queue/status", token=again["queue_token"]).json()
    assert assert_problem(floor(2, ready["admission_token"], "two"), 409, "purchase-cap")["cap"] == 3
    assert floor(1, ready["admission_token"], "one").status_code == 201
    assert_audit_clean()


def test_the_same_key_returns_the_same_bytes_and_another_body_is_refused(api, concert) -> None:
    reservation, token = held(api)
    path = f"/reservations/{reservation}/checkout"
    first = api.post(path, BODY, token=token, key="pay")
    deliver_outbox()
    again = api.post(path, dict(reversed(BODY.items())), token=token, key="pay")
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert_problem(api.post(path, BODY | {"name": "Other"}, token=token, key="pay"), 422, "idempotency-mismatch")
    other = api.post(path, BODY, token=token, key="another tab").json()
    assert other["order_id"] == first.json()["order_id"]


def test_a_checkout_without_a_key_is_refused(api, concert) -> None:
    reservation, token = held(api)
    path = f"/reservations/{reservation}/checkout"
    assert_problem(api.post(path, BODY, token=token), 400, "idempotency-key-required")
    assert_problem(api.post(path, BODY, token=token, key="k" * 201), 422, "invalid")
    assert not Order.objects.exists()


def test_an_unknown_field_is_reported(api, concert) -> None:
    reservation, token = held(api)
    response = api.post(f"/reservations/{reservation}/checkout", BODY | {"payment_methd": "x"}, token=token, key="pay")
    assert assert_problem(response, 422, "invalid")["errors"] == {"payment_methd": "unknown field"}
    assert not Order.objects.exists()


@pytest.mark.parametrize(
    "body", [{}, {"email": "x", "name": "y"}, {"email": 1, "name": 2}, BODY | {"payment_method": 3}]
)
def test_invalid_values_are_reported_by_field(api, concert, body) -> None:
    reservation, token = held(api)
    response = api.post(f"/reservations/{reservation}/checkout", body, token=token, key="pay")
    errors = assert_problem(response, 422, "invalid")["errors"]
    assert errors
    assert errors.keys() <= {"email", "name", "payment_method"}


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"{", 400, "malformed"),
        (b"[]", 422, "invalid"),
        (b'"text"', 422, "invalid"),
        (b'{"email":"a@example.org","name":"\\u0000"}', 422, "invalid"),
        (b'{"email":"a@example.org","name":"\\ud800"}', 422, "invalid"),
    ],
)
def test_a_malformed_body_is_refused(api, concert, body, status, kind) -> None:
    reservation, token = held(api)
    assert_problem(api.post(f"/reservations/{reservation}/checkout", body, token=token, key="p"), status, kind)


def test_only_the_owner_pays_reads_and_cancels(api, concert) -> None:
    reservation, token = held(api)
    stranger = api.admission("concert")
    path = f"/reservations/{reservation}/checkout"
    assert_problem(api.post(path, BODY, key="pay"), 401, "token-missing")
    assert_problem(api.post(path, BODY, key="pay", token="nonsense"), 401, "token-invalid")
    assert_problem(api.post(path, BODY, key="pay", token=stranger), 403, "not-owner")
    make_event("other")
    assert_problem(api.post(path, BODY, key="pay", token=api.admission("other")), 403, "token-wrong-event")
    order = api.post(path, BODY, key="pay", token=token).json()["order_id"]
    for who, status, kind in (("", 401, "token-missing"), (stranger, 403, "not-owner")):
        assert_problem(api.get(f"/orders/{order}", token=who), status, kind)
        assert_problem(api.post(f"/orders/{order}/cancel", token=who), status, kind)
    assert_problem(api.get("/orders"), 401, "token-missing")
    assert api.get("/orders", token=stranger).json() == {"orders": []}
    missing = "00000000-0000-4000-8000-000000000000"
    assert_problem(api.get(f"/orders/{missing}", token=token), 404, "not-found")
    assert_problem(api.post(f"/reservations/{missing}/checkout", BODY, key="k", token=token), 404, "not-found")


def test_the_mails_link_opens_only_its_order(api, concert) -> None:
    reservation, token = held(api)
    order = api.post(f"/reservations/{reservation}/checkout", BODY, key="pay", token=token).json()["order_id"]
    key = access.link_key(Order.objects.get().pk)
    assert api.get(f"/orders/{order}?key={key}").json()["order_id"] == order
    assert_problem(api.get(f"/orders/{order}?key={key}x"), 401, "token-missing")
    assert_problem(api.get(f"/orders/00000000-0000-4000-8000-000000000000?key={key}"), 401, "token-missing")


def test_an_accounts_address_is_the_default(api, concert, django_user_model) -> None:
    django_user_model.objects.create_user("ada@example.org", "ada@example.org", "a good password", first_name="Ada")
    login = {"username": "ada@example.org", "password": "a good password"}
    jwt = api.post("/auth/token", login).json()["access"]
    api.post("/events/concert/queue", token=jwt)
    hold = api.post("/events/concert/reservations", {"seats": ["hall-A-1"]}, token=jwt, key="h").json()
    response = api.post(f"/reservations/{hold['reservation_id']}/checkout", {}, token=jwt, key="pay")
    assert response.status_code == 202, response.content
    (order,) = api.get("/orders", token=jwt).json()["orders"]
    assert (order["email"], order["name"]) == ("ada@example.org", "Ada")


def test_a_declined_order_can_be_canceled_or_retried(api, concert) -> None:
    reservation, token = held(api)
    path = f"/reservations/{reservation}/checkout"
    order = api.post(path, BODY | {"payment_method": "sandbox_decline"}, key="1", token=token).json()["order_id"]
    deliver_outbox()
    shown = api.get(f"/orders/{order}", token=token).json()
    assert shown["can_try_again"] is True
    assert shown["payment"] | {"state": "declined", "attempts_left": 2} == shown["payment"]
    canceled = api.post(f"/orders/{order}/cancel", token=token, key="c")
    assert (canceled.status_code, canceled.json()["status"]) == (200, "canceled")
    assert api.post(f"/orders/{order}/cancel", token=token, key="c").content == canceled.content
    assert api.post(f"/orders/{order}/cancel", token=token, key="d").json()["status"] == "canceled"
    assert_problem(api.post(path, BODY, key="2", token=token), 410, "reservation-expired")
    assert_audit_clean()


def test_the_notice_of_an_unpaid_order_is_a_mail_of_the_buyers_network(api, concert) -> None:
    reservation, token = held(api)
    path, body = f"/reservations/{reservation}/checkout", BODY | {"payment_method": "sandbox_decline"}
    network = mail_caps.origin_of("127.0.0.1")
    for attempt in range(3):
        assert api.post(path, body, key=str(attempt), token=token).status_code == 202
        order = Order.objects.get()
        assert order.origin == network
        deliver_outbox()
    order.refresh_from_db()
    assert (order.status, order.origin) == (Order.Status.FAILED, ""), "it is blank after the end"
    notice = OutboxMessage.objects.get(topic=topics.SEND_FAILURE_NOTICE)
    assert notice.body["origin"] == network
    assert_audit_clean()


def test_a_paid_order_keeps_no_network(api, concert) -> None:
    reservation, token = held(api)
    assert api.post(f"/reservations/{reservation}/checkout", BODY, key="1", token=token).status_code == 202
    deliver_outbox()
    order = Order.objects.get()
    assert (order.status, order.origin) == (Order.Status.CONFIRMED, "")


def test_a_paid_order_cannot_be_canceled_by_its_buyer(api, concert) -> None:
    reservation, token = held(api)
    order = api.post(f"/reservations/{reservation}/checkout", BODY, key="1", token=token).json()["order_id"]
    deliver_outbox()
    for _ in range(2):  # A refusal is not stored, so its key can be used again.
        response = api.post(f"/orders/{order}/cancel", token=token, key="c")
        assert assert_problem(response, 409, "order-not-cancelable")["order_status"] == "confirmed"


def test_a_cancellation_requires_a_key_that_is_used_for_one_order(api, concert) -> None:
    orders: list[str] = []
    token = api.admission("concert")
    for seat in ("hall-B-1", "hall-B-2"):
        hold = api.post("/events/concert/reservations", {"seats": [seat]}, token=token, key=seat).json()
        path = f"/reservations/{hold['reservation_id']}/checkout"
        body = BODY | {"payment_method": "sandbox_decline"}
        orders.append(api.post(path, body, key=f"pay {seat}", token=token).json()["order_id"])
        deliver_outbox()
        path = f"/orders/{orders[-1]}/cancel"
        assert_problem(api.post(path, token=token), 400, "idempotency-key-required")
        assert_problem(api.post(path, {"why": "ill"}, token=token, key="c"), 422, "invalid")
        if len(orders) == 1:
            assert api.post(path, token=token, key="c").json()["status"] == "canceled"
        else:
            assert_problem(api.post(path, token=token, key="c"), 422, "idempotency-mismatch")
            assert api.get(f"/orders/{orders[-1]}", token=token).json()["status"] == "placed"


def test_webhooks_are_stored_before_the_response_and_only_if_signed(api, concert) -> None:
    reservation, token = held(api)
    api.post(f"/reservations/{reservation}/checkout", BODY | {"payment_method": "sandbox_late"}, key="1", token=token)
    deliver_outbox()
    order = Order.objects.get()
    raw = late_webhook(order, clock.now())
    path = "/webhooks/payments/sandbox"
    assert_problem(api.post(path, raw), 400, "signature-invalid")
    signed = {"Sandbox_Signature": sandbox.sign(raw)}
    assert_problem(api.post(path, raw + b" ", **signed), 400, "signature-invalid")
    assert_problem(api.post("/webhooks/payments/bank", raw, **signed), 404, "not-found")
    assert_problem(api.get(path), 405, "method-not-allowed")
    for _ in range(2):
        response = api.post(path, raw, **signed)
        assert (response.status_code, response.json()) == (200, {"stored": True})
    assert ProviderMessage.objects.filter(processed_at=None).count() == 1
    deliver_outbox()
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED
    assert_audit_clean()


def test_a_browsers_cookie_can_pay_only_from_our_own_pages(concert) -> None:
    client, own = joined_browser("concert"), SAME_ORIGIN
    browser = Api(client)
    hold = browser.post("/events/concert/reservations", {"seats": ["hall-A-1"]}, key="h", **own)
    path = f"/reservations/{hold.json()['reservation_id']}/checkout"
    assert_problem(browser.post(path, BODY, key="p", Sec_Fetch_Site="cross-site"), 403, "cross-origin")
    assert_problem(browser.post(path, BODY, key="p"), 403, "cross-origin")
    assert browser.post(path, BODY, key="p", **own).status_code == 202


def test_the_openapi_schema_contains_the_sale(api) -> None:
    schema = json.loads(Client().get("/api/schema?format=json").content)
    for path in ("/api/reservations/{reservation_id}/checkout", "/api/orders", "/api/orders/{order_id}/cancel"):
        assert path in schema["paths"]


def test_tickets_can_be_returned_if_the_organizer_allows_it(api, concert) -> None:
    reservation, token = held(api)
    order = api.post(f"/reservations/{reservation}/checkout", BODY, key="1", token=token).json()["order_id"]
    deliver_outbox()
    path, shown = f"/orders/{order}/refunds", api.get(f"/orders/{order}", token=token).json()
    body = {"tickets": [shown["tickets"][0]["code"]]}
    assert shown["returns"] is None
    assert_problem(api.post(path, body, token=token, key="r"), 409, "return-not-allowed")
    ReturnPolicy.objects.create(event_id=concert.id, until_hours=24)
    assert api.get(f"/orders/{order}", token=token).json()["returns"]["open"] is True
    assert_problem(api.post(path, body, key="r"), 401, "token-missing")
    assert_problem(api.post(path, body, token=api.admission("concert"), key="r"), 403, "not-owner")
    assert_problem(api.post(path, body, token=token), 400, "idempotency-key-required")
    assert_problem(api.post(path, {}, token=token, key="r"), 422, "invalid")
    response = api.post(path, body, token=token, key="r")
    assert (response.status_code, response.json()["tickets"]) == (202, body["tickets"])
    assert response.json()["amount_minor"] == shown["tickets"][0]["price_minor"]
    assert api.post(path, body, token=token, key="r").content == response.content
    assert_problem(api.post(path, body, token=token, key="s"), 409, "tickets-not-valid")
    assert_problem(api.post(path, {"tickets": ["x"]}, token=token, key="r"), 422, "idempotency-mismatch")
    (refund,) = api.get(f"/orders/{order}", token=token).json()["refunds"]
    assert refund["state"] == "requested"
    deliver_outbox()
    (refund,) = api.get(f"/orders/{order}", token=token).json()["refunds"]
    assert (refund["state"], refund["amount_minor"]) == ("succeeded", response.json()["amount_minor"])
    assert_audit_clean()
