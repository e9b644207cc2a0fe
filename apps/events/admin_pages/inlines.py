"""Parts of an event that the apps above keep, in the event's form in the admin."""

from collections.abc import Sequence
from typing import Any

_inlines: list[type[Any]] = []


def add_event_inline(inline: type[Any]) -> None:
    """Show an inline of an app above in the form of an event. Its admin module calls this when it loads."""
    if inline not in _inlines:
        _inlines.append(inline)


def event_inlines() -> Sequence[type[Any]]:
    return tuple(_inlines)
