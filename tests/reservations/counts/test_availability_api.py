"""Sections for every client, seats for admitted visitors."""

from datetime import timedelta

import pytest

from apps.accounts.models import User
from apps.accounts.tokens.account_tokens import AccessToken
from apps.events import facade as events
from apps.kernel import clock
from apps.queue.models import QueueEntry
from tests.support import factories
from tests.support.api_client import Api, assert_problem

SECTIONS = "/events/concert/sections"
SEATS = f"{SECTIONS}/hall/seats"


def test_sections_show_their_counts_and_prices(api: Api, concert: events.EventView) -> None:
    factories.hold(concert, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=3)
    response = api.get(SECTIONS)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "application/json"
    assert response.json() == {
        "sections": [
            {
                "section_id": "hall",
                "name": "Hall",
                "type": "reserved",
                "total_seats": 50,
                "available_seats": 48,
                "needs_access": False,
                "prices": [{"category": "Standard", "price_minor": 5000}],
                "currency": "USD",
            },
            {
                "section_id": "floor",
                "name": "Floor",
                "type": "general_admission",
                "total_seats": 20,
                "available_seats": 17,
                "needs_access": False,
                "prices": [{"category": "Floor", "price_minor": 2500}],
                "currency": "USD",
            },
        ]
    }


def test_sections_are_publicly_cacheable_and_their_etag_changes_with_the_counts(
    api: Api, concert: events.EventView
) -> None:
    first = api.get(SECTIONS)
    assert "public" in first.headers["Cache-Control"]
    assert "max-age=1" in first.headers["Cache-Control"]
    assert "Cookie" not in first.headers.get("Vary", "")
    assert "Set-Cookie" not in first.headers
    unchanged = api.get(SECTIONS, if_none_match=first.headers["ETag"])
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["ETag"] == first.headers["ETag"]
    factories.hold(concert, ga_section="floor", ga_quantity=1)
    changed = api.get(SECTIONS, if_none_match=first.headers["ETag"])
    assert changed.status_code == 200
    assert changed.headers["ETag"] != first.headers["ETag"]


def test_an_invalid_token_is_ignored_for_sections(api: Api, concert: events.EventView) -> None:
    assert api.get(SECTIONS, token="anything").status_code == 200


def test_admitted_visitors_see_every_seat_page_by_page(api: Api, concert: events.EventView) -> None:
    token = api.admission("concert")
    factories.hold(concert, seats=["hall-A-2"])
    response = api.get(f"{SEATS}?page_size=3", token=token)
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    page = response.json()
    assert (page["page"], page["page_size"], page["total"]) == (1, 3, 50)
    assert page["seats"] == [
        {
            "seat_id": f"hall-A-{number}",
            "row": "A",
            "number": str(number),
            "category": "Standard",
            "status": "held" if number == 2 else "available",
            "accessible": False,
        }
        for number in (1, 2, 3)
    ]
    seen = [
        seat["seat_id"]
        for number in range(1, 18)
        for seat in api.get(f"{SEATS}?page={number}&page_size=3", token=token).json()["seats"]
    ]
    assert len(seen) == len(set(seen)) == 50
    assert api.get(f"{SEATS}?page=99", token=token).json()["seats"] == []
    assert len(api.get(f"{SEATS}?page_size=500", token=token).json()["seats"]) == 50


def test_a_general_admission_section_has_no_seats(api: Api, concert: events.EventView) -> None:
    page = api.get(f"{SECTIONS}/floor/seats", token=api.admission("concert")).json()
    assert (page["seats"], page["total"]) == ([], 0)


@pytest.mark.parametrize(
    "query",
    [
        "page=0", "page=-1", "page=x", "page=", "page=1.5", "page=1e3", "page=%D9%A1", "page=%00", "page=+1",
        "page=99999999999999999999", "page=100001", "page_size=0", "page_size=501", "page_size=1000000000",
        "page_size=null", "page_size=%F0%9F%8E%AB",
    ],
)  # fmt: skip
def test_an_invalid_page_is_refused_by_name(api: Api, concert: events.EventView, query: str) -> None:
    document = assert_problem(api.get(f"{SEATS}?{query}", token=api.admission("concert")), 422, "invalid")
    assert list(document["errors"]) == [query.partition("=")[0]]


def test_visitors_who_are_not_admitted_see_no_seats(api: Api, concert: events.EventView) -> None:
    assert_problem(api.get(SEATS), 401, "token-missing")
    access = str(AccessToken.for_user(User.objects.create_user("ann@example.org")))
    refused = api.get(SEATS, token=access)
    assert_problem(refused, 429, "not-admitted")
    assert int(refused.headers["Retry-After"]) > 0
    token = api.admission("concert")
    QueueEntry.objects.update(admission_expires_at=clock.now() - timedelta(seconds=1))
    assert_problem(api.get(SEATS, token=token), 410, "admission-expired")
    factories.make_event("opera")
    assert_problem(api.get(SEATS, token=api.admission("opera")), 403, "token-wrong-event")


def test_unknown_sections_are_not_found(api: Api, concert: events.EventView) -> None:
    token = api.admission("concert")
    assert_problem(api.get(f"{SECTIONS}/nowhere/seats", token=token), 404, "not-found")
    assert_problem(api.get("/events/nowhere/sections"), 404, "not-found")
    assert_problem(api.get(f"{SECTIONS}/updated"), 404, "not-found")
