"""What the catalog's page shows of a search: results with their matched words marked, filters with counts, pages."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

from apps.events.search import engine, filters
from apps.events.search.engine import Facet, Found
from apps.events.search.filters import Query
from apps.events.search.pipeline import Matched
from apps.events.search.words.text import tokenize

WHEN_NAMES = {
    "today": "Today", "tomorrow": "Tomorrow", "weekend": "This weekend", "week": "Next 7 days", "month": "Next 30 days",
}  # fmt: skip
MATCHED_NAMES = {
    Matched.EXACT: "exact", Matched.FORM: "word form", Matched.JOINED: "joined words", Matched.SYNONYM: "synonym",
    Matched.SPELLING: "spelling", Matched.SOUND: "sound",
}  # fmt: skip
SORT_NAMES = {"best": "Best match", "date": "Date", "price": "Price"}


@dataclass(frozen=True, slots=True)
class Choice:
    """An option of a filter."""

    value: str
    name: str
    is_chosen: bool


def url_of(query: Query, **changes: object) -> str:
    """Return the address of the catalog with this query and these changes."""
    values = urlencode(filters.parameters(query, **{"size": None, **changes}))
    return f"{reverse('events:catalog')}?{values}" if values else reverse("events:catalog")


def filter_context(query: Query, facets: dict[str, tuple[Facet, ...]]) -> dict[str, Any]:
    """Return the context of the filters: each option with the number of events that it would leave."""
    prices = {"0": "Free", **{str(price): f"Up to {price // 100}" for price in filters.PRICES if price}}
    default = "best" if query.text else "date"
    whens = {
        facet.value: WHEN_NAMES.get(facet.value) or date_format(date.fromisoformat(facet.value[:10]), "F Y")
        for facet in facets["when"]
    }
    other = [query.when] if query.when and query.when not in whens else []
    return {
        "whens": [
            *(Choice(days, days.replace("..", " to "), True) for days in other),
            *_choices(facets["when"], whens),
        ],
        "cities": _choices(facets["city"], {}),
        "prices": _choices(facets["price_max"], prices),
        "available": facets["available"][0],
        "accessible": facets["accessible"][0],
        "sorts": [
            # The default has no value: a search from a page without search words then has the best match first.
            Choice("" if sort == default else sort, SORT_NAMES[sort], sort == (query.sort or default))
            for sort in filters.SORTS
            if query.text or sort != "best"
        ],
        "is_filtered": query.is_filtered,
        "clear_url": url_of(Query(text=query.text)),
    }


def _choices(facets: Iterable[Facet], names: dict[str, str]) -> list[Choice]:
    return [
        Choice(facet.value, f"{names.get(facet.value, facet.value)} ({facet.count})", facet.is_chosen)
        for facet in facets
        if facet.count or facet.is_chosen
    ]


def result_context(found: Found) -> dict[str, Any]:
    """Return the context of the results' head and foot: their number, the correction, suggestions, and pages."""
    query = found.query
    return {
        "total": found.total,
        "did_you_mean": found.did_you_mean,
        "did_you_mean_url": url_of(query, q=found.did_you_mean, page=None) if found.did_you_mean else "",
        "ignored": found.ignored,
        "suggestions": [
            {"text": one.text, "count": one.count, "url": url_of(Query(text=one.text))} for one in found.suggestions
        ],
        "previous_url": url_of(query, page=query.page - 1 if query.page > 2 else None) if query.page > 1 else "",
        "next_url": url_of(query, page=query.page + 1) if found.has_next else "",
        "page": query.page,
    }


def marks_of(result: engine.Result, **texts: str) -> dict[str, Any]:
    """Return these texts of a result with the words that matched marked, by name, and why it matched in a word."""
    marked: dict[str, Any] = {name: mark(text, result.words) for name, text in texts.items()}
    return marked | {"why": MATCHED_NAMES[result.matched] if result.matched is not None else ""}


def mark(text: str, words: frozenset[str]) -> SafeString:
    """Return the text as HTML with the words that are among these in `mark` elements."""
    parts: list[str] = []
    done = 0
    for token in tokenize(text):
        if token.start >= done and token.word in words:
            parts.append(conditional_escape(text[done : token.start]))
            parts.append(format_html("<mark>{}</mark>", text[token.start : token.end]))
            done = token.end
    parts.append(conditional_escape(text[done:]))
    return mark_safe("".join(parts))  # noqa: S308 - Every part is escaped above.
