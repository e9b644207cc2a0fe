"""The waiting page's texts for a browser without scripts. static/js/wait.js has the same texts."""

HOURS_FROM_MINUTES = 90
"""Waits of this many minutes or more are shown in hours: "between 140 and 210 minutes" is hard to read."""


def describe_wait(status: str, wait_range: tuple[int, int] | None, tickets_left: int | None) -> str:
    """Return the text for a wait of this interval in seconds. While no tickets are left, there is no estimate."""
    if status == "paused":
        return "The line is paused. Your place is saved."
    if wait_range is None or tickets_left == 0:
        return "No wait estimate yet."
    if wait_range[1] <= 60:
        return "Less than a minute."
    (low, low_unit), (high, high_unit) = _span(wait_range[0]), _span(wait_range[1])
    if (low, low_unit) == (high, high_unit):
        return f"About {_pluralize(high, high_unit)} at the current pace."
    if low == 0:
        return f"Up to {_pluralize(high, high_unit)} at the current pace."
    if low_unit == high_unit:
        return f"Between {low} and {high} {high_unit}s at the current pace."
    return f"Between {_pluralize(low, low_unit)} and {_pluralize(high, high_unit)} at the current pace."


def describe_odds(people_ahead: int, tickets_left: int | None) -> str:
    """Return a warning if no tickets are left or if the people ahead may take them all, else an empty text."""
    if tickets_left is None:
        return ""
    if tickets_left == 0:
        return "All tickets are sold or held right now. Unpaid tickets go back on sale, and then the line moves on."
    if people_ahead >= tickets_left:
        return (
            "There are more people ahead of you than tickets left. Some may not buy, but you are unlikely to get "
            "tickets."
        )
    if people_ahead * 2 >= tickets_left:
        return "Tickets may run out before your turn: many buyers take more than one."
    return ""


def _span(seconds: int) -> tuple[int, str]:
    minutes = -(-seconds // 60)
    return (minutes, "minute") if minutes < HOURS_FROM_MINUTES else (int(minutes / 60 + 0.5), "hour")


def _pluralize(count: int, unit: str) -> str:
    return f"{count} {unit}{'' if count == 1 else 's'}"
