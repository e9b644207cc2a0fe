"""The texts of the waiting page without scripts, word for word."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apps.queue.status.status_messages import describe_odds, describe_pace, describe_wait


@pytest.mark.parametrize(
    ("status", "wait_range", "tickets_left", "words"),
    [
        ("waiting", (0, 60), None, "Less than a minute."),
        ("waiting", (55, 60), 5, "Less than a minute."),
        ("waiting", (0, 61), 5, "Up to 1½ minutes at the current pace."),
        ("waiting", (31, 61), 5, "Between 30 seconds and 1½ minutes at the current pace."),
        ("waiting", (61, 119), 5, "Between 1 and 2 minutes at the current pace."),
        ("waiting", (70, 210), 5, "Between 1½ and 3½ minutes at the current pace."),
        ("waiting", (120, 120), 5, "About 2 minutes at the current pace."),
        ("waiting", (1300, 2500), 5, "Between 21 and 42 minutes at the current pace."),
        ("waiting", (3000, 9000), 5, "Between 50 minutes and 2½ hours at the current pace."),
        ("waiting", (5400, 10800), 5, "Between 1½ and 3 hours at the current pace."),
        ("waiting", (36000, 54001), 5, "Between 10 and 15 hours at the current pace."),
        ("waiting", (0, 60), 0, "No wait estimate yet."),
        ("waiting", None, 5, "No wait estimate yet."),
        ("paused", (0, 60), 5, "The line is paused. Your place is saved."),
    ],
)
def test_a_wait_is_shown_in_rounded_words(
    status: str, wait_range: tuple[int, int] | None, tickets_left: int | None, words: str
) -> None:
    assert describe_wait(status, wait_range, tickets_left) == words


def test_the_odds_are_shown_only_if_tickets_may_run_out() -> None:
    assert describe_odds(10, None) == describe_odds(10, 1_000) == ""
    assert "may run out" in describe_odds(10, 20)
    assert "unlikely" in describe_odds(20, 20)
    assert "All tickets are sold or reserved" in describe_odds(10, 0)


@pytest.mark.parametrize(
    ("status", "rate", "words"),
    [
        ("waiting", 4.27, "250 people a minute"),
        ("waiting", 50.0, "3,000 people a minute"),
        ("waiting", 0.5, "30 people a minute"),
        ("waiting", 1 / 60, "1 person a minute"),
        ("waiting", 0.01, "36 people an hour"),
        ("waiting", None, ""),
        ("paused", 0.0, "Paused"),
    ],
)
def test_the_pace_is_shown_in_people(status: str, rate: float | None, words: str) -> None:
    assert describe_pace(status, rate) == words


@example(low=2_110, ratio=2.99)
@given(low=st.integers(60, 20_000), ratio=st.floats(1, 3))
def test_rounding_does_not_widen_an_interval_much_beyond_a_factor_of_three(low: int, ratio: float) -> None:
    words = describe_wait("waiting", (low, int(low * ratio)), None)
    ends = re.findall(r"([\d½]+)(?: (hour|minute|second))?", words)
    if ends and "Less" not in words:
        (first, unit), (last, last_unit) = ends[0], ends[-1]
        assert _minutes(last, last_unit) <= 3.25 * _minutes(first, unit or last_unit), words


def _minutes(count: str, unit: str) -> float:
    number = float(count.replace("½", "") or 0) + 0.5 * ("½" in count)
    return number * {"hour": 60, "minute": 1, "second": 1 / 60}[unit]
