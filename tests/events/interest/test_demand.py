"""The organizer's page of demand, its estimate, and the waiting room's suggested rate and cap."""

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.events.facade import EventView
from apps.events.interest import demand
from apps.events.models import (
    Membership,
    MissedSearch,
    OnSale,
    Organizer,
    Role,
    ViewDay,
    ViewDisplay,
    ViewMinute,
    ViewReferrer,
)
from apps.events.search import index_writer, missed
from apps.kernel import clock
from apps.kernel.fastpath import cache
from apps.queue.facade import Caller
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.room.suggestion import suggest_limits
from tests.support import factories
from tests.support.factories import join_directly
from tests.support.queue.rooms import make_room


def staff(event: EventView, role: Role) -> Client:
    user = User.objects.create(username=f"{role}-{event.id}", is_staff=True)
    Membership.objects.create(user=user, organizer_id=event.organizer_id, role=role)
    client = Client(headers={"sec-fetch-site": "same-origin"})
    client.force_login(user)
    return client


def minute(event: EventView, counted: int, age: timedelta = timedelta(), **others: int) -> None:
    at = (clock.process_now() - age).replace(second=0, microsecond=0)
    values = dict.fromkeys(("bots", "staff", "short", "over_address_max", "repeated"), 0) | others
    ViewMinute.objects.create(event_id=event.id, minute=at, counted=counted, **values)


def close_sales(event: EventView, age: timedelta) -> None:
    OnSale.objects.filter(pk=event.id).update(opens_at=clock.process_now() + age, room_lobby_opens_at=None)


def test_the_page_shows_views_referrers_searches_and_reasons(concert: EventView) -> None:
    minute(concert, 1_234, repeated=77)
    minute(concert, 20, timedelta(days=2))
    today = clock.process_now().date()
    ViewDay.objects.create(event_id=concert.id, day=today, counted=5_678)
    ViewReferrer.objects.create(event_id=concert.id, day=today, host="news.example", counted=321)
    MissedSearch.objects.create(day=today, text="swan lake", count=3, is_common=True)
    MissedSearch.objects.create(day=today, text="ann@example.org", count=2)
    page = staff(concert, Role.FINANCE).get(f"/admin/events/event/{concert.id}/demand/").content.decode()
    for shown in ("1,234", "1,254", "5,678", "news.example", "321", "swan lake", "77"):
        assert shown in page, shown
    assert "ann@example.org" not in page, "rare searches may contain names"
    assert page.count('<svg class="plot"') == 2


def test_door_staff_and_other_organizers_do_not_see_it(concert: EventView) -> None:
    Organizer.objects.create(slug="another", name="Another")
    other = factories.make_event("other", venue="Hall", organizer="another")
    address = f"/admin/events/event/{concert.id}/demand/"
    assert staff(concert, Role.DOOR).get(address).status_code == 403
    assert staff(other, Role.ORGANIZER).get(address).status_code == 403
    assert staff(concert, Role.ORGANIZER).get("/admin/events/event/999999/demand/").status_code == 404


def test_only_the_organizer_switches_the_display_on_and_off(concert: EventView) -> None:
    address = f"/admin/events/event/{concert.id}/demand/"
    assert staff(concert, Role.READ_ONLY).post(address, {"is_on": "1"}).status_code == 403
    organizer = staff(concert, Role.ORGANIZER)
    for value, is_on in (("1", True), ("0", False)):
        assert organizer.post(address, {"is_on": value}).status_code == 302
        assert ViewDisplay.objects.get(pk=concert.id).is_on is is_on


def test_without_an_earlier_on_sale_the_estimate_states_its_assumption(db: None) -> None:
    event = make_room("soon", venue="venue-soon")
    assert demand.estimate_demand(event.id) is None, "sales are open"
    close_sales(event, timedelta(days=3))
    minute(event, 1_000)
    found: Any = demand.estimate_demand(event.id)
    assert (found.visitors, found.low, found.high) == (300, 150, 600)
    assert "1,000 views in the last 7 days." in found.basis
    assert "no earlier on-sale" in found.basis[1]


def test_an_earlier_on_sale_of_the_organizer_gives_the_ratio(db: None) -> None:
    earlier, event = make_room("earlier", venue="venue-a"), make_room("soon", venue="venue-b")
    for number in range(4):
        join_directly(earlier, Caller(visitor_id=f"visitor-{number}"))
    opened_at = clock.process_now() - timedelta(hours=2)
    OnSale.objects.filter(pk=earlier.id).update(opens_at=opened_at)
    QueueEntry.objects.filter(event_id=earlier.id).update(joined_at=opened_at + timedelta(minutes=5))
    ViewDay.objects.create(event_id=earlier.id, day=opened_at.date() - timedelta(days=3), counted=8)
    close_sales(event, timedelta(days=3))
    minute(event, 1_000)
    found: Any = demand.estimate_demand(event.id)
    assert (found.visitors, found.low, found.high) == (500, 250, 1_000)
    assert "0.50 visitors in the first hour" in found.basis[1]


@pytest.mark.parametrize(("in_lobby", "visitors"), [(0, 300), (450, 450)])
def test_the_lobby_is_the_least_and_the_room_suggests_limits(db: None, in_lobby: int, visitors: int) -> None:
    event = make_room("soon", venue="venue-soon")
    assert suggest_limits(event.id) is None
    close_sales(event, timedelta(days=3))
    minute(event, 1_000)
    WaitingRoom.objects.filter(pk=event.id).update(
        state=WaitingRoom.State.LOBBY, lobby_count=in_lobby, next_number=in_lobby + 1
    )
    estimate: Any = demand.estimate_demand(event.id)
    assert estimate.visitors == visitors
    found: Any = suggest_limits(event.id)
    buyers = -(-estimate.capacity // 2)
    assert found.active_max == max(50, min(2_000, buyers, estimate.high))
    assert found.rate_per_second == max(1, -(-found.active_max // 120))
    page = staff(event, Role.ORGANIZER).get(f"/admin/queue/waitingroom/{event.id}/change/").content.decode()
    assert f"{found.rate_per_second} a second" in page


def test_searches_without_results_are_counted_by_their_words(db: None) -> None:
    counted = missed.MissedSearches()
    for text in ("Swan  LAKE", "swan lake", "", "\u200b"):
        counted.record(text, "10.0.0.1")
    counted.write()
    for _ in range(2):
        counted.record("Swan Lake!", "10.0.0.2")
        counted.write()
    assert MissedSearch.objects.values_list("text", "count").get() == ("swan lake", 2)
    assert missed.most_missed(30, 10) == [], "two addresses only"
    # Another process: the same address is counted again, and is still the same one.
    other = missed.MissedSearches()
    for address in ("10.0.0.1", "2001:db8::1", "2001:db8::2"):
        other.record("swan lake", address)
    other.write()
    row = MissedSearch.objects.get()
    assert (row.count, row.is_common, row.addresses) == (4, True, "")
    counted.record("swan lake", "10.0.0.4")
    for number in range(5):
        counted.record("giselle", f"10.0.1.{number}")
    counted.write()
    assert missed.most_missed(30, 10) == [missed.Missed("giselle", 5), missed.Missed("swan lake", 5)]


def test_one_address_puts_few_texts_on_the_list_of_searches(db: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(missed, "ADDRESS_TEXTS_MAX", 3)
    counted = missed.MissedSearches()
    for number in range(10):
        counted.record(f"insult {number}", "10.0.0.1")
    counted.record("giselle", "10.0.0.2")
    counted.write()
    assert MissedSearch.objects.count() == 4


def test_a_search_on_the_catalog_that_finds_nothing_is_recorded(concert: EventView, monkeypatch: Any) -> None:
    while index_writer.index_changes():
        pass
    cache.clear_all()
    monkeypatch.setattr(missed, "WRITE_SECONDS", 0.0)
    Client().get("/?q=zzyzxqqq")
    Client().get("/api/search?q=zzyzxqqq")
    Client().get("/?q=concert")
    Client().get("/?q=concert&price_max=0")
    assert list(MissedSearch.objects.values_list("text", "count")) == [("zzyzxqqq", 1)], "once from one address"


@pytest.mark.django_db
def test_days_whose_counts_by_minute_are_gone_are_plotted_from_the_counts_by_day(concert: EventView) -> None:
    close_sales(concert, -timedelta(days=20))
    today = clock.process_now().date()
    for age, counted in ((25, 7), (40, 50), (60, 900)):
        ViewDay.objects.create(event_id=concert.id, day=today - timedelta(days=age), counted=counted)
    minute(concert, 7, timedelta(days=25))
    assert demand.read_demand(concert.id, ZoneInfo("UTC")).days_plot.total == 57, "once each; the last is too old"
