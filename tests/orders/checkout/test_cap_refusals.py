"""Refusals by purchase caps are limited, because each one says that an address has bought."""

from urllib.parse import urlencode

import pytest
from django.test import Client

from apps.kernel import rate_limits
from apps.orders.models import Order
from tests.support.api_client import Api, assert_problem
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy, joined_browser

pytestmark = pytest.mark.django_db(transaction=True)
BUYERS = ["first@example.org", "second@example.org"]
HELD = {"ga_section": "floor", "ga_quantity": 1}


@pytest.fixture
def _one_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two addresses have reached the limit of tickets; a queue entry may be refused once."""
    event = make_event("concert", per_buyer_max=1, general_admission=20)
    for number, email in enumerate(BUYERS, 1):
        buy(hold(event, seats=[f"hall-A-{number}"]), email=email)
    limits = rate_limits.Limits({"code": (None, (0.001, 1))})
    monkeypatch.setattr(rate_limits, "attempt_wait", limits.attempt_wait)
    monkeypatch.setattr(rate_limits, "record_attempt", limits.record_attempt)


@pytest.mark.usefixtures("_one_refusal")
def test_a_reservation_learns_of_few_addresses_that_they_reached_the_limit() -> None:
    api = Api()
    token = api.admission("concert")
    held = api.post("/events/concert/reservations", HELD, token=token, key="h")
    path = f"/reservations/{held.json()['reservation_id']}/checkout"
    answers = [api.post(path, {"email": email, "name": "A"}, token=token, key=email) for email in BUYERS]
    assert_problem(answers[0], 409, "purchase-cap")
    assert_problem(answers[1], 429, "rate-limited")
    unknown = api.post(path, {"email": "new@example.org", "name": "A"}, token=token, key="new")
    assert_problem(unknown, 429, "rate-limited")
    assert Order.objects.count() == len(BUYERS), "the answer is the same for an address that has bought nothing"
    neighbor = api.admission("concert")
    held = api.post("/events/concert/reservations", HELD, token=neighbor, key="h")
    path = f"/reservations/{held.json()['reservation_id']}/checkout"
    paid = api.post(path, {"email": "new@example.org", "name": "A"}, token=neighbor, key="new")
    assert paid.status_code == 202, "another visitor at the same address is not limited"
    assert_audit_clean()


@pytest.mark.usefixtures("_one_refusal")
def test_the_page_limits_these_refusals_too_and_names_the_limit_beside_no_code() -> None:
    browser: Client = joined_browser("concert")
    held = browser.post(
        "/api/events/concert/reservations", HELD, "application/json", headers={**SAME_ORIGIN, "Idempotency-Key": "h"}
    )
    path = f"/reservations/{held.json()['reservation_id']}/checkout"
    statuses = []
    for email in BUYERS:
        fields = {"email": email, "name": "A", "idempotency_key": email}
        page = browser.post(path, urlencode(fields), "application/x-www-form-urlencoded", headers=SAME_ORIGIN)
        statuses.append(page.status_code)
    assert statuses == [409, 429]
    assert "Too many requests came from your connection" in page.content.decode()
