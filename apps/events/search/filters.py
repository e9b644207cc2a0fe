"""Filters of a search: their values in a URL, and the documents that they leave."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise

from apps.events.search import bits
from apps.events.search.documents import PRICE_MAX
from apps.events.search.memory import Documents, time_unit

SORTS = ("best", "date", "price")
WHENS = ("today", "tomorrow", "weekend", "week", "month")
PRICES = (0, 2_500, 5_000, 10_000)
"""Upper limits offered as choices, in hundredths of a currency; 0: free."""
CITY_CHARACTERS_MAX = 120
PAGE_MAX = 50
SIZE, SIZE_MAX = 20, 50
_RANGE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:\.\.(\d{4}-\d{2}-\d{2}))?", re.ASCII)
_SATURDAY = 5


class QueryInvalid(ValueError):
    """A parameter of a search has a value that it cannot have."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} {why}")
        self.name, self.why = name, why


@dataclass(frozen=True, slots=True)
class Query:
    """A search. Empty values do not filter."""

    text: str = ""
    when: str = ""
    """One of WHENS, a day, or two days with two dots between them: on the clocks of the venues."""
    city: str = ""
    price_max: int | None = None
    """The highest price, in hundredths of the event's currency."""
    available: bool = False
    """Only events that have tickets left and whose sales have not ended."""
    accessible: bool = False
    """Only events with accessible seats left."""
    sort: str = ""
    """One of SORTS; empty: best with a text, else date."""
    page: int = 1
    size: int = SIZE

    @property
    def is_filtered(self) -> bool:
        return bool(self.when or self.city or self.price_max is not None or self.available or self.accessible)


def read_query(values: Mapping[str, str]) -> Query:
    """Return the query that the parameters of a URL describe. Raises QueryInvalid."""
    when, sort, city = values.get("when", ""), values.get("sort", ""), values.get("city", "").strip()
    if when:
        days_of(when, date(2020, 1, 1))
    if sort not in ("", *SORTS):
        raise QueryInvalid("sort", f"must be one of {', '.join(SORTS)}")
    if len(city) > CITY_CHARACTERS_MAX:
        raise QueryInvalid("city", f"has at most {CITY_CHARACTERS_MAX} characters")
    price = values.get("price_max", "")
    return Query(
        text=values.get("q", "").replace("\x00", " ").strip(),
        when=when,
        city=city,
        price_max=_number("price_max", price, 0, PRICE_MAX) if price else None,
        available=_flag("available", values.get("available", "")),
        accessible=_flag("accessible", values.get("accessible", "")),
        sort=sort,
        page=_number("page", values.get("page", "") or "1", 1, PAGE_MAX),
        size=_number("size", values.get("size", "") or str(SIZE), 1, SIZE_MAX),
    )


def parameters(query: Query, **changes: object) -> dict[str, str]:
    """Return the parameters of a URL for the query with these changes, without empty ones."""
    values = {
        "q": query.text, "when": query.when, "city": query.city, "price_max": query.price_max,
        "available": query.available, "accessible": query.accessible, "sort": query.sort,
        "page": query.page if query.page > 1 else None, "size": query.size if query.size != SIZE else None,
    }  # fmt: skip
    shown = values | changes
    return {
        name: "1" if value is True else str(value) for name, value in shown.items() if value not in ("", None, False)
    }


def _flag(name: str, value: str) -> bool:
    if value not in ("", "0", "1"):
        raise QueryInvalid(name, "must be 1 or 0")
    return value == "1"


def _number(name: str, value: str, low: int, high: int) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 12 and low <= int(value) <= high):
        raise QueryInvalid(name, f"must be a number from {low} to {high}")
    return int(value)


def months_from(today: date) -> list[str]:
    """Return this month and the next eleven, each as a range of days."""
    firsts = [date(today.year + at // 12, at % 12 + 1, 1) for at in range(today.month - 1, today.month + 12)]
    return [f"{first}..{following - timedelta(days=1)}" for first, following in pairwise(firsts)]


def days_of(when: str, today: date) -> tuple[date, date]:
    """Return the first day and the day after the last one. Raises QueryInvalid."""
    if when in WHENS:
        saturday = today + timedelta(days=(_SATURDAY - today.weekday()) % 7)
        if today.weekday() == _SATURDAY + 1:
            saturday = today - timedelta(days=1)
        ends = {
            "today": (today, today + timedelta(days=1)),
            "tomorrow": (today + timedelta(days=1), today + timedelta(days=2)),
            "weekend": (saturday, saturday + timedelta(days=2)),
            "week": (today, today + timedelta(days=7)),
            "month": (today, today + timedelta(days=30)),
        }
        return ends[when]
    found = _RANGE.fullmatch(when)
    try:
        first = date.fromisoformat(found[1] if found else "")
        last = date.fromisoformat(found[2]) if found and found[2] else first
    except ValueError as error:
        raise QueryInvalid("when", f"must be one of {', '.join(WHENS)}, a day, or two days as in {EXAMPLE}") from error
    if last < first:
        raise QueryInvalid("when", "ends before it begins")
    return first, min(last, date(9000, 1, 1)) + timedelta(days=1)


EXAMPLE = "2027-05-01..2027-05-31"


def on_days(documents: Documents, when: str, today: date) -> int:
    """Return the documents that start on these days of their venue's calendar."""
    first, after = (time_unit(datetime.combine(day, time(), UTC)) for day in days_of(when, today))
    planes, live = documents.local_planes, documents.live
    return documents.remember(
        ("days", first, after), lambda: bits.at_least(planes, live, first) & ~bits.at_least(planes, live, after)
    )


def priced_up_to(documents: Documents, price_max: int) -> int:
    """Return the documents whose lowest price is at most this."""
    planes, priced = documents.price_planes, documents.priced
    return documents.remember(("price", price_max), lambda: priced & ~bits.at_least(planes, priced, price_max + 1))


def masks(query: Query, documents: Documents, now: datetime) -> dict[str, Callable[[], int]]:
    """Return for each filter of the query a function that returns the documents it leaves."""
    found: dict[str, Callable[[], int]] = {}
    if query.when:
        found["when"] = lambda: on_days(documents, query.when, now.date())
    if query.city:
        found["city"] = lambda: documents.cities.get(query.city, 0)
    if query.price_max is not None:
        price_max = query.price_max
        found["price"] = lambda: priced_up_to(documents, price_max)
    if query.available:
        found["available"] = lambda: selling(documents, now)
    if query.accessible:
        found["accessible"] = lambda: documents.accessible
    return found


def selling(documents: Documents, now: datetime) -> int:
    """Return the documents that have tickets left and whose sales have not ended."""
    unit = time_unit(now) + 1
    planes, left = documents.end_planes, documents.left
    return documents.remember(("selling", unit), lambda: bits.at_least(planes, left, unit))
