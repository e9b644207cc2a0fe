"""Catalog, event page, plan and poster: their content, visibility and caching."""

import json
from dataclasses import asdict
from xml.etree import ElementTree

import pytest
from django.test import Client

from apps.events import facade, registries, selectors
from apps.events.creation import GeneralAdmission
from apps.events.demo.arena import FLOOR, arena_plan
from apps.events.interest import rules, trend
from apps.events.models import Category, Event, OnSale
from tests.support.events.factories import block, encoded, in_days, make_event, plan

pytestmark = pytest.mark.django_db


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[int, int]]:
    """Available counts as the app above would provide them; the test fills them in."""
    counts: dict[int, dict[int, int]] = {}
    provider = [lambda ids: {pk: counts[pk] for pk in ids if pk in counts}]
    monkeypatch.setattr(registries, "_availability_providers", provider)
    return counts


def _cards(client: Client, query: str = "") -> list[dict]:
    return client.get("/", {"q": query} if query else {}).context["events"]


def test_the_catalog_shows_public_future_events_soonest_first(client: Client) -> None:
    make_event("later", name="Later", starts_at=in_days(20))
    make_event("sooner", name="Sooner", starts_at=in_days(10))
    make_event("draft", draft=True)
    past = make_event("gone", name="Gone")
    Event.objects.filter(pk=past.pk).update(starts_at=in_days(-1))
    assert [card["slug"] for card in _cards(client)] == ["sooner", "later"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("hamlet", ["hamlet"]),
        ("HAM old", ["hamlet"]),
        ("elsinore", ["hamlet"]),
        ("ham new", []),
        ("%", []),
        ("_", []),
        ("\x00", ["hamlet", "macbeth"]),
        ("a" * 5000, []),
        ("  ", ["hamlet", "macbeth"]),
    ],
)
def test_search_finds_events_that_have_every_word(client: Client, query: str, found: list[str]) -> None:
    make_event("hamlet", name="Hamlet", venue="Old Theatre", city="Elsinore", starts_at=in_days(5))
    make_event("macbeth", name="Macbeth", venue="New Theatre", city="Glamis", starts_at=in_days(6))
    listed = client.get("/api/events", {"q": query}).json()["events"]
    assert [event["event_id"] for event in listed] == found


def test_the_search_query_is_escaped(client: Client) -> None:
    response = client.get("/", {"q": "<script>alert(1)</script>"})
    assert b"<script>alert" not in response.content
    assert b"&lt;script&gt;alert" in response.content


def test_the_state_depends_on_policy_time_and_availability(client: Client, free: dict) -> None:
    event = make_event()
    section_id = facade.list_sections(event.pk)[0].id
    assert _cards(client)[0]["state"] == "on_sale"
    assert _cards(client)[0]["available"] is None
    free[event.pk] = {section_id: 3}
    assert (_cards(client)[0]["state"], _cards(client)[0]["available"]) == ("on_sale", 3)
    free[event.pk] = {section_id: 0}
    assert (_cards(client)[0]["state"], _cards(client)[0]["available"]) == ("sold_out", 0)
    OnSale.objects.update(opens_at=in_days(1))
    assert _cards(client)[0]["state"] == "upcoming"
    OnSale.objects.update(opens_at=in_days(-2), closes_at=in_days(-1))
    assert _cards(client)[0]["state"] == "closed"
    Event.objects.update(status=Event.Status.CANCELED)
    assert _cards(client)[0]["state"] == "canceled"


def test_the_page_offers_the_lobby_while_it_is_open_and_its_opening_time_before(client: Client) -> None:
    make_event(room=facade.WaitingRoomSettings(5, 50, in_days(1)), opens_at=in_days(2))
    before = client.get("/events/hamlet/")
    assert not before.context["event"]["has_open_lobby"]
    assert b"The lobby opens" in before.content
    assert b"Enter the lobby" not in before.content
    OnSale.objects.update(room_lobby_opens_at=in_days(-1))
    assert b"Enter the lobby" in client.get("/events/hamlet/").content
    OnSale.objects.update(opens_at=in_days(-1), room_lobby_opens_at=in_days(-2))
    assert b"obby" not in client.get("/events/hamlet/").content


@pytest.mark.parametrize(("seconds", "words", "minutes"), [(90, "1 min 30 s", 1), (30, "30 s", 1), (600, "10 min", 10)])
def test_the_time_to_pay_is_shown_to_the_second(client: Client, seconds: int, words: str, minutes: int) -> None:
    make_event(hold_seconds=seconds)
    assert f"{words} to pay for reserved tickets" in client.get("/events/hamlet/").content.decode()
    detail = client.get("/api/events/hamlet").json()
    assert (detail["hold_seconds"], detail["hold_minutes"]) == (seconds, minutes)


def test_the_event_page_shows_limits_sections_counts_and_prices(client: Client, free: dict) -> None:
    event = make_event(description="To be", per_buyer_max=4, hold_seconds=420)
    stalls, floor = facade.list_sections(event.pk)
    free[event.pk] = {stalls.id: 5}
    shown = client.get("/events/hamlet/").context["event"]
    assert (shown["hold_seconds"], shown["seats_per_reservation"], shown["per_buyer_cap"]) == (420, 8, 4)
    assert shown["from_price_minor"] == 2000
    seats, floor_row = shown["section_rows"]
    assert all(text in seats for text in ('"stalls"', "Reserved seating", 'max="8" value="5"', "5 left", "$45.00"))
    assert all(text in floor_row for text in ('"floor"', "Unreserved", 'max="10" value="0"', "Sold out"))
    assert floor.is_general_admission
    free[event.pk] = {stalls.id: 4, floor.id: 1_000}
    page = client.get("/events/hamlet/")
    seats, floor_row = page.context["event"]["section_rows"]
    assert "4 left" in seats
    assert "1,000 left" in floor_row
    assert seats in page.content.decode()


@pytest.mark.parametrize("page", ["", "plan.json", "poster.svg"])
def test_a_draft_and_an_unknown_event_are_not_found(client: Client, page: str) -> None:
    make_event(draft=True)
    assert client.get(f"/events/hamlet/{page}").status_code == 404
    assert client.get(f"/events/unknown/{page}").status_code == 404


def test_the_plans_columns_agree_with_each_other_and_with_the_order_of_ids(client: Client) -> None:
    document = plan([block("Stalls", 2, 4), block("Box", 1, 3, category="Box", y=400)], ("Stalls", "Box"))
    document["zones"][1]["rows"][0]["seats"][0]["accessible"] = True
    document["zones"][1]["rows"][0]["seats"][1]["companion"] = True
    event = make_event(plan=encoded(document), prices={"Stalls": 4500, "Box": 9900})
    document = client.get("/events/hamlet/plan.json").json()
    assert (document["event"], document["currency"], document["size"]) == ("hamlet", "USD", [2000, 2000])
    assert [entry["key"] for entry in document["categories"]] == ["Stalls", "Box", "Floor"]
    assert [(entry["id"], entry["capacity"]) for entry in document["sections"]] == [
        ("stalls", 8),
        ("box", 3),
        ("floor", 10),
    ]
    seats = document["seats"]
    assert {len(column) for column in seats.values()} == {11}
    by_guid = facade.seats_by_guid(event.pk, seats["id"])
    assert [by_guid[guid].id for guid in seats["id"]] == facade.seat_ids_in_plan_order(event.pk)
    assert seats["flags"][8:] == [1, 2, 0]
    assert [document["categories"][index]["price_minor"] for index in seats["category"][7:9]] == [4500, 9900]
    assert seats["section"] == [0] * 8 + [1] * 3


def test_outlines_enclose_the_seats_and_general_admission_uses_the_area_with_its_name(client: Client) -> None:
    document = plan()
    document["zones"][0]["areas"] = [
        {"shape": "rectangle", "position": {"x": 0, "y": 0}, "rectangle": {"width": 50, "height": 20},
         "text": {"text": "FLOOR", "position": {"x": 25, "y": 10}}}
    ]  # fmt: skip
    make_event(plan=encoded(document))
    stalls, floor = client.get("/events/hamlet/plan.json").json()["sections"]
    assert floor["outline"] == [[100, 100], [150, 100], [150, 120], [100, 120]]
    xs, ys = zip(*stalls["outline"], strict=True)
    assert min(xs) < 100
    assert max(xs) > 175
    assert min(ys) < 100
    assert max(ys) > 130


def test_an_event_without_seats_has_a_plan(client: Client) -> None:
    make_event(plan=None, prices={})
    document = client.get("/events/hamlet/plan.json").json()
    assert document["seats"]["id"] == []
    assert [section["id"] for section in document["sections"]] == ["floor"]


@pytest.mark.slow
def test_the_plan_of_an_arena_stays_well_under_a_megabyte(client: Client) -> None:
    prices = {"Lower bowl front": 4, "Lower bowl": 3, "Upper bowl": 2, "Upper bowl rear": 1}
    arena = json.dumps(arena_plan()).encode()
    make_event(plan=arena, prices=prices, general_admission=(GeneralAdmission(FLOOR, 2500, 5),))
    plain = client.get("/events/hamlet/plan.json")
    assert len(plain.content) < 800_000
    compressed = client.get("/events/hamlet/plan.json", headers={"Accept-Encoding": "gzip"})
    assert compressed.headers["Content-Encoding"] == "gzip"
    assert len(compressed.content) < 200_000


@pytest.mark.parametrize("page", ["plan.json", "poster.svg"])
def test_plan_and_poster_are_publicly_cacheable_and_revalidate_with_304(client: Client, page: str) -> None:
    make_event()
    first = client.get(f"/events/hamlet/{page}")
    assert "public" in first.headers["Cache-Control"]
    assert "max-age" in first.headers["Cache-Control"]
    assert "Cookie" not in first.headers.get("Vary", "")
    assert "Set-Cookie" not in first.headers
    again = client.get(f"/events/hamlet/{page}", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_price_change_is_a_new_plan_version(client: Client) -> None:
    make_event()
    first = client.get("/events/hamlet/plan.json")
    Category.objects.filter(key="Stalls").update(price_minor=1)
    again = client.get("/events/hamlet/plan.json", headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 200
    assert again.json()["categories"][0]["price_minor"] == 1


def test_an_event_without_a_poster_gets_a_generated_one_that_may_only_draw(client: Client) -> None:
    make_event(name='Hamlet & "the" <Prince>')
    response = client.get("/events/hamlet/poster.svg")
    assert response.headers["Content-Type"].startswith("image/svg+xml")
    assert ElementTree.fromstring(response.content).get("aria-label") == 'Hamlet & "the" <Prince>'
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]


def test_pages_refuse_post(client: Client) -> None:
    make_event()
    assert client.post("/events/hamlet/plan.json").status_code == 405


def test_the_api_lists_and_shows_events(client: Client, free: dict) -> None:
    event = make_event(city="Elsinore", description="To be")
    free[event.pk] = {facade.list_sections(event.pk)[0].id: 2}
    (listed,) = client.get("/api/events").json()["events"]
    assert listed["event_id"] == "hamlet"
    assert listed["venue"] == {"name": "Old Theatre", "city": "Elsinore", "timezone": "UTC"}
    assert listed["starts_at"].endswith("Z")
    assert (listed["status"], listed["available_seats"], listed["from_price_minor"]) == ("on_sale", 2, 2000)
    detail = client.get("/api/events/hamlet").json()
    assert detail == listed | {
        "description": "To be",
        "hold_minutes": 10,
        "hold_seconds": 600,
        "seats_per_reservation": 8,
        "presale": None,
        "per_buyer_cap": None,
        "price_policy": asdict(facade.PricePolicy()),
    }
    assert client.get("/api/events?q=nothing").json() == {"events": []}


def test_the_api_hides_drafts_and_ignores_tokens(client: Client) -> None:
    make_event(draft=True)
    missing = client.get("/api/events/hamlet")
    assert (missing.status_code, missing.json()["type"]) == (404, "not-found")
    assert client.get("/api/events", headers={"Authorization": "Bearer nonsense"}).status_code == 200


def test_the_catalog_takes_four_queries_for_any_number_of_events_and_aggregates_only_those_of_the_page(
    client: Client, free: dict, django_assert_num_queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cache in (trend.trending, trend.shown_views, rules.min_seconds):
        monkeypatch.setattr(cache, "fresh_seconds", 60.0)  # As in production; other tests have no caches.
    for number in range(5):
        make_event(f"night-{number}")
    # The time, the page's events, their columns, the slugs of their sections. Availability is queried by its provider.
    client.get("/")  # The search index is read once a second at most.
    with django_assert_num_queries(4):
        assert len(_cards(client)) == 5
    with django_assert_num_queries(4) as queries:
        selectors.list_catalog(offset=1, limit=2)
    (aggregated,) = [query["sql"] for query in queries if "ARRAY_AGG" in query["sql"]]
    wanted = Event.objects.filter(slug__in=["night-1", "night-2"]).order_by("slug").values_list("pk", flat=True)
    assert f'"events_event"."id" IN ({", ".join(map(str, wanted))})' in aggregated
    assert client.get("/events/night-0/").status_code == 200
    # The page, its sections, the terms of refunds. Announcements come from Redis.
    with django_assert_num_queries(3):
        assert client.get("/events/night-0/").status_code == 200


def test_a_price_of_zero_is_shown_as_free(client: Client) -> None:
    make_event("picnic", plan=None, prices={}, general_admission=(GeneralAdmission("Lawn", 9, 0),))
    for path in ("/", "/events/picnic/"):
        page = client.get(path).content.decode()
        assert "Free</" in page
        assert "$0.00" not in page
