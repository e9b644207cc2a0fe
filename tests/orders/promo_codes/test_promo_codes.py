"""Promo codes from the quote to the refund: limits, discounts, and the release of uses."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command

from apps.events import facade as events
from apps.kernel import clock, rate_limits
from apps.orders import access, selectors
from apps.orders.cancellation import order_cancellation
from apps.orders.checkout.checkout import check_out
from apps.orders.checkout.quote import quote
from apps.orders.errors import CodeLimitReached, CodeNotValid, CodeRefused, CodeUnknown, CodeUsedUp
from apps.orders.models import CodeUse, Order, Payment, PromoCode
from apps.orders.payments.providers import sandbox
from apps.orders.promo_codes import promo_codes
from apps.reservations import facade as reservations
from tests.support.api_client import Api, assert_problem
from tests.support.factories import SEAT_PRICE_MINOR, assert_audit_clean, audit_breaches, hold, join, make_event
from tests.support.orders.sale import (
    SAME_ORIGIN,
    backdate_pay_deadline,
    buy,
    checkout_body,
    deliver_outbox,
    joined_browser,
    late_webhook,
    make_code,
    payment_of,
    place_order,
    receive_webhook,
)
from tests.support.orders.sandbox_rows import SandboxCharge

pytestmark = pytest.mark.django_db(transaction=True)
BODY = {"email": "guest@example.org", "name": "Guest Buyer"}
HALF = SEAT_PRICE_MINOR // 2


@pytest.fixture(autouse=True)
def _audit() -> Any:
    yield
    assert_audit_clean()


@pytest.fixture
def concert() -> events.EventView:
    return make_event("concert", general_admission=20)


def seat(event: events.EventView, number: int = 1, **options: Any) -> reservations.ReservationView:
    return hold(event, seats=[f"hall-A-{number}"], **options)


def standing_uses() -> int:
    return CodeUse.objects.filter(released_at=None).count()


def test_a_discount_is_stored_charged_and_refunded(concert) -> None:
    make_code(concert, rate=5_000)
    order = buy(seat(concert), code=" half price ")
    assert (order.status, order.total_minor) == (Order.Status.CONFIRMED, HALF)
    assert SandboxCharge.objects.get().amount_minor == HALF
    (line,) = order.lines.all()
    assert (line.price_minor, line.discount_minor, line.total_minor) == (SEAT_PRICE_MINOR, HALF, HALF)
    used = order.code_use
    assert (used.discount_minor, used.buyer, used.email) == (HALF, order.buyer, order.email)
    PromoCode.objects.update(rate=100)
    order.refresh_from_db()
    assert order.total_minor == HALF
    assert order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    assert payment_of(order).refunded_minor == HALF
    assert standing_uses() == 0


def test_a_code_of_100_percent_makes_a_free_order_that_is_confirmed_at_once(concert) -> None:
    make_code(concert, rate=10_000)
    order = place_order(seat(concert), code="HALFPRICE")
    assert (order.status, order.total_minor) == (Order.Status.CONFIRMED, 0)
    assert order.tickets.count() == 1
    assert not Payment.objects.exists()


def test_fees_and_tax_are_calculated_on_the_discounted_price(concert) -> None:
    policy = events.PricePolicy(ticket_fee_rate=1_000, order_fee_minor=100, tax_rate=2_000, tax_included=False)
    other = make_event("other", price_policy=policy)
    make_code(other, rate=5_000)
    order = place_order(seat(other), code="HALFPRICE")
    # 25.00, a ticket fee of 2.50 and an order fee of 1.00, plus 20% tax on all.
    assert order.total_minor == 3_300 + 120


def test_only_tickets_of_its_categories_are_discounted(concert) -> None:
    code = make_code(concert, rate=5_000)
    floor = next(category for category in events.list_categories(concert.id) if category.key != "Standard")
    code.categories.set([floor.id])
    order = place_order(hold(concert, seats=["hall-A-1"], ga_section="floor", ga_quantity=2), code="HALFPRICE")
    assert [line.discount_minor for line in order.lines.all()] == [0, 1_250, 1_250]
    with pytest.raises(CodeNotValid):
        place_order(seat(concert, 2), code="HALFPRICE")


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"code": "OTHER"}, CodeUnknown),
        ({"is_active": False}, CodeUnknown),
        ({"valid_from": timedelta(minutes=1)}, CodeNotValid),
        ({"valid_until": timedelta(minutes=-1)}, CodeNotValid),
    ],
)
def test_a_refused_code_keeps_the_hold_and_creates_no_order(concert, changes, refusal) -> None:
    now = clock.now()
    make_code(
        concert, **{key: now + value if isinstance(value, timedelta) else value for key, value in changes.items()}
    )
    held = seat(concert)
    with pytest.raises(refusal):
        place_order(held, code="HALFPRICE")
    assert not Order.objects.exists()
    assert reservations.get_reservation(held.id).status == "pending_payment"
    assert place_order(held).total_minor == SEAT_PRICE_MINOR


def test_a_code_of_another_event_is_unknown(concert) -> None:
    make_code(make_event("other"))
    with pytest.raises(CodeUnknown):
        place_order(seat(concert), code="HALFPRICE")


def test_an_unpaid_order_of_a_stranger_uses_up_no_code_of_the_address(concert) -> None:
    make_code(concert, uses_per_buyer_max=1)
    declined = buy(seat(concert, 1), sandbox.DECLINES, code="HALFPRICE")
    assert declined.status == Order.Status.PLACED
    assert buy(seat(concert, 2), code="HALFPRICE").total_minor == HALF
    with pytest.raises(CodeLimitReached):
        place_order(seat(concert, 3), code="HALFPRICE")
    assert_audit_clean()


def test_the_limit_per_buyer_counts_by_browser_and_by_address(concert) -> None:
    make_code(concert, uses_per_buyer_max=1)
    entry = join(concert, visitor_id="a-browser-that-buys-twice")
    buy(seat(concert, 1, entry=entry), code="HALFPRICE")
    again = join(concert, visitor_id="a-browser-that-buys-twice")
    with pytest.raises(CodeLimitReached) as refused:
        place_order(seat(concert, 2, entry=again), code="HALFPRICE", email="another@example.org")
    assert refused.value.extra == {"cap": 1}
    with pytest.raises(CodeLimitReached):
        place_order(seat(concert, 3), code="HALFPRICE")
    assert place_order(seat(concert, 4), code="HALFPRICE", email="third@example.org").total_minor == HALF


def fails(order: Order) -> None:
    backdate_pay_deadline(order)
    assert order_cancellation.fail_expired_orders() == 1


ENDINGS = {
    "canceled by its buyer": lambda order: order_cancellation.cancel_order(order.pk),
    "failed when time ran out": fails,
    "canceled by staff": lambda order: order_cancellation.refund_order(order.pk, "staff:1"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_use_of_an_ended_order_is_released(concert, ending) -> None:
    make_code(concert, uses_max=1)
    first = place_order(seat(concert, 1), sandbox.LATE, code="HALFPRICE")
    with pytest.raises(CodeUsedUp):
        place_order(seat(concert, 2), code="HALFPRICE")
    ENDINGS[ending](first)
    ENDINGS[ending](first) if ending != "failed when time ran out" else None
    assert standing_uses() == 0
    buy(seat(concert, 3), code="HALFPRICE", email="third@example.org")
    assert standing_uses() == 1


def test_a_failed_order_paid_in_time_keeps_its_discount_beyond_the_limit(concert) -> None:
    """The only use is released at the deadline and taken by another order. Then a message arrives that the first was
    paid in time: it is confirmed at its discounted price, so two orders have used a code of one use. A third is
    refused."""
    make_code(concert, uses_max=1)
    first = place_order(seat(concert, 1), sandbox.LATE, code="HALFPRICE")
    deliver_outbox()
    fails(first)
    buy(seat(concert, 2), code="HALFPRICE", email="second@example.org")
    first.refresh_from_db()
    assert receive_webhook(late_webhook(first, first.pay_deadline))
    first.refresh_from_db()
    assert (first.status, first.total_minor) == (Order.Status.CONFIRMED, HALF)
    assert first.code_use.honoured_at is not None
    assert standing_uses() == 2
    with pytest.raises(CodeUsedUp):
        place_order(seat(concert, 3), code="HALFPRICE", email="third@example.org")
    order_cancellation.refund_order(first.pk, "staff:1")
    assert standing_uses() == 1


def test_another_tab_finds_the_order_although_its_code_is_used_up(concert) -> None:
    make_code(concert, uses_max=1)
    held = seat(concert)
    order = place_order(held, code="HALFPRICE")
    assert place_order(held, code="HALFPRICE") == order
    assert place_order(held) == order
    assert standing_uses() == 1


@pytest.mark.parametrize("named", [{"code": "half price"}, {}, {"code": None}])
def test_a_payment_retry_keeps_the_code(concert, named) -> None:
    """Although the code has no use left, and its terms have changed since."""
    make_code(concert, uses_max=1)
    held = seat(concert)
    buy(held, sandbox.DECLINES, code="HALFPRICE")
    PromoCode.objects.update(rate=100)
    order = buy(held, **named)
    assert (order.status, order.total_minor, standing_uses()) == (Order.Status.CONFIRMED, HALF, 1)


def test_a_payment_retry_with_a_refused_code_changes_nothing(concert) -> None:
    make_code(concert, uses_max=1)
    make_code(concert, code="GONE", uses_max=1)
    buy(seat(concert, 2), code="GONE", email="other@example.org")
    held = seat(concert)
    order = buy(held, sandbox.DECLINES, code="HALFPRICE")
    lines = list(order.lines.values())
    for code, refusal in (("ANOTHER", CodeUnknown), ("GONE", CodeUsedUp)):
        with pytest.raises(refusal):
            place_order(held, code=code)
    order.refresh_from_db()
    assert (order.status, order.total_minor, promo_codes.used_code(order)) == (Order.Status.PLACED, HALF, "HALFPRICE")
    assert list(order.lines.values()) == lines
    assert order.payments.count() == 1
    assert buy(held).status == Order.Status.CONFIRMED


def test_each_attempt_may_have_another_code_and_is_charged_by_its_own_bill(concert) -> None:
    """Without a code, half price, a tenth off: three attempts of one order, each with its own amount. The use of a code
    that was given up is free again."""
    make_code(concert, uses_max=1)
    make_code(concert, code="TENTH", rate=1_000)
    held, tenth_off = seat(concert), SEAT_PRICE_MINOR * 9 // 10
    first = check_out(held, checkout_body(payment_method=sandbox.DECLINES), "first")
    deliver_outbox()
    second = check_out(held, checkout_body(payment_method=sandbox.DECLINES, code="HALFPRICE"), "second")
    deliver_outbox()
    assert standing_uses() == 1
    third = check_out(held, checkout_body(code="tenth"), "third")
    deliver_outbox()
    answers = [json.loads(answer.body) for answer in (first, second, third)]
    assert {answer["order_id"] for answer in answers} == {str(Order.objects.get().pk)}
    assert [answer["total_minor"] for answer in answers] == [SEAT_PRICE_MINOR, HALF, tenth_off]
    assert [payment.amount_minor for payment in Payment.objects.order_by("attempt")] == [
        SEAT_PRICE_MINOR, HALF, tenth_off,
    ]  # fmt: skip
    order = Order.objects.get()
    assert (order.status, order.total_minor, promo_codes.used_code(order)) == ("confirmed", tenth_off, "TENTH")
    assert buy(seat(concert, 2), code="HALFPRICE", email="next@example.org").total_minor == HALF
    # The same keys still get the same answers, byte for byte.
    assert check_out(held, checkout_body(payment_method=sandbox.DECLINES), "first") == first
    assert check_out(held, checkout_body(payment_method=sandbox.DECLINES, code="HALFPRICE"), "second") == second


def test_an_empty_code_gives_the_code_up(concert) -> None:
    make_code(concert, uses_max=1)
    held = seat(concert)
    buy(held, sandbox.DECLINES, code="HALFPRICE")
    order = buy(held, code="")
    assert (order.status, order.total_minor, standing_uses()) == (Order.Status.CONFIRMED, SEAT_PRICE_MINOR, 0)


def test_a_retry_with_a_code_of_100_percent_needs_no_payment(concert) -> None:
    make_code(concert, rate=10_000)
    held = seat(concert)
    buy(held, sandbox.DECLINES)
    order = place_order(held, code="HALFPRICE")
    assert (order.status, order.total_minor) == (Order.Status.CONFIRMED, 0)
    assert SandboxCharge.objects.get().status == "declined"
    # The declined charge succeeds after all: it is refunded.
    assert receive_webhook(late_webhook(order, clock.now()))
    assert (payment_of(order).captured_minor, payment_of(order).refunded_minor) == (SEAT_PRICE_MINOR, SEAT_PRICE_MINOR)
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED


def test_the_quote_of_an_order_that_can_be_retried_shows_another_codes_bill(concert) -> None:
    make_code(concert)
    held = seat(concert)
    order = buy(held, sandbox.DECLINES)
    view = selectors.get_order(order.pk)
    assert quote(held, view, {}).bill.total_minor == SEAT_PRICE_MINOR
    assert quote(held, view, {"code": "halfprice"}).bill.total_minor == HALF
    with pytest.raises(CodeUnknown):
        quote(held, view, {"code": "ANOTHER"})
    order = buy(held, sandbox.DECLINES, code="HALFPRICE")
    view = selectors.get_order(order.pk)
    assert quote(held, view, {}).contract()["code"] == "HALFPRICE"
    assert quote(held, view, {"code": ""}).bill.total_minor == SEAT_PRICE_MINOR
    order = buy(held)
    assert quote(held, selectors.get_order(order.pk), {"code": "ANOTHER"}).bill.total_minor == HALF


def test_the_auditor_finds_an_excess_use_and_a_discount_without_a_use(concert) -> None:
    code = make_code(concert, uses_max=2)
    first = place_order(seat(concert, 1), code="HALFPRICE")
    place_order(seat(concert, 2), code="HALFPRICE")
    PromoCode.objects.filter(pk=code.pk).update(uses_max=1)
    assert audit_breaches() == ["I5: code HALFPRICE: used by 2 orders, its limit is 1"]
    CodeUse.objects.filter(order=first).update(released_at=clock.now())
    assert audit_breaches() == [
        f"I4: order {first.number} is placed: discount {HALF}, by its promo code {HALF}, use counted: False"
    ]
    CodeUse.objects.filter(order=first).update(released_at=None)
    PromoCode.objects.filter(pk=code.pk).update(uses_max=2)


# --- API -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def api() -> Api:
    return Api()


def held_by_api(api: Api) -> tuple[str, str]:
    token = api.admission("concert")
    answer = api.post("/events/concert/reservations", {"seats": ["hall-A-1"]}, token=token, key="h")
    return answer.json()["reservation_id"], token


def test_a_quote_returns_the_bill_and_creates_no_order(concert, api) -> None:
    make_code(concert, rate=5_000, uses_max=1)
    reservation, token = held_by_api(api)
    path = f"/reservations/{reservation}/quote"
    plain = api.post(path, {}, token=token)
    assert (plain.status_code, plain.json()["code"], plain.json()["total_minor"]) == (200, "", SEAT_PRICE_MINOR)
    response = api.post(path, {"code": "half price"}, token=token).json()
    assert (response["code"], response["total_minor"], response["currency"]) == ("HALFPRICE", HALF, "USD")
    assert response["bill"]["discount_minor"] == HALF
    assert not CodeUse.objects.exists()
    paid = api.post(f"/reservations/{reservation}/checkout", BODY | {"code": "half price"}, token=token, key="pay")
    assert (paid.status_code, paid.json()["total_minor"]) == (202, HALF)
    again = api.post(f"/reservations/{reservation}/checkout", BODY | {"code": "half price"}, token=token, key="pay")
    assert again.content == paid.content
    # For an existing order the quote is its original bill.
    assert api.post(path, {}, token=token).json() == response


@pytest.mark.parametrize("email", [{}, [], 0, False])
def test_an_email_address_that_is_no_text_is_refused_by_a_quote(concert, api, email: Any) -> None:
    reservation, token = held_by_api(api)
    path = f"/reservations/{reservation}/quote"
    errors = assert_problem(api.post(path, {"email": email}, token=token), 422, "invalid")["errors"]
    assert errors == {"email": "must be a string"}
    assert api.post(path, {"email": None}, token=token).status_code == 200


def test_quote_and_checkout_refuse_with_the_same_types(concert, api) -> None:
    code = make_code(concert, rate=5_000, uses_max=1)
    place_order(seat(concert, 5), code="HALFPRICE")
    reservation, token = held_by_api(api)

    def responses_to(code: Any) -> list[Any]:
        return [
            api.post(f"/reservations/{reservation}/quote", {"code": code}, token=token),
            api.post(f"/reservations/{reservation}/checkout", BODY | {"code": code}, token=token, key=f"{code}"[:9]),
        ]

    for answer in responses_to("HALFPRICE"):
        assert_problem(answer, 409, "code-used-up")
    for answer in responses_to("UNKNOWNCODE"):
        assert_problem(answer, 422, "code-unknown")
    PromoCode.objects.filter(pk=code.pk).update(uses_max=None, valid_until=clock.now())
    for answer in responses_to("half price"):
        assert_problem(answer, 409, "code-not-valid")
    rate_limits.forget_everything()
    for wrong in (7, "X" * 41, ["A"]):
        for answer in responses_to(wrong):
            assert_problem(answer, 422, "invalid")
            assert "code" in answer.json()["errors"]
    assert api.get(f"/reservations/{reservation}", token=token).json()["status"] == "pending_payment"


def test_a_quote_requires_the_holder_and_known_fields(concert, api) -> None:
    reservation, token = held_by_api(api)
    path = f"/reservations/{reservation}/quote"
    assert_problem(api.post(path, {}), 401, "token-missing")
    assert_problem(api.post(path, {}, token=api.admission("concert")), 403, "not-owner")
    assert_problem(api.post(path, {"codes": ["A"]}, token=token), 422, "invalid")
    assert_problem(api.post(path, {"email": 7}, token=token), 422, "invalid")
    reservations.release(UUID(reservation), "test")
    assert_problem(api.post(path, {}, token=token), 410, "reservation-expired")


def test_attempts_to_guess_codes_are_rate_limited(concert, api, monkeypatch) -> None:
    """Attempts of one holder are counted apart from its other requests, whether the code was right or wrong."""
    reservation, token = held_by_api(api)
    checked: list[tuple[str, str]] = []

    def ask(kind: str, address: str, token: str = "") -> float | None:
        checked.append((kind, token))
        return 5.0 if kind == "code" and len([1 for each, _ in checked if each == "code"]) > 2 else None

    monkeypatch.setattr(access.rate_limits, "check_request", ask)
    path = f"/reservations/{reservation}"
    assert_problem(api.post(f"{path}/quote", {"code": "A"}, token=token), 422, "code-unknown")
    assert_problem(api.post(f"{path}/checkout", BODY | {"code": "B"}, token=token, key="b"), 422, "code-unknown")
    assert_problem(api.post(f"{path}/quote", {"code": "C"}, token=token), 429, "rate-limited")
    assert_problem(api.post(f"{path}/checkout", BODY | {"code": "D"}, token=token, key="d"), 429, "rate-limited")
    assert len({token for kind, token in checked if kind == "code"}) == 1
    assert api.post(f"{path}/checkout", BODY, token=token, key="plain").status_code == 202


# --- the page ------------------------------------------------------------------------------------------------------


def checkout_page(concert) -> tuple[Any, str]:
    browser = joined_browser(concert.slug)
    response = browser.post(
        f"/api/events/{concert.slug}/reservations",
        {"seats": ["hall-A-1"]},
        content_type="application/json",
        headers=SAME_ORIGIN | {"idempotency-key": "hold"},
    ).json()
    return browser, f"/reservations/{response['reservation_id']}/checkout"


def test_apply_shows_the_new_bill_keeps_the_input_and_creates_no_order(concert) -> None:
    make_code(concert, rate=5_000)
    browser, path = checkout_page(concert)
    form = BODY | {"idempotency_key": "one", "code_shown": "", "payment_method": sandbox.APPROVES}
    page = browser.post(path, form | {"code": "half price", "apply": "yes"}, headers=SAME_ORIGIN)
    text = page.content.decode()
    assert page.status_code == 200
    assert "Pay $25.00" in text
    assert 'value="guest@example.org"' in text
    assert 'name="code_shown" value="HALFPRICE"' in text
    assert not Order.objects.exists()
    paid = browser.post(path, form | {"code": "HALFPRICE", "code_shown": "HALFPRICE"}, headers=SAME_ORIGIN)
    assert paid.status_code == 303
    assert Order.objects.get().total_minor == HALF


def test_a_buyer_pays_only_a_price_that_the_page_showed(concert) -> None:
    """The bill was shown with a code, and the buyer clears the field before “Pay”: the full price is shown first."""
    make_code(concert, rate=5_000)
    browser, path = checkout_page(concert)
    form = BODY | {"idempotency_key": "one", "code_shown": "HALFPRICE"}
    page = browser.post(path, form | {"code": ""}, headers=SAME_ORIGIN)
    assert "Pay $50.00" in page.content.decode()
    assert not Order.objects.exists()


def test_a_code_used_up_meanwhile_is_reported_and_the_buyer_continues_without_it(concert) -> None:
    make_code(concert, rate=5_000, uses_max=1)
    browser, path = checkout_page(concert)
    form = BODY | {"idempotency_key": "one", "code_shown": "HALFPRICE", "code": "HALFPRICE"}
    place_order(seat(concert, 5), code="HALFPRICE")
    page = browser.post(path, form, headers=SAME_ORIGIN)
    text = page.content.decode()
    assert page.status_code == 409
    assert "reached its usage limit. Correct the code, or clear the field to continue without one." in text
    assert 'value="HALFPRICE"' in text
    assert "Pay $50.00" in text
    assert 'name="code_shown" value=""' in text
    assert browser.post(path, form | {"code": "", "code_shown": ""}, headers=SAME_ORIGIN).status_code == 303
    assert Order.objects.get(email=BODY["email"]).total_minor == SEAT_PRICE_MINOR


def test_other_errors_keep_the_code_and_its_bill(concert) -> None:
    make_code(concert, rate=5_000)
    browser, path = checkout_page(concert)
    form = {"email": "", "name": "A", "idempotency_key": "one", "code_shown": "HALFPRICE", "code": "HALFPRICE"}
    page = browser.post(path, form, headers=SAME_ORIGIN)
    assert page.status_code == 422
    assert "Pay $25.00" in page.content.decode()


@pytest.mark.parametrize("typed", ["X" * 41, "\N{RIGHT-TO-LEFT OVERRIDE}", "<script>"])
def test_the_page_handles_any_input(concert, typed) -> None:
    browser, path = checkout_page(concert)
    form = BODY | {"email": "\N{RIGHT-TO-LEFT OVERRIDE}", "idempotency_key": "one", "code_shown": ""}
    page = browser.post(path, form | {"code": typed, "apply": "yes"}, headers=SAME_ORIGIN)
    assert page.status_code == 422
    assert "<script>" not in page.content.decode().partition("Promo code")[2].partition("</details>")[0]
    assert "Pay $50.00" in page.content.decode()


def test_a_free_order_needs_no_payment_method(concert) -> None:
    make_code(concert, rate=10_000)
    browser, path = checkout_page(concert)
    form = BODY | {"idempotency_key": "one", "code": "HALFPRICE"}
    page = browser.post(path, form | {"apply": "yes", "code_shown": ""}, headers=SAME_ORIGIN).content.decode()
    assert "Confirm free order" in page
    assert 'name="payment_method"' not in page
    assert browser.post(path, form | {"code_shown": "HALFPRICE"}, headers=SAME_ORIGIN).status_code == 303
    assert Order.objects.get().status == Order.Status.CONFIRMED


def test_a_used_code_cannot_be_deleted(concert, admin_client) -> None:
    code = make_code(concert, uses_max=2)
    place_order(seat(concert, 1), code="HALFPRICE")
    place_order(seat(concert, 2), code="HALFPRICE")
    page = admin_client.get(f"/admin/orders/promocode/{code.pk}/change/").content.decode()
    assert 'name="rate"' not in page
    assert admin_client.get(f"/admin/orders/codeuse/?code__id__exact={code.pk}").status_code == 200
    headers = {"sec-fetch-site": "same-origin"}
    path = f"/admin/orders/promocode/{code.pk}/change/"
    refused = admin_client.post(path, {"uses_max": 1, "is_active": "on"}, headers=headers)
    assert "has been used 2 times already" in refused.content.decode()
    assert admin_client.post(path, {"uses_max": 2, "note": "Full"}, headers=headers).status_code == 302
    code.refresh_from_db()
    assert (code.is_active, code.note, code.rate) == (False, "Full", 5_000)
    assert CodeRefused.__subclasses__()


def test_codes_from_the_command_are_usable(concert, capsys) -> None:
    call_command("create_codes", "concert", "--count", "1", "--per-ticket", "1000")
    code = capsys.readouterr().out.splitlines()[1].split(",")[0]
    assert place_order(seat(concert), code=code.lower()).total_minor == SEAT_PRICE_MINOR - 1_000
