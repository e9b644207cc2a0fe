"""POST a reservation: every kind of demand and every refusal."""

import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils.dateparse import parse_datetime

from apps.accounts.models import User
from apps.accounts.tokens.account_tokens import AccessToken
from apps.events import facade as events
from apps.events.models import OnSale
from apps.kernel import clock
from apps.queue.models import QueueEntry
from apps.reservations import async_views
from apps.reservations.models import Reservation
from tests.support import factories
from tests.support.api_client import Api, assert_problem

HOLD = "/events/concert/reservations"
FIELDS = {
    "reservation_id", "reserved_until", "seats", "ga_section", "ga_quantity", "total_minor", "currency", "status",
}  # fmt: skip


def hold(api: Api, token: str, key: str = "", path: str = HOLD, **body: Any) -> Any:
    return api.post(path, body, token=token, key=key or uuid.uuid4().hex)


def test_named_seats_and_general_admission_in_one_reservation(api: Api, concert: events.EventView) -> None:
    response = hold(api, api.admission("concert"), seats=["hall-B-3", "hall-B-2"], ga_section="floor", ga_quantity=2)
    assert response.status_code == 201
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Cache-Control"] == "no-store"
    answer = response.json()
    assert answer.keys() == FIELDS
    assert sorted(answer["seats"]) == ["hall-B-2", "hall-B-3"]
    assert (answer["ga_section"], answer["ga_quantity"]) == ("floor", 2)
    assert (answer["total_minor"], answer["currency"], answer["status"]) == (15_000, "USD", "pending_payment")
    until = parse_datetime(answer["reserved_until"])
    assert until is not None
    assert timedelta(minutes=9) < until - clock.now() <= timedelta(minutes=10)


def test_seats_alone_show_no_general_admission(api: Api, concert: events.EventView) -> None:
    answer = hold(api, api.admission("concert"), seats=["hall-A-1"]).json()
    assert (answer["ga_section"], answer["ga_quantity"]) == (None, 0)


def test_best_available_gives_neighboring_seats(api: Api, concert: events.EventView) -> None:
    answer = hold(api, api.admission("concert"), best_available={"section": "hall", "quantity": 3}).json()
    rows = {seat.rsplit("-", 1)[0] for seat in answer["seats"]}
    numbers = sorted(int(seat.rsplit("-", 1)[1]) for seat in answer["seats"])
    assert len(rows) == 1
    assert numbers == list(range(numbers[0], numbers[0] + 3))


def test_the_work_of_best_seats_anywhere_in_an_event_with_many_areas_is_limited(
    concert: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[tuple[str, int]] = []

    def check(kind: str, address: str, count: int) -> float | None:
        counted.append((kind, count))
        return 7.0 if count else None

    monkeypatch.setattr(async_views.rate_limits, "check_work", check)
    api = Api(through_fast_path=True)
    token = api.admission("concert")
    assert hold(api, token, best_available={"quantity": 1}).status_code == 201
    assert counted == [("hold", 0)]
    monkeypatch.setattr(async_views, "AREAS_OF_A_HOLD", 1)
    for refused in ({"quantity": 1}, {"quantity": 1, "price_max_minor": 9_999}):
        answer = hold(api, token, best_available=refused)
        assert_problem(answer, 429, "rate-limited")
        assert int(answer.headers["Retry-After"]) >= 7
    assert counted == [("hold", 0), ("hold", 1), ("hold", 1)]
    for allowed in ({"best_available": {"section": "hall", "quantity": 1}}, {"ga_section": "floor", "ga_quantity": 1}):
        assert hold(api, api.admission("concert"), **allowed).status_code in (201, 409)
    assert len(counted) == 3


def test_a_signed_in_user_holds_with_an_access_token(api: Api, concert: events.EventView) -> None:
    user = User.objects.create_user("ann@example.org")
    access = str(AccessToken.for_user(user))
    api.post("/events/concert/queue", token=access)
    assert hold(api, access, seats=["hall-A-1"]).status_code == 201
    assert Reservation.objects.get().account_id == user.pk


def test_the_same_key_gives_the_same_bytes(api: Api, concert: events.EventView) -> None:
    token = api.admission("concert")
    first = hold(api, token, "key-1", seats=["hall-A-1"])
    again = hold(api, token, "key-1", seats=["hall-A-1"])
    assert (again.status_code, again.content) == (201, first.content)
    assert Reservation.objects.count() == 1


def test_a_lost_response_is_repeated_after_the_admission_has_expired(api: Api, concert: events.EventView) -> None:
    token = api.admission("concert")
    first = hold(api, token, "key-1", seats=["hall-A-1"])
    past = clock.now() - timedelta(seconds=1)
    QueueEntry.objects.update(admission_expires_at=past, busy_until=past)
    assert hold(api, token, "key-1", seats=["hall-A-1"]).content == first.content


def test_the_same_key_with_another_body_is_refused(api: Api, concert: events.EventView) -> None:
    token = api.admission("concert")
    hold(api, token, "key-1", seats=["hall-A-1"])
    assert_problem(hold(api, token, "key-1", seats=["hall-A-2"]), 422, "idempotency-mismatch")


def test_two_buyers_may_use_the_same_key(api: Api, concert: events.EventView) -> None:
    assert hold(api, api.admission("concert"), "key-1", seats=["hall-A-1"]).status_code == 201
    assert hold(api, api.admission("concert"), "key-1", seats=["hall-A-2"]).status_code == 201


@pytest.mark.parametrize("key", ["", "   "])
def test_without_a_key_nothing_is_held(api: Api, concert: events.EventView, key: str) -> None:
    response = api.post(HOLD, {"seats": ["hall-A-1"]}, token=api.admission("concert"), key=key)
    assert_problem(response, 400, "idempotency-key-required")


@pytest.mark.parametrize("key", ["x" * 201, "tab\tinside", "é" * 3])
def test_an_invalid_key_is_refused(api: Api, concert: events.EventView, key: str) -> None:
    assert_problem(hold(api, api.admission("concert"), key, seats=["hall-A-1"]), 422, "invalid")


def test_an_unavailable_seat_is_named(api: Api, concert: events.EventView) -> None:
    factories.hold(concert, seats=["hall-A-1", "hall-A-2"])
    refused = hold(api, api.admission("concert"), seats=["hall-A-2", "hall-A-3", "hall-A-1"])
    document = assert_problem(refused, 409, "seats-unavailable")
    assert sorted(document["unavailable"]) == ["hall-A-1", "hall-A-2"]


def test_demand_above_what_is_left_gets_the_number_left(api: Api, db: None) -> None:
    event = factories.make_event("concert", rows=0, general_admission=5)
    factories.hold(event, ga_section="floor", ga_quantity=3)
    refused = hold(api, api.admission("concert"), ga_section="floor", ga_quantity=3)
    assert assert_problem(refused, 409, "not-enough-left")["available"] == 2


def test_sold_out_is_reported_when_nothing_is_left(api: Api, db: None) -> None:
    event = factories.make_event("concert", rows=0, general_admission=5)
    factories.hold(event, ga_section="floor", ga_quantity=5)
    assert_problem(hold(api, api.admission("concert"), ga_section="floor", ga_quantity=1), 409, "sold-out")


def test_a_buyer_has_one_live_reservation_at_a_time(api: Api, concert: events.EventView) -> None:
    token = api.admission("concert")
    first = hold(api, token, seats=["hall-A-1"]).json()
    document = assert_problem(hold(api, token, seats=["hall-A-2"]), 409, "reservation-exists")
    assert document["reservation"] == first["reservation_id"]


def test_the_cap_of_a_buyer_is_reported(api: Api, db: None) -> None:
    factories.make_event("concert", per_buyer_max=2)
    refused = hold(api, api.admission("concert"), seats=["hall-A-1", "hall-A-2", "hall-A-3"])
    assert assert_problem(refused, 409, "purchase-cap")["cap"] == 2


def test_after_the_end_of_sales_nothing_is_held(api: Api, concert: events.EventView) -> None:
    token = api.admission("concert")
    now = clock.now()
    OnSale.objects.update(opens_at=now - timedelta(hours=1), closes_at=now - timedelta(seconds=1))
    assert_problem(hold(api, token, seats=["hall-A-1"]), 409, "not-on-sale")


def test_a_buyer_must_be_identified_admitted_and_in_time(api: Api, concert: events.EventView) -> None:
    body = {"seats": ["hall-A-1"]}
    assert_problem(api.post(HOLD, body, key="k"), 401, "token-missing")
    assert_problem(api.post(HOLD, body, key="k", token="x"), 401, "token-invalid")
    access = str(AccessToken.for_user(User.objects.create_user("ann@example.org")))
    refused = api.post(HOLD, body, key="k", token=access)
    assert_problem(refused, 429, "not-admitted")
    assert "Retry-After" in refused.headers
    factories.make_event("opera")
    assert_problem(api.post(HOLD, body, key="k", token=api.admission("opera")), 403, "token-wrong-event")
    token = api.admission("concert")
    QueueEntry.objects.update(admission_expires_at=clock.now() - timedelta(seconds=1))
    assert_problem(api.post(HOLD, body, key="k", token=token), 410, "admission-expired")
    assert not Reservation.objects.exists()


def test_a_queue_token_holds_as_an_admission_token_does(api: Api, concert: events.EventView) -> None:
    assert hold(api, api.join("concert")["queue_token"], seats=["hall-A-1"]).status_code == 201


def test_a_visitor_who_has_left_holds_nothing(api: Api, concert: events.EventView) -> None:
    token = api.admission("concert")
    api.delete("/events/concert/queue", token=token)
    assert_problem(hold(api, token, seats=["hall-A-1"]), 410, "admission-expired")


BEST = {"section": "hall", "quantity": 2}
UNACCEPTABLE: list[tuple[Any, str]] = [
    ([], "body"),
    ("hall-A-1", "body"),
    (7, "body"),
    ({}, "body"),
    ({"seats": []}, "body"),
    ({"seats": None}, "body"),
    ({"seats": "hall-A-1"}, "seats"),
    ({"seats": {"hall-A-1": True}}, "seats"),
    ({"seats": [1]}, "seats"),
    ({"seats": [None]}, "seats"),
    ({"seats": [["hall-A-1"]]}, "seats"),
    ({"seats": [True]}, "seats"),
    ({"seats": [""]}, "seats"),
    ({"seats": ["nowhere-1"]}, "seats"),
    ({"seats": ["x" * 10_000]}, "seats"),
    ({"seats": ["hall-A-1", "hall-A-1"]}, "seats"),
    ({"seats": [f"hall-A-{number}" for number in range(1, 10)]}, "seats"),
    ({"seats": ["hall-A-1"] * 900}, "seats"),
    ({"seats": ["hall-A-1"], "color": "red"}, "color"),
    ({"seats": ["hall-A-1"], "__proto__": {}}, "__proto__"),
    *[
        ({"seats": ["hall-A-1"], "replace": replaced}, "replace")
        for replaced in ("", "x", 1, True, [], {}, f"{{{uuid.UUID(int=1)}}}", uuid.UUID(int=1).hex, "é")
    ],
    ({"ga_section": "floor"}, "ga_quantity"),
    ({"ga_quantity": 1}, "ga_section"),
    ({"ga_section": "hall", "ga_quantity": 1}, "ga_section"),
    ({"ga_section": "nowhere", "ga_quantity": 1}, "ga_section"),
    ({"ga_section": ["floor"], "ga_quantity": 1}, "ga_section"),
    ({"ga_section": {"floor": 1}, "ga_quantity": 1}, "ga_section"),
    *[
        ({"ga_section": "floor", "ga_quantity": quantity}, "ga_quantity")
        for quantity in (0, -1, 1.0, 1.5, 1e300, True, False, "1", "", [1], {}, 10**18, 2**63, 10**400)
    ],
    ({"ga_section": "floor", "ga_quantity": 9}, "body"),
    ({"best_available": []}, "best_available"),
    ({"best_available": "hall"}, "best_available"),
    ({"best_available": {}}, "best_available"),
    ({"best_available": {"section": "hall"}}, "best_available"),
    ({"best_available": {"section": "", "quantity": 2}}, "best_available"),
    ({"best_available": BEST | {"price_max_minor": -1}}, "best_available"),
    ({"best_available": BEST | {"price_max_minor": 10**12 + 1}}, "best_available"),
    ({"best_available": BEST | {"price_max_minor": True}}, "best_available"),
    ({"best_available": BEST | {"price_max_minor": "50"}}, "best_available"),
    ({"best_available": BEST | {"price_max_minor": 4_999}}, "best_available"),
    ({"best_available": BEST | {"section": "floor"}}, "best_available"),
    ({"best_available": BEST | {"section": ["hall"]}}, "best_available"),
    *[
        ({"best_available": BEST | {"quantity": quantity}}, "best_available")
        for quantity in (0, -1, 2.0, True, "2", None, 10**30)
    ],
    ({"best_available": BEST | {"category": "Royal"}}, "best_available"),
    ({"best_available": BEST | {"category": 7}}, "best_available"),
    ({"best_available": BEST | {"category": ["Standard"]}}, "best_available"),
    ({"best_available": BEST | {"accessible": "yes"}}, "best_available"),
    ({"best_available": BEST | {"accessible": 1}}, "best_available"),
    ({"best_available": BEST | {"companions": 1}}, "best_available"),
    ({"best_available": BEST | {"accessible": True, "companions": 2}}, "best_available"),
    ({"best_available": BEST | {"accessible": True, "companions": True}}, "best_available"),
    ({"best_available": BEST | {"companions": []}}, "best_available"),
    ({"best_available": BEST | {"companions": 0.0}}, "best_available"),
    ({"best_available": BEST | {"row": "A"}}, "best_available"),
    ({"best_available": {"section": "hall", "quantity": 9}}, "body"),
]


@pytest.mark.parametrize(("body", "field"), UNACCEPTABLE, ids=lambda value: json.dumps(value)[:60])
def test_a_body_that_can_never_succeed_names_its_field(
    api: Api, concert: events.EventView, body: Any, field: str
) -> None:
    refused = api.post(HOLD, body, token=api.admission("concert"), key="k")
    document = assert_problem(refused, 422, "invalid")
    assert list(document["errors"]) == [field]
    assert not Reservation.objects.exists()


def test_every_wrong_field_is_named_at_once(api: Api, concert: events.EventView) -> None:
    body = {"seats": [1], "ga_section": "x", "ga_quantity": 0, "best_available": 1, "a": 1, "b": 2}
    refused = api.post(HOLD, body, token=api.admission("concert"), key="k")
    assert assert_problem(refused, 422, "invalid")["errors"].keys() == body.keys()


@pytest.mark.parametrize("api", ["fast"], indirect=True)
def test_only_new_holds_make_an_event_active(
    api: Api, concert: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    active: list[str] = []
    monkeypatch.setattr(async_views.hold_limit, "note_activity", active.append)
    assert hold(api, "", seats=["hall-A-1"]).status_code == 401
    assert hold(api, "made-up", seats=["hall-A-1"]).status_code == 401
    token = api.admission("concert")
    assert api.post(HOLD, {}, token=token, key="k").status_code == 422
    assert active == []
    for _ in range(2):
        assert api.post(HOLD, {"seats": ["hall-A-1"]}, token=token, key="k2").status_code == 201
    assert active == ["concert"]
    assert api.post(HOLD, {"seats": ["hall-A-1"]}, token=api.admission("concert"), key="k3").status_code == 409
    assert active == ["concert"]
