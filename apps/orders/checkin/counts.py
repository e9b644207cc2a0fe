"""Counts of checked-in and expected tickets."""

from dataclasses import asdict, dataclass
from typing import Any

from django.db import connection

from apps.kernel.db import sql

_count_entered = sql.load("apps.orders", "count_entered")


@dataclass(frozen=True, slots=True)
class SectionCount:
    section: str
    expected: int
    entered: int


@dataclass(frozen=True, slots=True)
class Counts:
    sections: tuple[SectionCount, ...]

    @property
    def expected(self) -> int:
        return sum(section.expected for section in self.sections)

    @property
    def entered(self) -> int:
        return sum(section.entered for section in self.sections)

    def contract(self) -> dict[str, Any]:
        return {
            "expected": self.expected,
            "entered": self.entered,
            "sections": [asdict(each) for each in self.sections],
        }


def count_entered(event_id: int) -> Counts:
    """Return per section how many valid tickets there are and how many of them are checked in."""
    with connection.cursor() as cursor:
        rows = _count_entered.rows(cursor, event_id=event_id)
    return Counts(tuple(SectionCount(*row) for row in rows))
