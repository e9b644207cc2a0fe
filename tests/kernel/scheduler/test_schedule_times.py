"""Minutes of schedules, also where clocks are set forward and back."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from apps.kernel.scheduler import schedule_times


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def first(cron: str, zone: str, after: str, count: int) -> list[datetime]:
    """Return the next minutes, each computed anew from the one before, as runs do it."""
    found, moment = [], at(after)
    for _ in range(count):
        following = schedule_times.next_minute(cron, zone, moment)
        assert following is not None
        found.append(following)
        moment = following
    assert found == list(islice(schedule_times.minutes(cron, zone, at(after)), count))
    return found


def test_a_minute_in_the_gap_runs_once_right_after_it() -> None:
    # In Berlin 02:00 to 02:59 does not exist on 2026-03-29.
    assert first("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+00:00", 3) == [
        at("2026-03-29T03:00+02:00"), at("2026-03-30T02:30+02:00"), at("2026-03-31T02:30+02:00"),
    ]  # fmt: skip


def test_several_minutes_in_the_gap_run_once_together() -> None:
    assert first("0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+00:00", 2) == [
        at("2026-03-29T03:00+02:00"), at("2026-03-30T02:00+02:00"),
    ]  # fmt: skip


def test_a_doubled_minute_runs_the_first_time_only() -> None:
    # In Berlin 02:00 to 02:59 occurs twice on 2026-10-25.
    assert first("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00+00:00", 2) == [
        at("2026-10-25T02:30+02:00"), at("2026-10-26T02:30+01:00"),
    ]  # fmt: skip


def test_after_a_late_end_in_the_repeated_hour_it_does_not_run_again() -> None:
    assert first("30 2 * * *", "Europe/Berlin", "2026-10-25T02:10+01:00", 1) == [at("2026-10-26T02:30+01:00")]


def test_an_expression_with_every_hour_follows_the_time_that_passes() -> None:
    found = first("*/30 * * * *", "Europe/Berlin", "2026-10-24T23:45+00:00", 6)
    assert found == [at("2026-10-25T00:00+00:00") + timedelta(minutes=30 * number) for number in range(6)]


def test_zones_with_other_gaps() -> None:
    # Lord Howe moves by half an hour.
    assert first("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00+00:00", 1) == [at("2026-10-04T02:30+11:00")]


@pytest.mark.parametrize(
    "cron",
    ["", "* * * *", "* * * * * *", "61 * * * *", "0 0 31 2 *", "0 0 30 2 *", "@daily", "x" * 200, "0 0 * * MO",
     "٣ * * * *"],
)  # fmt: skip
def test_an_expression_that_is_wrong_or_matches_nothing_is_refused(cron: str) -> None:
    with pytest.raises(schedule_times.InvalidSchedule):
        schedule_times.require_cron(cron, "UTC", at("2026-01-01T00:00+00:00"))


@pytest.mark.parametrize(
    ("cron", "is_closer"),
    [
        ("* * * * *", True),
        ("*/30 9 * * *", True),
        ("0,59 12 1 1 *", True),
        ("0,30 12 1 3 *", True),
        ("0 * * * *", False),
        ("59 9-17 * * 1-5", False),
        ("0 0 29 2 *", False),
    ],
)
def test_an_expression_with_two_minutes_in_an_hour_runs_more_often_than_hourly(cron: str, is_closer: bool) -> None:
    # Between the two minutes of the fourth.
    moment = at("2026-03-01T12:15+00:00")
    assert schedule_times.is_closer_than(cron, timedelta(hours=1), moment) == is_closer
