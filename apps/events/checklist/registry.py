"""Findings of the checklist, and the checks that the apps above add to it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from apps.events.checklist.draft import Draft


class Level(StrEnum):
    MISSING = "missing"
    """The draft cannot be published."""
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is missing in a draft or unsafe about it, as one sentence. `link` is the path of the admin page on
    which it can be changed; empty: it is a setting of the deployment."""

    level: Level
    text: str
    link: str = ""


_checks: list[Callable[[Draft, datetime], Iterable[Finding]]] = []


def on_check_draft(check: Callable[[Draft, datetime], Iterable[Finding]]) -> None:
    """Register `check(draft, now)`, which yields what is missing in a draft or unsafe about it. It also runs inside the
    transaction of a publication, so it only reads."""
    if check not in _checks:
        _checks.append(check)


def registered_checks() -> Sequence[Callable[[Draft, datetime], Iterable[Finding]]]:
    return tuple(_checks)
