"""The texts of the waiting page without scripts, word for word."""

import pytest

from apps.queue.status.status_messages import describe_odds, describe_wait


@pytest.mark.parametrize(
    ("status", "wait_range", "tickets_left", "words"),
    [
        ("waiting", (0, 60), None, "Less than a minute."),
        ("waiting", (0, 61), 5, "Up to 2 minutes at the current pace."),
        ("waiting", (55, 60), 5, "Less than a minute."),
        ("waiting", (61, 119), 5, "About 2 minutes at the current pace."),
        ("waiting", (2400, 3600), 5, "Between 40 and 60 minutes at the current pace."),
        ("waiting", (3000, 9000), 5, "Between 50 minutes and 3 hours at the current pace."),
        ("waiting", (7200, 10800), 5, "Between 2 and 3 hours at the current pace."),
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
    assert "All tickets are sold or held" in describe_odds(10, 0)
