"""What an organizer sees of the demand for an event: views, referrers, searches without results, the lobby, and an
estimate of the visitors at the opening of sales."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Sum
from django.db.models.functions import TruncDate

from apps.events import registries
from apps.events.interest.counts import VERDICTS
from apps.events.interest.log import LOG_DAYS
from apps.events.models import Event, OnSale, Section, ViewDay, ViewMinute, ViewReferrer
from apps.events.registries import RoomInterest
from apps.events.search.missed import Missed, most_missed
from apps.kernel import clock
from apps.kernel.plots import bar_plot
from apps.kernel.plots.bar_plot import Period, Plot

DAYS = 30
REFERRERS_SHOWN = SEARCHES_SHOWN = 10
WEEK = timedelta(days=7)
EARLIER_EVENTS_MAX = 20
EARLIER_SINCE = timedelta(days=730)
ASSUMED_VISITORS_PER_VIEW = 0.3
"""Visitors in the first hour of sales for each view of the week before, while the organizer has no earlier on-sale."""
SPREAD = 2.0
"""The estimate's range with no more than two earlier on-sales."""
HOUR = timedelta(hours=1)
REFUSED_NAMES = {
    "bots": "bots", "staff": "staff of the organizer", "short": "left too soon",
    "over_address_max": "too many from an address", "repeated": "the same person again",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Estimate:
    """How many visitors to expect in the first hour of sales, and on which basis, in sentences."""

    visitors: int
    low: int
    high: int
    capacity: int
    """Seats and tickets of the event."""
    basis: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Demand:
    """The figures of one event. Views are those that count."""

    at: datetime
    last_hour: int
    week: int
    total: int
    refused: tuple[tuple[str, int], ...]
    """Views of the last 30 days that do not count, by reason."""
    referrers: tuple[tuple[str, int], ...]
    """Views of the last 30 days by host; an empty host: opened directly."""
    searches: tuple[Missed, ...]
    room: RoomInterest | None
    estimate: Estimate | None
    """None once sales have opened."""
    hour_plot: Plot
    days_plot: Plot


def read_demand(event_id: int, zone: ZoneInfo) -> Demand:
    """Return the demand for the event, now."""
    now = clock.now()
    sums = ViewMinute.objects.filter(event_id=event_id).aggregate(
        **{verdict: Sum(verdict) for verdict in VERDICTS if verdict != "counted"}
    )
    referrers = ViewReferrer.objects.filter(event_id=event_id, day__gt=now.date() - timedelta(days=DAYS))
    by_host = referrers.values("host").annotate(sum=Sum("counted")).order_by("-sum", "host")
    room = registries.room_interest(event_id)
    hour_plot = _hour_plot(event_id, now, zone)
    return Demand(
        at=now,
        last_hour=hour_plot.total,
        week=_views(event_id, now - WEEK, now),
        total=ViewDay.objects.filter(event_id=event_id).aggregate(sum=Sum("counted"))["sum"] or 0,
        refused=tuple((name, sums[verdict]) for verdict, name in REFUSED_NAMES.items() if sums[verdict]),
        referrers=tuple(by_host.values_list("host", "sum")[:REFERRERS_SHOWN]),
        searches=tuple(most_missed(DAYS, SEARCHES_SHOWN)),
        room=room,
        estimate=estimate_demand(event_id),
        hour_plot=hour_plot,
        days_plot=_days_plot(event_id, now, zone),
    )


def _views(event_id: int, since: datetime, until: datetime) -> int:
    rows = ViewMinute.objects.filter(event_id=event_id, minute__gte=since, minute__lt=until)
    return rows.aggregate(sum=Sum("counted"))["sum"] or 0


def _hour_plot(event_id: int, now: datetime, zone: ZoneInfo) -> Plot:
    period = bar_plot.last_period(now, 60, 60)
    rows = ViewMinute.objects.filter(event_id=event_id, minute__gte=period.since, counted__gt=0).order_by("minute")
    return bar_plot.draw(list(rows.values_list("minute", "counted")), period, zone)


def _days_plot(event_id: int, now: datetime, zone: ZoneInfo) -> Plot:
    """Return the plot of the last days, or of those before sales opened if these are over, on the venue's calendar. The
    counts by minute are kept for LOG_DAYS only; days before have their counts by day, which are days in UTC."""
    opens_at = OnSale.objects.filter(event_id=event_id).values_list("opens_at", flat=True).first()
    last = now if opens_at is None else min(now, max(opens_at, now - timedelta(days=DAYS - 1)))
    first_day = last.astimezone(zone).date() - timedelta(days=DAYS - 1)
    since = datetime.combine(first_day, time(), zone).astimezone(UTC)
    rows = ViewMinute.objects.filter(event_id=event_id, minute__gte=since)
    by_day = rows.annotate(day=TruncDate("minute", tzinfo=zone)).values("day").annotate(sum=Sum("counted"))
    by_minutes = {day: count for day, count in by_day.values_list("day", "sum") if count}
    first_whole = (now - timedelta(days=LOG_DAYS)).astimezone(zone).date() + timedelta(days=1)
    older = ViewDay.objects.filter(event_id=event_id, day__gte=first_day, day__lt=first_whole, counted__gt=0)
    counted = dict(older.values_list("day", "counted"))
    counted |= {day: count for day, count in by_minutes.items() if day >= first_whole}
    period = Period(since, 86_400, DAYS)
    # Two hours after the n-th multiple of 24 hours is within the n-th day also if the clocks change in between.
    bins = [(since + timedelta(days=(day - first_day).days, hours=2), counted[day]) for day in sorted(counted)]
    return bar_plot.draw(bins, period, zone)


def estimate_demand(event_id: int) -> Estimate | None:
    """Return how many visitors to expect in the first hour of sales; None for a draft without an on-sale, and once
    sales have opened.

    The views of the last seven days are multiplied by what the organizer's earlier on-sales had in their first hour for
    each view of the week before. Those who wait in the lobby are the least.
    """
    now = clock.now()
    event = Event.objects.select_related("on_sale", "organizer").filter(pk=event_id, on_sale__opens_at__gt=now).first()
    if event is None:
        return None
    views = _views(event_id, now - WEEK, now)
    ratios = _earlier_ratios(event.organizer_id, event_id, now)
    if ratios:
        ratio = sum(joined for joined, _ in ratios) / sum(viewed for _, viewed in ratios)
        each = [joined / viewed for joined, viewed in ratios]
        low, high = (min(each), max(each)) if len(each) > 2 else (ratio / SPREAD, ratio * SPREAD)
        source = (
            f"{len(ratios)} earlier on-sale{'' if len(ratios) == 1 else 's'} of {event.organizer.name} had {ratio:.2f} "
            "visitors in the first hour for each view of the week before."
        )
    else:
        ratio, low, high = (
            ASSUMED_VISITORS_PER_VIEW,
            ASSUMED_VISITORS_PER_VIEW / SPREAD,
            ASSUMED_VISITORS_PER_VIEW * SPREAD,
        )
        source = (
            f"{event.organizer.name} has no earlier on-sale with figures, so {ratio:g} visitors in the first hour are "
            "assumed for each view of the week before."
        )
    room = registries.room_interest(event_id)
    lobby = 0 if room is None else max(room.in_lobby, room.sign_ups)
    basis = [f"{views:,} view{'' if views == 1 else 's'} in the last 7 days.", source]
    if lobby:
        basis.append(f"{lobby:,} in the lobby or signed up: the estimate is not below that.")
    capacity = Section.objects.filter(event_id=event_id).aggregate(sum=Sum("capacity"))["sum"] or 0
    return Estimate(
        visitors=max(lobby, round(views * ratio)),
        low=max(lobby, round(views * low)),
        high=max(lobby, round(views * high)),
        capacity=capacity,
        basis=tuple(basis),
    )


def _earlier_ratios(organizer_id: int, event_id: int, now: datetime) -> Sequence[tuple[int, int]]:
    """Return the visitors in the first hour of sales, and the views of the week before, of the organizer's latest
    on-sales that have both."""
    rows = OnSale.objects.filter(
        event__organizer_id=organizer_id, opens_at__lt=now - HOUR, opens_at__gt=now - EARLIER_SINCE
    ).exclude(event_id=event_id)
    found = []
    for earlier_id, opens_at in rows.order_by("-opens_at").values_list("event_id", "opens_at")[:EARLIER_EVENTS_MAX]:
        days: tuple[date, date] = (opens_at - WEEK).date(), opens_at.date()
        views = ViewDay.objects.filter(event_id=earlier_id, day__gte=days[0], day__lt=days[1])
        viewed = views.aggregate(sum=Sum("counted"))["sum"] or 0
        room = registries.room_interest(earlier_id) if viewed else None
        if room is not None and room.joined_first_hour:
            found.append((room.joined_first_hour, viewed))
    return found
