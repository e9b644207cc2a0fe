"""Any value in place of a token or cookie is refused with a client error, and grants nothing."""

import base64
import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.tokens import jwt, keys
from apps.queue.identity.caller import PLACE_COOKIE, VISITOR_COOKIE, issue_queue_token
from apps.queue.models import QueueEntry
from apps.reservations.models import Reservation
from tests.support import factories
from tests.support.api_client import PROBLEM, Api
from tests.support.tiers import examples

pytestmark = pytest.mark.django_db
fuzz = settings(
    max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

UNKNOWN = "00000000-0000-4000-8000-000000000000"
# Text that a header can carry: the server refuses line ends and NUL earlier.
header_text = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=300)
segments = st.binary(max_size=80).map(lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("="))
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=5), scalars, max_size=3)
claims = st.dictionaries(st.sampled_from(["typ", "sub", "aud", "exp", "iat", "num", "who"]), values).flatmap(
    lambda odd: st.just({"typ": "queue", "sub": UNKNOWN, "aud": "concert", "exp": 4_000_000_000} | odd)
)


@pytest.fixture
def stranger(concert: events.EventView) -> events.EventView:
    """Another buyer is admitted and holds a seat."""
    factories.hold(concert, seats=["hall-A-1"])
    return concert


def ask_everywhere(client: Client, **headers: str) -> None:
    """Call every address that takes a token, and require that nothing is granted."""
    entries = list(QueueEntry.objects.order_by("pk").values())
    reservation = Reservation.objects.get()
    api = Api(client)
    calls = [
        ("GET", "/events/concert/queue/status", None),
        ("DELETE", "/events/concert/queue", None),
        ("POST", "/events/concert/reservations", {"seats": ["hall-A-2"]}),
        ("GET", "/events/concert/sections/hall/seats", None),
        ("GET", f"/reservations/{reservation.pk}", None),
        ("DELETE", f"/reservations/{reservation.pk}", None),
        ("GET", "/events/concert/queue/receipt", None),
    ]
    for method, path, body in calls:
        response = api.call(method, path, body, key="k", sec_fetch_site="same-origin", **headers)
        assert 400 <= response.status_code < 500, (method, path, response.status_code, response.content)
        assert response.headers["Content-Type"] == PROBLEM
    orders = api.get("/orders", **headers)
    assert 400 <= orders.status_code < 500 or orders.json() == {"orders": []}, "an anonymous caller has no orders"
    assert list(QueueEntry.objects.order_by("pk").values()) == entries
    assert Reservation.objects.get().status == reservation.status


@fuzz
@given(header_text | st.builds("Bearer {}".format, header_text) | st.builds("bearer {}".format, header_text))
def test_any_authorization_header_is_refused(stranger: events.EventView, header: str) -> None:
    ask_everywhere(Client(), authorization=header)


@fuzz
@given(st.lists(segments, min_size=1, max_size=4).map(".".join))
def test_any_bytes_between_dots_are_refused(stranger: events.EventView, token: str) -> None:
    ask_everywhere(Client(), authorization=f"Bearer {token}")


@fuzz
@given(position=st.integers(0, 500), char=st.characters(min_codepoint=33, max_codepoint=126))
def test_any_change_to_a_valid_token_is_refused(stranger: events.EventView, position: int, char: str) -> None:
    entry = QueueEntry.objects.get()
    good = issue_queue_token(entry.pk, "concert", entry.number)
    position %= len(good)
    token = good[:position] + char + good[position + 1 :]
    if token != good:
        ask_everywhere(Client(), authorization=f"Bearer {token}")


@fuzz
@given(claims)
def test_unexpected_claims_signed_with_our_key_grant_nothing(stranger: events.EventView, odd: dict[str, Any]) -> None:
    """No client has the key. Even signed with it, unexpected claims would grant nothing."""
    key = keys.signing_key(clock.process_now())
    text = f"{key.header}.{jwt._encode(json.dumps(odd).encode())}"
    token = f"{text}.{jwt._signature(key.secret, text)}"
    ask_everywhere(Client(), authorization=f"Bearer {token}")
    client = Client()
    client.cookies[PLACE_COOKIE] = token
    ask_everywhere(client)


@fuzz
@given(
    st.dictionaries(
        st.sampled_from([PLACE_COOKIE, VISITOR_COOKIE, "sessionid", "orders"]),
        st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters='";,\\'), max_size=200),
        min_size=1,
    )
)
def test_any_cookies_are_refused(stranger: events.EventView, cookies: dict[str, str]) -> None:
    client = Client()
    for name, value in cookies.items():
        client.cookies[name] = value
    ask_everywhere(client)


@fuzz
@given(values)
def test_any_visitor_id_is_accepted_or_refused_as_invalid(stranger: events.EventView, value: Any) -> None:
    before = QueueEntry.objects.count()
    body = json.dumps({"visitor_id": value}).encode()
    response = Api().post("/events/concert/queue", body)
    assert response.status_code in (201, 400, 422), response.content
    assert QueueEntry.objects.count() == before + (response.status_code == 201)


def test_control_a_valid_token_is_accepted(stranger: events.EventView) -> None:
    """With a valid token the same calls succeed."""
    entry = QueueEntry.objects.get()
    token = jwt.issue("queue", str(entry.pk), timedelta(hours=1), "concert", num=entry.number)
    assert Api().get("/events/concert/queue/status", token=token).json()["status"] == "ready"
