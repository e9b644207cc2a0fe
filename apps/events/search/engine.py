"""Searches: the documents that match, filtered, in order, one page of them, with facets."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection

from apps.events.search import bits, filters, pipeline
from apps.events.search.filters import Query, QueryInvalid
from apps.events.search.memory import Documents, View, index
from apps.events.search.pipeline import Match, Matched
from apps.kernel.db import sql

__all__ = ["Facet", "Found", "Query", "QueryInvalid", "Result", "Suggestion", "complete", "search"]

CITIES_MAX = 30
COUNTED_CITIES_MAX = 300
"""With more cities, those of the documents themselves are counted."""
SUGGESTIONS_MAX = 4
COMPLETED_MAX = 8

_names = sql.load("apps.events", "search_names")
_completed_events = sql.load("apps.events", "search_completed_events")


@dataclass(frozen=True, slots=True)
class Result:
    event_id: int
    slug: str
    name: str
    matched: Matched | None
    """Why it matched; None without a text."""
    words: frozenset[str]
    """The folded words that matched, to be marked."""


@dataclass(frozen=True, slots=True)
class Facet:
    """A value of a filter, and how many events it would leave."""

    value: str
    count: int
    is_chosen: bool = False


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Another query that has results."""

    text: str
    count: int


@dataclass(frozen=True, slots=True)
class Found:
    query: Query
    results: tuple[Result, ...]
    total: int
    has_next: bool
    did_you_mean: str
    """The query with its words corrected; empty if nothing was."""
    ignored: tuple[str, ...]
    """Words without which the results were found."""
    facets: dict[str, tuple[Facet, ...]]
    """By filter: when (also each of the next twelve months), city, price_max, available, accessible."""
    suggestions: tuple[Suggestion, ...]
    """Without results only."""


def search(query: Query) -> Found:
    """Return one page of the public events that match and have not started, best first, with facets and corrections.
    Each facet is counted with all filters but its own."""
    view = index.view()
    now, documents = view.now, view.documents
    upcoming = documents.upcoming(now)
    match = pipeline.match(query.text, view, upcoming)
    masks = {name: read() for name, read in filters.masks(query, documents, now).items()}
    chosen = match.documents
    for mask in masks.values():
        chosen &= mask
    last = query.page * query.size
    numbers = _in_order(query, match, documents, chosen, last)[last - query.size :]
    results = _results(numbers, match, documents, has_text=bool(query.text))
    total = chosen.bit_count()
    corrected = pipeline.did_you_mean(query.text, match.units, numbers, view) if query.page == 1 else ""
    return Found(
        query=query,
        results=results,
        total=total,
        has_next=total > last and query.page < filters.PAGE_MAX,
        did_you_mean=corrected,
        ignored=tuple(match.ignored),
        facets=_facets(query, match.documents, masks, documents, now),
        suggestions=() if total else _suggestions(query, match, view, upcoming),
    )


def facets(query: Query) -> dict[str, tuple[Facet, ...]]:
    """Return the facets of all public events that have not started."""
    view = index.view()
    now, documents = view.now, view.documents
    upcoming = documents.upcoming(now)
    return _facets(query, upcoming, {}, documents, now)


def _in_order(query: Query, match: Match, documents: Documents, chosen: int, count: int) -> list[int]:
    sort = query.sort or ("best" if match.units else "date")
    if sort == "date":
        return bits.best(documents.start_planes, chosen, count, lowest=True)
    if sort == "price":
        priced = bits.best(documents.price_planes, chosen & documents.priced, count, lowest=True)
        unpriced = chosen & ~documents.priced
        return priced + bits.best(documents.start_planes, unpriced, count - len(priced), lowest=True)
    planes = list(documents.rank_planes)
    for unit in match.units:
        # The levels of a unit have no document in common, so those of equal points are added together.
        by_points: dict[int, int] = {}
        for level in unit.levels:
            by_points[level.points] = by_points.get(level.points, 0) | level.documents
        for points, documents_of_points in by_points.items():
            bits.add(planes, documents_of_points & chosen, points)
    return bits.best(planes, chosen, count)


def _results(numbers: Sequence[int], match: Match, documents: Documents, *, has_text: bool) -> tuple[Result, ...]:
    ids = [documents.event_ids[number] for number in numbers]
    if not ids:
        return ()
    # Statements from files: the ORM takes twice as long to compose this one as PostgreSQL to answer it.
    with connection.cursor() as cursor:
        names = {pk: (slug, name) for pk, slug, name in _names.rows(cursor, ids=ids)}
    levels = pipeline.levels_among(match.units, bits.set_of(numbers, documents.size))
    found = []
    for number, event_id in zip(numbers, ids, strict=True):
        if event_id not in names:
            continue  # Deleted since the index was read.
        matched, alternatives = pipeline.matched_by(levels, number)
        words = frozenset(word for alternative in alternatives.values() for word in alternative.words)
        found.append(Result(event_id, *names[event_id], matched if has_text and match.units else None, words))
    return tuple(found)


def _facets(
    query: Query, matching: int, masks: dict[str, int], documents: Documents, now: datetime
) -> dict[str, tuple[Facet, ...]]:
    def without(name: str) -> int:
        left = matching
        for other, mask in masks.items():
            if other != name:
                left &= mask
        return left

    by_when = without("when")
    today = now.date()
    whens = [
        Facet(when, (by_when & filters.on_days(documents, when, today)).bit_count(), when == query.when)
        for when in (*filters.WHENS, *filters.months_from(today))
    ]
    by_price = without("price")
    prices = [
        Facet(str(price), (by_price & filters.priced_up_to(documents, price)).bit_count(), price == query.price_max)
        for price in filters.PRICES
    ]
    available = without("available") & filters.selling(documents, now)
    accessible = without("accessible") & documents.accessible
    return {
        "when": tuple(whens),
        "city": _cities(query, without("city"), documents),
        "price_max": tuple(prices),
        "available": (Facet("1", available.bit_count(), query.available),),
        "accessible": (Facet("1", accessible.bit_count(), query.accessible),),
    }


def _cities(query: Query, matching: int, documents: Documents) -> tuple[Facet, ...]:
    if len(documents.cities) <= COUNTED_CITIES_MAX:
        counts = {city: (matching & mask).bit_count() for city, mask in list(documents.cities.items())}
    else:
        counts = Counter(documents.city_of(number) for number in bits.members(matching))
        counts.pop("", None)
    most = sorted(((count, city) for city, count in counts.items() if count), key=lambda pair: (-pair[0], pair[1]))
    chosen = [(count, city) for count, city in most[CITIES_MAX:] if city == query.city]
    return tuple(Facet(city, count, city == query.city) for count, city in [*most[:CITIES_MAX], *chosen])


def _suggestions(query: Query, match: Match, view: View, among: int) -> tuple[Suggestion, ...]:
    if query.is_filtered and match.documents:
        return (Suggestion(query.text, match.documents.bit_count()),)
    texts = pipeline.shorter(match.units, SUGGESTIONS_MAX)
    counted = [Suggestion(text, pipeline.match(text, view, among).documents.bit_count()) for text in texts]
    return tuple(one for one in counted if one.count)


@dataclass(frozen=True, slots=True)
class Completion:
    """An event that an incomplete query may mean."""

    slug: str
    name: str
    city: str
    day: date
    """The day of its start at the venue."""


def complete(text: str) -> tuple[list[Completion], list[str]]:
    """Return the best events for an incomplete query, and queries that complete its last word."""
    if not pipeline.parse(text):
        return [], []
    view = index.view()
    documents = view.documents
    upcoming = documents.upcoming(view.now)
    match = pipeline.match(text, view, upcoming, is_prefix=True)
    numbers = _in_order(Query(text=text), match, documents, match.documents, COMPLETED_MAX)
    ids = [documents.event_ids[number] for number in numbers]
    rows: Sequence[tuple[Any, ...]] = ()
    if ids:
        with connection.cursor() as cursor:
            rows = _completed_events.rows(cursor, ids=ids)
    events = {
        pk: Completion(slug, name, city, starts_at.astimezone(ZoneInfo(timezone)).date())
        for pk, slug, name, city, timezone, starts_at in rows
    }
    return [events[event_id] for event_id in ids if event_id in events], _completions(text, match, view)


def _completions(text: str, match: Match, known: View) -> list[str]:
    """Return the text with its last word completed, each once, for words that the matching events have."""
    if not match.units or not match.documents:
        return []
    unit = match.units[-1]
    word = unit.tokens[-1]
    others = {token.word for one in match.units for token in one.tokens}
    found = []
    is_only = len(match.units) == 1  # Then every document of the unit matches.
    found_of = [level.documents if is_only else level.documents & match.documents for level in unit.levels]
    counted = [(documents.bit_count(), level) for documents, level in zip(found_of, unit.levels, strict=True)]
    for count, level in sorted(counted, key=lambda pair: -pair[0]):
        last = level.alternative.words[-1]
        if count and last not in others and last not in known.vocabulary.stop_words and last.startswith(word.word):
            found.append(f"{text[: word.start]}{known.vocabulary.words[last].written}")
    return list(dict.fromkeys(found))[:3]
