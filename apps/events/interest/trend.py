"""Trends: an event's views of the last hour beside an hour of its own week, for the catalog and the search's order."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import connection

from apps.events.models import Event, ViewDisplay, ViewTrend
from apps.events.search.index_writer import report_trends
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.fastpath.cache import RefreshingCache

INTERVAL_SECONDS = 60.0
POINTS_MAX = 8
VIEWS_MIN = 10
"""Fewer views in an hour are no trend."""
ADDRESS_VIEWS_MAX = 3
"""Views of one address in an hour that a trend counts: one client could invent a trend of a small event."""
SMOOTHING = 5.0
"""Views added to both sides of the comparison, so that a few views of an event that had none are no growth."""
TRENDING_POINTS = 4
TRENDING_MAX = 4
STALE = timedelta(minutes=10)

_hourly_views = sql.load("apps.events", "hourly_views")
_view_reach = sql.load("apps.events", "view_reach")


def points_of(last_hour: int, usual_hour: float) -> int:
    """Return the points of a trend, 0 to 8: two for each doubling of what is usual."""
    if last_hour < VIEWS_MIN:
        return 0
    growth = math.log2((last_hour + SMOOTHING) / (usual_hour + SMOOTHING))
    return max(0, min(POINTS_MAX, round(2 * growth)))


def update_trends() -> int:
    """Store the trends of all events with views in the last hour, and set those of others to 0; report the points to
    the search. Return how many events have views. Two processes at once write the same."""
    with connection.cursor() as cursor:
        rows = {event_id: (int(last), usual) for event_id, last, usual in _hourly_views.rows(cursor)}
        growing = [event_id for event_id, (last, usual) in rows.items() if points_of(last, usual)]
        reach = dict(_view_reach.rows(cursor, event_ids=growing, address_max=ADDRESS_VIEWS_MAX)) if growing else {}
    known = sorted(Event.objects.filter(pk__in=list(rows)).values_list("pk", flat=True))
    now = clock.now()
    trends = [
        ViewTrend(
            event_id=pk, last_hour=last, usual_hour=usual, points=points_of(min(last, reach.get(pk, 0)), usual), at=now
        )
        for pk in known
        for last, usual in (rows[pk],)
    ]
    with transactions.write():
        # In the order of their keys, as another process would.
        ended = ViewTrend.objects.filter(last_hour__gt=0).exclude(pk__in=known)
        ended_ids = list(ended.select_for_update(no_key=True).order_by("pk").values_list("pk", flat=True))
        ViewTrend.objects.filter(pk__in=ended_ids).update(last_hour=0, points=0, at=now)
        ViewTrend.objects.bulk_create(
            trends,
            update_conflicts=True,
            unique_fields=["event"],
            update_fields=["last_hour", "usual_hour", "points", "at"],
        )
    report_trends({trend.event_id: trend.points for trend in trends if trend.points})
    return len(trends)


@dataclass(frozen=True, slots=True)
class Trending:
    """An event that is viewed much more often than usual."""

    slug: str
    name: str
    city: str


def _read_trending() -> Sequence[Trending]:
    now = clock.now()
    rows = ViewTrend.objects.filter(
        points__gte=TRENDING_POINTS, at__gt=now - STALE, event__status=Event.Status.PUBLISHED, event__starts_at__gt=now
    )
    columns = ("event__slug", "event__name", "event__venue__city")
    return tuple(
        Trending(*row) for row in rows.order_by("-points", "-last_hour", "pk").values_list(*columns)[:TRENDING_MAX]
    )


trending: RefreshingCache[None, Sequence[Trending]] = RefreshingCache(
    lambda _: _read_trending(), fresh_seconds=INTERVAL_SECONDS, stale_seconds=0.0, most=1
)
"""The events that trend most, as of a minute ago."""


def _read_shown() -> dict[int, int]:
    """Return the views of the last hour of the events that show them."""
    shown = ViewDisplay.objects.filter(is_on=True).values("pk")
    rows = ViewTrend.objects.filter(pk__in=shown, at__gt=clock.now() - STALE, last_hour__gte=VIEWS_MIN)
    return dict(rows.values_list("pk", "last_hour"))


shown_views: RefreshingCache[None, dict[int, int]] = RefreshingCache(
    lambda _: _read_shown(), fresh_seconds=INTERVAL_SECONDS, stale_seconds=0.0, most=1
)
"""Views of the last hour by event, of events whose organizer shows them; fewer than ten are not shown."""


def set_display(event_id: int, *, is_on: bool) -> None:
    """Set whether the event's page shows how often it was viewed in the last hour."""
    with transactions.write():
        ViewDisplay.objects.update_or_create(event_id=event_id, defaults={"is_on": is_on})
    shown_views.clear()
