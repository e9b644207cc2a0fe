"""A plot of bars: periods, scale and positions."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.kernel.plots import bar_plot

NOW = datetime(2026, 11, 24, 15, 20, 30, tzinfo=UTC)


def test_the_last_period_ends_with_the_current_bin() -> None:
    period = bar_plot.last_period(NOW, 60, 60)
    assert (period.since, period.bin_words) == (datetime(2026, 11, 24, 14, 21, tzinfo=UTC), "minute")


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (timedelta(minutes=5), "minute"),
        (timedelta(hours=9), "5 minutes"),
        (timedelta(days=1), "15 minutes"),
        (timedelta(days=4), "hour"),
        (timedelta(days=20), "6 hours"),
        (timedelta(days=100), "day"),
        (timedelta(days=700), "week"),
        (timedelta(days=5_000), "year"),
    ],
)
def test_a_whole_sale_has_the_shortest_bins_that_fit(age: timedelta, words: str) -> None:
    period = bar_plot.whole_period(NOW - age, NOW, ZoneInfo("Europe/Berlin"))
    assert period.bin_words == words
    assert period.count <= bar_plot.BINS_MAX
    assert period.since <= NOW - age
    assert period.since + timedelta(seconds=period.bin_seconds) * period.count > NOW


def test_days_begin_at_midnight_of_the_venue() -> None:
    period = bar_plot.whole_period(NOW - timedelta(days=100), NOW, ZoneInfo("America/Chicago"))
    assert period.since.astimezone(ZoneInfo("America/Chicago")).hour == 0


@pytest.mark.parametrize(
    ("peak", "top"), [(0, 2), (2, 2), (3, 4), (5, 10), (11, 20), (40, 40), (41, 100), (750, 1_000)]
)
def test_the_scale_ends_at_a_round_number(peak: int, top: int) -> None:
    period = bar_plot.last_period(NOW, 60, 60)
    plot = bar_plot.draw([(period.since, peak)] if peak else [], period, UTC)
    assert [mark.label for mark in plot.scale] == [f"{top // 2:,}", f"{top:,}"]
    assert (plot.peak, plot.total) == (peak, peak)


def test_bars_stand_on_the_base_and_keep_within_the_plot() -> None:
    period = bar_plot.last_period(NOW, 60, 60)
    minutes = [(period.since + timedelta(minutes=n), n + 1) for n in range(60)]
    plot = bar_plot.draw(minutes, period, UTC)
    assert len(plot.bars) == 60
    for bar in plot.bars:
        assert 0 <= bar.y <= bar_plot.HEIGHT
        assert bar.y + bar.height == pytest.approx(bar_plot.HEIGHT)
        assert 0 <= float(bar.x.rstrip("%")) <= 100
