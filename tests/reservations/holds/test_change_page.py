"""Changing a hold: held seats stay held until the new ones are, and the page shows that."""

import re
from typing import Any

import pytest
from django.test import Client

from apps.events import facade as events
from apps.reservations.models import Reservation
from tests.reservations.holds.test_choose_page import CHOOSE, hold
from tests.support import factories

CHANGE = f"{CHOOSE}?change=1"


@pytest.fixture
def held(shopper: Client) -> Reservation:
    """The shopper holds hall-A-1 and hall-A-2."""
    hold(shopper, seats=["hall-A-1", "hall-A-2"])
    return Reservation.objects.get()


def test_the_reservation_page_leads_to_another_choice(shopper: Client, held: Reservation) -> None:
    assert CHANGE in shopper.get(f"/reservations/{held.pk}/").content.decode()
    page = shopper.get(CHANGE)
    assert page.status_code == 200
    assert page.context["selected"] == ["hall-A-1", "hall-A-2"]
    assert f'name="replace" value="{held.pk}"' in page.content.decode()
    assert page.context["choose_until"] == held.expires_at
    links = re.findall(r'href="(\?view=[^"]+)"', page.content.decode())
    assert links
    assert all(link.endswith("&amp;change=1") for link in links)


@pytest.mark.parametrize("view", ["map", "list", "best", "quantity"])
def test_every_way_to_choose_replaces_the_hold(shopper: Client, held: Reservation, view: str) -> None:
    assert f'name="replace" value="{held.pk}"' in shopper.get(f"{CHANGE}&view={view}").content.decode()


def test_a_buyers_own_seats_are_free_on_the_map_and_in_the_list(
    shopper: Client, held: Reservation, concert: events.EventView
) -> None:
    factories.hold(concert, seats=["hall-A-3"])
    rows = shopper.get(f"{CHANGE}&view=list").context["list_rows"]
    assert [seat["status"] for seat in rows[0]["seats"][:4]] == ["available", "available", "held", "available"]
    assert shopper.get(shopper.get(CHANGE).context["status_url"]).json()["taken"] == [2]


def test_another_choice_replaces_the_first(shopper: Client, held: Reservation) -> None:
    response = hold(shopper, seats=["hall-A-2", "hall-A-3"], replace=str(held.pk))
    new = Reservation.objects.get(status="pending_payment")
    assert (response.status_code, response.url) == (303, f"/reservations/{new.pk}/")
    assert new.expires_at == held.expires_at
    assert "The time to pay is the same" in shopper.get(response.url).content.decode()
    held.refresh_from_db()
    assert held.status == "canceled"
    factories.assert_audit_clean()


def test_a_buyer_too_late_for_the_new_seats_keeps_the_old_ones(
    shopper: Client, held: Reservation, concert: events.EventView
) -> None:
    factories.hold(concert, seats=["hall-A-3"])
    response = hold(shopper, view="list", seats=["hall-A-2", "hall-A-3"], replace=str(held.pk))
    assert response.status_code == 409
    assert response.context["taken_seats"]
    assert f'name="replace" value="{held.pk}"' in response.content.decode()
    assert Reservation.objects.get(pk=held.pk).status == "pending_payment"


def test_a_hold_that_has_expired_meanwhile_is_chosen_anew(shopper: Client, held: Reservation) -> None:
    factories.backdate_deadline(held.pk)
    response = hold(shopper, seats=["hall-A-2"], replace=str(held.pk))
    assert (response.status_code, response.url) == (303, CHOOSE)
    assert "Choose again" in shopper.get(CHOOSE).content.decode()


@pytest.mark.parametrize("replace", ["x", "00000000-0000-0000-0000-000000000001", "\x00"])
def test_a_manipulated_form_changes_nothing(shopper: Client, held: Reservation, replace: str) -> None:
    response: Any = hold(shopper, seats=["hall-A-3"], replace=replace)
    assert response.status_code in (303, 404, 422)
    assert Reservation.objects.get().status == "pending_payment"
