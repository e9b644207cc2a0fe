"""A reservation as its owner reads and releases it."""

import uuid
from typing import Any

import pytest
from django.db.models import F
from django.test import Client

from apps.accounts.models import User
from apps.accounts.tokens.account_tokens import AccessToken
from apps.events import event_views
from apps.events import facade as events
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation, ReservationTransition
from tests.support import factories
from tests.support.api_client import Api, assert_problem


@pytest.fixture
def held(api: Api, concert: events.EventView) -> dict[str, Any]:
    """A live reservation's response, and the tokens of its holder."""
    place = api.join("concert")
    response = api.post(
        "/events/concert/reservations", {"seats": ["hall-A-1"]}, token=place["admission_token"], key="k"
    )
    assert response.status_code == 201, response.content
    return {**response.json(), "queue_token": place["queue_token"], "admission_token": place["admission_token"]}


@pytest.mark.parametrize("kind", ["queue_token", "admission_token"])
def test_its_owner_reads_the_response_of_the_hold(api: Api, held: dict[str, Any], kind: str) -> None:
    response = api.get(f"/reservations/{held['reservation_id']}", token=held[kind])
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    shown = response.json()
    assert shown.pop("bill")["total_minor"] == held["total_minor"]
    assert shown == {name: value for name, value in held.items() if not name.endswith("_token")}


def test_released_tickets_are_free_again_and_a_second_release_changes_nothing(api: Api, held: dict[str, Any]) -> None:
    path = f"/reservations/{held['reservation_id']}"
    for _ in range(2):
        response = api.delete(path, token=held["queue_token"])
        assert response.status_code == 200
        assert response.json()["status"] == "canceled"
    assert ReservationTransition.objects.filter(to_status="canceled").count() == 1
    assert api.get("/events/concert/sections").json()["sections"][0]["available_seats"] == 50
    factories.assert_audit_clean()


def test_past_its_deadline_it_reads_as_expired(api: Api, held: dict[str, Any]) -> None:
    factories.backdate_deadline(uuid.UUID(held["reservation_id"]))
    answer = api.get(f"/reservations/{held['reservation_id']}", token=held["queue_token"]).json()
    assert answer["status"] == "expired"
    assert answer["seats"] == ["hall-A-1"]


def test_a_reservation_in_payment_is_not_released(api: Api, held: dict[str, Any]) -> None:
    Reservation.objects.update(status="paying", pay_deadline=F("expires_at"))
    refused = api.delete(f"/reservations/{held['reservation_id']}", token=held["queue_token"])
    assert_problem(refused, 409, "payment-in-progress")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_no_other_buyer_reads_or_releases_it(api: Api, held: dict[str, Any], method: str) -> None:
    path = f"/reservations/{held['reservation_id']}"
    assert_problem(api.call(method, path), 401, "token-missing")
    assert_problem(api.call(method, path, token=api.admission("concert")), 403, "not-owner")
    access = str(AccessToken.for_user(User.objects.create_user("ann@example.org")))
    assert_problem(api.call(method, path, token=access), 403, "not-owner")
    factories.make_event("opera")
    assert_problem(api.call(method, path, token=api.admission("opera")), 403, "token-wrong-event")
    assert Reservation.objects.get().status == "pending_payment"


def test_an_accounts_reservation_is_readable_by_its_session_and_its_token(api: Api, concert: events.EventView) -> None:
    user = User.objects.create_user("ann@example.org")
    entry = factories.join(concert, account_id=user.pk)
    path = f"/reservations/{factories.hold(concert, entry, seats=['hall-A-1']).id}"
    assert api.get(path, token=str(AccessToken.for_user(user))).status_code == 200
    browser = Client()
    browser.force_login(user)
    assert browser.get(f"/api{path}").status_code == 200
    assert_problem(browser.delete(f"/api{path}"), 403, "cross-origin")
    assert browser.delete(f"/api{path}", headers={"sec-fetch-site": "same-origin"}).status_code == 200


@pytest.mark.parametrize(
    "name", [str(uuid.UUID(int=7)), "7", "%00", "x" * 5_000, "..%2f", "%ff", "00000000-0000-0000-0000-00000000000G"]
)
def test_a_missing_reservation_is_not_found(api: Api, concert: events.EventView, name: str) -> None:
    token = api.admission("concert")
    assert_problem(api.get(f"/reservations/{name}", token=token), 404, "not-found")
    assert_problem(api.delete(f"/reservations/{name}", token=token), 404, "not-found")


@pytest.mark.django_db(transaction=True)
def test_a_view_reads_only_the_sections_of_its_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkouts of all events share a batch: one of an event with 500 sections of 20 prices made it wait."""
    event = factories.make_event("concert", general_admission=5)
    held = factories.hold(event, ga_section="floor", ga_quantity=2)
    read, unobserved = [], event_views._read_sections

    def observed(**filters: Any) -> Any:
        found = list(unobserved(**filters))
        read.extend(section.slug for _, section in found)
        return found

    monkeypatch.setattr(event_views, "_read_sections", observed)
    (view,) = reservations.view_reservations(Reservation.objects.filter(pk=held.id))
    assert [(one.section, one.quantity) for one in view.general_admission] == [("floor", 2)]
    assert read == ["floor"]
