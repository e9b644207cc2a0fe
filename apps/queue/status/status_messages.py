"""What the waiting page says in words, for a browser without scripts; static/js/wait.js says the same by itself."""

HOURS_FROM_MINUTES = 90
"""From so many minutes on a wait is told in hours: nobody plans by "between 140 and 210 minutes"."""


def describe_wait(status: str, wait_range: tuple[int, int] | None, tickets_left: int | None) -> str:
    """How long it takes, from an interval in seconds; nobody is let in while nothing is left to buy."""
    if status == "paused":
        return "The line stands still for a moment. Your place is safe."
    if wait_range is None or tickets_left == 0:
        return "Nobody can say yet how long it takes."
    if wait_range[1] <= 60:
        return "Less than a minute."
    (low, low_unit), (high, high_unit) = _span(wait_range[0]), _span(wait_range[1])
    if (low, low_unit) == (high, high_unit):
        return f"About {_pluralize(high, high_unit)}, as things go now."
    if low == 0:
        return f"Up to {_pluralize(high, high_unit)}, as things go now."
    if low_unit == high_unit:
        return f"Between {low} and {high} {high_unit}s, as things go now."
    return f"Between {_pluralize(low, low_unit)} and {_pluralize(high, high_unit)}, as things go now."


def describe_odds(people_ahead: int, tickets_left: int | None) -> str:
    """What the stock means for somebody with so many ahead; empty where it means nothing in particular."""
    if tickets_left is None:
        return ""
    if tickets_left == 0:
        return "Every ticket is sold or held right now. Whatever is not paid for comes back, and the line goes on."
    if people_ahead >= tickets_left:
        return (
            "More people are ahead of you than tickets are left. Some will not buy, so it is not over, but it is "
            "unlikely."
        )
    if people_ahead * 2 >= tickets_left:
        return "It may be close: many buy more than one ticket."
    return ""


def _span(seconds: int) -> tuple[int, str]:
    minutes = -(-seconds // 60)
    return (minutes, "minute") if minutes < HOURS_FROM_MINUTES else (int(minutes / 60 + 0.5), "hour")


def _pluralize(count: int, unit: str) -> str:
    return f"{count} {unit}{'' if count == 1 else 's'}"
