"""The demo's events: plausible plans, prices and posters; loading them twice changes nothing."""

import json
from datetime import datetime, timedelta
from io import StringIO
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command

from apps.events import facade
from apps.events.demo.arena import arena_plan
from apps.events.demo.load import AFTERGLOW, ORCHARD, SOLSTICE, _midsummer, load_demo
from apps.events.demo.theatre import theatre_plan
from apps.events.models import Event, Seat
from apps.events.plans import Plan, parse_plan
from apps.kernel import clock
from tests.support.races import storm, values


def _parsed(document: dict) -> Plan:
    return parse_plan(json.dumps(document).encode())


def test_the_theatre_has_about_1200_seats_in_tiers_with_four_prices_and_accessible_pairs() -> None:
    plan = _parsed(theatre_plan())
    seats = [seat for section in plan.sections for seat in section.seats]
    assert 1_150 <= len(seats) <= 1_250
    assert [section.slug for section in plan.sections] == ["stalls", "boxes-left", "boxes-right", "circle", "balcony"]
    assert {seat.category for seat in seats} == {0, 1, 2, 3}
    assert sum(seat.accessible for seat in seats) == sum(seat.companion for seat in seats) >= 8
    assert not plan.notes


def test_the_arena_has_about_15000_seats_in_many_blocks_around_a_floor() -> None:
    plan = _parsed(arena_plan())
    assert 14_500 <= plan.seat_count <= 15_500
    assert len(plan.sections) > 40
    assert "Floor" in [area.text.text for area in plan.areas if area.text]


@pytest.mark.parametrize("document", [theatre_plan(), arena_plan()], ids=["theatre", "arena"])
def test_the_seats_of_a_demo_plan_do_not_overlap_and_lie_inside_it(document: dict) -> None:
    plan = _parsed(document)
    cells: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for section in plan.sections:
        for seat in section.seats:
            assert 0 < seat.x < plan.width
            assert 0 < seat.y < plan.height
            cells.setdefault((int(seat.x // 30), int(seat.y // 30)), []).append((seat.x, seat.y))
    for (column, line), spots in cells.items():
        near = [spot for dx in (0, 1) for dy in (-1, 0, 1) for spot in cells.get((column + dx, line + dy), ())]
        for x, y in spots:
            others = ((x - ox) ** 2 + (y - oy) ** 2 for ox, oy in near if (ox, oy) != (x, y))
            assert min(others, default=1e9) > 18**2


@pytest.mark.slow
@pytest.mark.django_db
def test_loading_twice_creates_the_events_once() -> None:
    assert [event.is_new for event in load_demo()] == [True, True, True]
    before = list(Event.objects.values()), Seat.objects.count()
    assert [event.is_new for event in load_demo()] == [False, False, False]
    assert (list(Event.objects.values()), Seat.objects.count()) == before


@pytest.mark.slow
@pytest.mark.django_db
def test_all_three_are_on_sale_and_the_rush_sells_ten_thousand_passes_two_per_buyer() -> None:
    call_command("load_demo", verbosity=0)
    views = {view.slug: view for view in facade.list_events()}
    assert set(views) == {ORCHARD, AFTERGLOW, SOLSTICE}
    assert set(facade.selling_event_ids()) == {view.id for view in views.values()}
    (rush,) = facade.list_sections(views[SOLSTICE].id)
    assert (rush.kind, rush.capacity) == ("general_admission", 10_000)
    assert views[SOLSTICE].policy.per_buyer_max == 2
    assert views[SOLSTICE].policy.room == facade.WaitingRoomSettings(rate_per_second=50, active_max=500)
    assert views[ORCHARD].policy.room is None
    floor = facade.list_sections(views[AFTERGLOW].id)[-1]
    assert (floor.slug, floor.kind) == ("floor", "general_admission")


@pytest.mark.slow
@pytest.mark.django_db
def test_posters_are_self_contained_and_differ() -> None:
    load_demo()
    posters = list(Event.objects.values_list("poster", flat=True))
    assert len(set(posters)) == 3
    for poster in posters:
        root = ElementTree.fromstring(poster)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "http" not in poster.replace("http://www.w3.org/2000/svg", "")
        assert "<script" not in poster


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_two_concurrent_loads_create_three_events() -> None:
    made = values(storm(2, lambda _: load_demo()))
    assert sum(event.is_new for loaded in made for event in loaded) == 3
    assert Event.objects.count() == 3


@pytest.mark.slow
@pytest.mark.django_db
def test_demo_events_that_are_over_are_listed_with_a_hint_and_left_unchanged() -> None:
    load_demo()
    assert not any(event.has_started for event in load_demo())
    Event.objects.filter(slug=ORCHARD).update(starts_at=clock.now() - timedelta(days=1), doors_at=None)
    before = list(Event.objects.order_by("pk").values())
    output = StringIO()
    call_command("load_demo", verbosity=0, stdout=output)
    (line,) = output.getvalue().splitlines()
    assert line.startswith("Already over: The Glass Orchard. `make reset`")
    assert list(Event.objects.order_by("pk").values()) == before


@pytest.mark.parametrize("day", ["2026-01-01", "2026-05-05", "2026-05-10", "2026-06-20", "2026-11-24", "2027-12-31"])
def test_the_festival_around_the_shortest_night_is_in_the_week_of_the_solstice_and_still_ahead(day: str) -> None:
    now = datetime.fromisoformat(f"{day}T12:00:00+00:00")
    starts_at = _midsummer(now, "Europe/Stockholm")
    assert starts_at - now > timedelta(days=45)
    there = starts_at.astimezone(ZoneInfo("Europe/Stockholm"))
    assert (there.weekday(), there.hour, there.month) == (3, 16, 6)
    assert 15 <= there.day <= 21
