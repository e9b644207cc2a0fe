"""Trends of views: growth over an event's own week, in the search's order, on the catalog and on the event's page."""

import pytest
from django.test import Client

from apps.events.facade import EventView
from apps.events.interest import trend
from apps.events.interest.trend import points_of, update_trends
from apps.events.models import SearchDocument, ViewDay, ViewMinute, ViewTrend
from apps.events.search import index_writer
from apps.kernel import clock
from apps.kernel.fastpath import cache
from tests.support import factories
from tests.support.events.views import append, view


def viewed(event: EventView, last_hour: int, usual_hour: int = 0, address_count: int = 200) -> None:
    now = clock.process_now().replace(second=0, microsecond=0)
    ViewMinute.objects.create(
        event_id=event.id, minute=now, counted=last_hour, bots=0, staff=0, short=0, over_address_max=0, repeated=0
    )
    append([view(event.id, person=number, address=number % address_count) for number in range(last_hour)])
    ViewDay.objects.create(event_id=event.id, day=now.date().fromordinal(now.toordinal() - 1), counted=168 * usual_hour)


def test_points_are_growth_over_what_is_usual_for_the_event() -> None:
    assert [points_of(9, 0), points_of(10, 0), points_of(35, 0), points_of(10_000, 0)] == [0, 3, 6, 8]
    assert [points_of(1_000, 1_000), points_of(500, 1_000), points_of(2_000, 1_000)] == [0, 0, 2]


def test_an_event_that_grows_ranks_before_a_larger_one_that_does_not(concert: EventView) -> None:
    big = factories.make_event("big", venue="Hall")
    viewed(concert, 60, usual_hour=2)
    viewed(big, 500, usual_hour=500)
    while index_writer.index_changes():
        pass
    assert update_trends() == 2
    assert dict(ViewTrend.objects.values_list("event__slug", "points")) == {"concert": 6, "big": 0}
    assert dict(SearchDocument.objects.values_list("event_id", "trend")) == {concert.id: 6, big.id: 0}
    cache.clear_all()
    page = Client().get("/").content.decode()
    assert "Trending now" in page
    assert page.count('href="/events/concert/"') == 2
    assert page.count('href="/events/big/"') == 1
    ViewMinute.objects.all()._raw_delete(using="default")
    assert update_trends() == 0
    assert set(SearchDocument.objects.values_list("trend", flat=True)) == {0}
    cache.clear_all()
    assert "Trending now" not in Client().get("/").content.decode()


@pytest.mark.parametrize(("address_count", "points"), [(1, 0), (3, 0), (4, 4)])
def test_a_trend_needs_views_of_several_addresses(concert: EventView, address_count: int, points: int) -> None:
    viewed(concert, 18, address_count=address_count)
    update_trends()
    assert dict(ViewTrend.objects.values_list("points", "last_hour")) == {points: 18}


@pytest.mark.parametrize(("is_on", "last_hour", "shown"), [(True, 1_234, True), (True, 9, False), (False, 50, False)])
def test_a_page_shows_its_views_only_if_the_organizer_allows_it(
    concert: EventView, is_on: bool, last_hour: int, shown: bool
) -> None:
    viewed(concert, last_hour)
    update_trends()
    cache.clear_all()
    assert "in the last hour" not in Client().get("/events/concert/").content.decode()
    trend.set_display(concert.id, is_on=is_on)
    page = Client().get("/events/concert/").content.decode()
    assert ("Viewed 1,234 times in the last hour" in page) == shown
    assert ("in the last hour" in page) == shown
