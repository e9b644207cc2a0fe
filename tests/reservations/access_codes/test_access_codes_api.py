"""Sections that need an access code, on the site and on the fast path: refusals, attempt limits, and stored data."""

import logging
import uuid
from typing import Any

import pytest

from apps.events import facade as events
from apps.kernel import rate_limits
from apps.reservations.models import Reservation
from tests.support import factories
from tests.support.api_client import Api, assert_problem
from tests.support.reservations.gates import open_gate

HOLD = "/events/concert/reservations"
SEAT = {"seats": ["hall-A-1"]}
PLACE = {"ga_section": "floor", "ga_quantity": 1}


@pytest.fixture
def presale(db: None) -> events.EventView:
    """The floor needs a code; the hall does not."""
    return factories.make_event("concert", general_admission=20, needs_access=("floor",))


def hold(api: Api, token: str, key: str = "", **body: Any) -> Any:
    return api.post(HOLD, body, token=token, key=key or uuid.uuid4().hex)


def test_the_sections_state_which_of_them_need_a_code(api: Api, presale: events.EventView) -> None:
    sections = api.get("/events/concert/sections").json()["sections"]
    assert {one["section_id"]: (one["needs_access"], one["available_seats"]) for one in sections} == {
        "hall": (False, 50),
        "floor": (True, 20),
    }


def test_a_code_opens_its_section(api: Api, presale: events.EventView) -> None:
    factories.make_access_code(presale, "floor", uses_max=1)
    token = api.admission("concert")
    document = assert_problem(hold(api, token, **PLACE), 403, "access-code-required")
    assert document["sections"] == ["floor"]
    assert_problem(hold(api, token, **PLACE, access_code="NONSENSE"), 403, "access-code-wrong")
    response = hold(api, token, **PLACE, access_code="fan club")
    assert response.status_code == 201
    assert b"access" not in response.content.lower()
    assert b"FANCLUB" not in response.content
    other = api.admission("concert")
    assert_problem(hold(api, other, **PLACE, access_code="FANCLUB"), 409, "access-code-used-up")
    assert hold(api, other, **SEAT).status_code == 201
    factories.assert_audit_clean()


def test_the_same_key_with_the_same_code_gives_the_same_bytes(api: Api, presale: events.EventView) -> None:
    factories.make_access_code(presale)
    token = api.admission("concert")
    first = hold(api, token, "key-1", **PLACE, access_code="FANCLUB")
    again = hold(api, token, "key-1", **PLACE, access_code="FANCLUB")
    assert (again.status_code, again.content) == (201, first.content)
    assert_problem(hold(api, token, "key-1", **PLACE), 422, "idempotency-mismatch")
    assert Reservation.objects.count() == 1


def test_the_gate_answers_as_the_database_does(api: Api, presale: events.EventView) -> None:
    responses = [hold(api, api.admission("concert"), **PLACE).content]
    open_gate(presale)
    responses += [hold(api, api.admission("concert"), **PLACE).content for _ in range(2)]
    assert len(set(responses)) == 1


@pytest.mark.parametrize("unusable", [7, ["FANCLUB"], "X" * 41, "A\x07B", {"code": "FANCLUB"}])
def test_an_unusable_code_is_refused_by_its_field(api: Api, presale: events.EventView, unusable: Any) -> None:
    response = hold(api, api.admission("concert"), **SEAT, access_code=unusable)
    assert list(assert_problem(response, 422, "invalid")["errors"]) == ["access_code"]


def test_replacing_a_hold_keeps_the_code(api: Api, presale: events.EventView) -> None:
    factories.make_access_code(presale, uses_max=1)
    token = api.admission("concert")
    first = hold(api, token, **PLACE, access_code="FANCLUB").json()
    second = hold(api, token, ga_section="floor", ga_quantity=3, replace=first["reservation_id"])
    assert second.status_code == 201
    factories.assert_audit_clean()


def test_attempts_are_limited_and_holds_without_a_code_are_not(
    api: Api, presale: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    factories.make_access_code(presale)
    token = api.admission("concert")
    attempts: list[str] = []

    def ask(kind: str, address: str, named: str = "") -> float | None:
        if kind != "code":
            return None
        attempts.append(named)
        return 3.0 if len(attempts) > 1 else None

    monkeypatch.setattr(rate_limits, "check_request", ask)
    assert_problem(hold(api, token, **PLACE, access_code="GUESS1"), 403, "access-code-wrong")
    refused = hold(api, token, **PLACE, access_code="FANCLUB")
    assert_problem(refused, 429, "rate-limited")
    assert int(refused.headers["Retry-After"]) >= 3
    assert hold(api, token, **SEAT).status_code == 201
    assert len(attempts) == 2
    assert attempts[0] == attempts[1] == str(Reservation.objects.get().entry_id)


def test_no_code_is_in_any_log(
    api: Api, presale: events.EventView, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.kernel.observability import access_log

    monkeypatch.setattr(access_log, "_sample", 1.0)
    caplog.set_level(logging.DEBUG)
    factories.make_access_code(presale, code="SECRETWORD")
    token = api.admission("concert")
    for typed in ("SECRETWRONG", "SECRETWORD"):
        hold(api, token, **PLACE, access_code=typed)
    assert "SECRETW" not in caplog.text
