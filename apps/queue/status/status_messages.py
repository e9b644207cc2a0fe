"""The waiting page's texts for a browser without scripts. static/js/wait.js has the same texts."""

import math
from collections.abc import Callable

HOURS_FROM_MINUTES = 90
"""Waits of this many minutes or more are shown in hours: "between 140 and 210 minutes" is hard to read."""
HALVES_BELOW = 10
"""Fewer minutes or hours are shown in halves."""
RATIO_MAX = 3
PEOPLE_EXACT_MAX = 100
_MINUTES = {"minute": 1, "hour": 60}


def describe_wait(status: str, wait_range: tuple[int, int] | None, tickets_left: int | None) -> str:
    """Return the text for a wait of this interval in seconds. While no tickets are left, there is no estimate."""
    if status == "paused":
        return "The line is paused. Your place is saved."
    if wait_range is None or tickets_left == 0:
        return "No wait estimate yet."
    if wait_range[1] <= 60:
        return "Less than a minute."
    seconds = HOURS_FROM_MINUTES * 60
    low_unit, high_unit = ("hour" if end >= seconds else "minute" for end in wait_range)
    low = _round(wait_range[0], low_unit, math.floor)
    high = _round(wait_range[1], high_unit, math.ceil if high_unit == "minute" else _to_nearest)
    widest_low = high * _MINUTES[high_unit] / _MINUTES[low_unit] / RATIO_MAX
    if low < widest_low and wait_range[1] <= (RATIO_MAX + 0.1) * wait_range[0]:
        low = math.ceil(widest_low * 2) / 2  # Rounding has made the interval wider than it is.
    if low == high and low_unit == high_unit:
        return f"About {_pluralize(high, high_unit)} at the current pace."
    if low == 0:
        return f"Up to {_pluralize(high, high_unit)} at the current pace."
    if low_unit == high_unit and low > 0.5:
        return f"Between {_number(low)} and {_number(high)} {high_unit}s at the current pace."
    return f"Between {_pluralize(low, low_unit)} and {_pluralize(high, high_unit)} at the current pace."


def describe_pace(status: str, rate_per_second: float | None) -> str:
    """Return how fast the line moves, "240 people a minute"; empty if it is not known."""
    if status == "paused":
        return "Paused"
    if not rate_per_second:
        return ""
    count, unit = (rate_per_second * 60, "minute") if rate_per_second * 60 >= 1 else (rate_per_second * 3_600, "hour")
    shown = max(1, round(count))
    if shown >= PEOPLE_EXACT_MAX:
        step = 10 ** (len(str(shown)) - 2)
        shown = shown // step * step
    return f"{shown:,} {'person' if shown == 1 else 'people'} {'a' if unit == 'minute' else 'an'} {unit}"


def describe_odds(people_ahead: int, tickets_left: int | None) -> str:
    """Return a warning if no tickets are left or if the people ahead may take them all, else an empty text."""
    if tickets_left is None:
        return ""
    if tickets_left == 0:
        return "All tickets are sold or reserved right now. Unpaid tickets go back on sale, and then the line moves on."
    if people_ahead >= tickets_left:
        return (
            "There are more people ahead of you than tickets left. Some may not buy, but you are unlikely to get "
            "tickets."
        )
    if people_ahead * 2 >= tickets_left:
        return "Tickets may run out before your turn: many buyers take more than one."
    return ""


def _round(seconds: int, unit: str, to_whole: Callable[[float], int]) -> float:
    """Return the time in minutes or hours, in halves below HALVES_BELOW."""
    count = seconds / (3_600 if unit == "hour" else 60)
    return to_whole(count * 2) / 2 if count < HALVES_BELOW else float(to_whole(count))


def _to_nearest(count: float) -> int:
    return math.floor(count + 0.5)


def _number(count: float) -> str:
    whole = int(count)
    return f"{whole or ''}{'½' if count != whole else ''}"


def _pluralize(count: float, unit: str) -> str:
    if count == 0.5:
        return "30 seconds" if unit == "minute" else "30 minutes"
    return f"{_number(count)} {unit}{'' if count == 1 else 's'}"
