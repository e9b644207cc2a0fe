"""Writes the index: changed events one batch at a time, and all events in a rebuild.

Triggers note each changed event in SearchChange, within the transaction of the change; this module takes the notes and
writes the index in one transaction, so a change is indexed exactly once, after its commit. Every writer has the row of
SearchState locked until it commits: versions rise in the order of commits, and two loops never index at once.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import NamedTuple, TypeVar

from django.db import connection
from django.db.models import Max, Q

from apps.events.models import Event, SearchChange, SearchDocument, SearchPosting, SearchState, SearchTerm
from apps.events.search.documents import OVER, Document, Facts, read_documents
from apps.events.search.words import metaphone
from apps.events.search.words.text import WORD_CHARACTERS_MAX, stem
from apps.kernel import clock
from apps.kernel.db import sql, transactions

CHANGES_MAX = 500
"""Notes that one call takes."""
INTERVAL_SECONDS = 1.0
_REBUILD_EVENTS = 1_000
_REBUILD_MS = 600_000
_BATCH = 1_000

_change_counts = sql.load("apps.events", "change_term_counts")
_take_changes = sql.load("apps.events", "take_search_changes")
_lift_timeout = sql.load("apps.events", "lift_statement_timeout")
_vacuum = sql.load("apps.events", "vacuum_postings")
_copy_postings = sql.load("apps.events", "copy_search_postings")


Item = TypeVar("Item")


class Stock(NamedTuple):
    """What is left of an event's tickets."""

    available: int
    accessible: int


def index_changes() -> int:
    """Index the events that have changed; return how many. Another loop that is indexing does it instead: 0."""
    with transactions.write():
        state = _lock_state(skip_locked=True)
        if state is None:
            return 0
        with connection.cursor() as cursor:
            event_ids = {event_id for (event_id,) in _take_changes.rows(cursor, limit=CHANGES_MAX)}
        if event_ids:
            state.version += 1
            _index(event_ids, state.version)
            state.save(update_fields=["version"])
    return len(event_ids)


def report_stock(stock: Mapping[int, Stock]) -> int:
    """Store what is left of these events' tickets, for filters and the order; return how many have changed."""
    known = SearchDocument.objects.filter(event_id__in=list(stock)).values_list("event_id", "available", "accessible")
    changed = {event_id: stock[event_id] for event_id, *values in known if tuple(values) != tuple(stock[event_id])}
    return _report(("available", "accessible"), changed)


def report_trends(points: Mapping[int, int]) -> int:
    """Store the points of all trends, for the order: those of other events become 0; return how many have changed."""
    known = SearchDocument.objects.filter(Q(event_id__in=list(points)) | Q(trend__gt=0))
    trends = known.values_list("event_id", "trend")
    return _report(("trend",), {pk: (points.get(pk, 0),) for pk, trend in trends if trend != points.get(pk, 0)})


def _report(columns: Sequence[str], changed: Mapping[int, Sequence[int]]) -> int:
    """Store these columns of the documents of these events with a new version; return how many."""
    if not changed:
        return 0
    with transactions.write():
        state = _lock_state(skip_locked=True)
        if state is None:
            return 0  # The index is being written: the next report finds the same difference.
        state.version += 1
        documents = list(SearchDocument.objects.filter(event_id__in=list(changed)))
        for document in documents:
            for column, value in zip(columns, changed[document.event_id], strict=True):
                setattr(document, column, value)
            document.version = state.version
        SearchDocument.objects.bulk_update(documents, [*columns, "version"], batch_size=_BATCH)
        state.save(update_fields=["version"])
    return len(documents)


def events_without_reported_stock(count: int) -> list[int]:
    """Return up to `count` events to come of which no stock has been reported, soonest first."""
    unreported = SearchDocument.objects.filter(available=None, is_live=True, starts_at__gt=clock.now())
    return list(unreported.order_by("starts_at").values_list("event_id", flat=True)[:count])


def rebuild() -> int:
    """Write the whole index anew in one transaction, without events that are over; return how many it has.

    Until the commit, searches use the previous index. Reported stock is kept.
    """
    with transactions.write(lock_ms=_REBUILD_MS, statement_ms=_REBUILD_MS, idle_ms=_REBUILD_MS):
        state = _lock_state()
        assert state is not None
        # Before the events are read: what changes later has another note, which stays.
        SearchChange.objects.all()._raw_delete(using="default")
        kept = {
            event_id: Stock(available or 0, accessible)
            for event_id, available, accessible in SearchDocument.objects.exclude(available=None).values_list(
                "event_id", "available", "accessible"
            )
        }
        for model in (SearchPosting, SearchDocument, SearchTerm):
            model.objects.all()._raw_delete(using="default")
        state.version += 1
        state.generation += 1
        count = _write_all(state.version, kept)
        state.save(update_fields=["version", "generation"])
    return count


def vacuum() -> None:
    """Vacuum the postings after a rebuild, so that searches read them from their index alone. No transaction may be
    open. Lifts the statement timeout of this connection."""
    with connection.cursor() as cursor:
        _lift_timeout.count(cursor)
        _vacuum.count(cursor)


def _write_all(version: int, kept: Mapping[int, Stock]) -> int:
    public = Event.objects.exclude(status=Event.Status.DRAFT).filter(starts_at__gt=clock.now() - OVER)
    event_ids = public.order_by("starts_at", "pk").values_list("pk", flat=True)
    term_ids: dict[tuple[str, str], int] = {}
    counts: Counter[int] = Counter()
    count = 0
    for chunk in batched(list(event_ids), _REBUILD_EVENTS):
        documents = list(read_documents(chunk))
        _add_terms(documents, term_ids)
        rows = [
            _row(count + offset, document, version, kept.get(document.facts.event_id))
            for offset, document in enumerate(documents)
        ]
        SearchDocument.objects.bulk_create(rows, batch_size=_BATCH)
        postings = list(_postings(zip((row.number for row in rows), documents, strict=True), term_ids))
        counts.update(term_id for term_id, _, _ in postings)
        with connection.cursor() as cursor, connection.wrap_database_errors, cursor.copy(_copy_postings.text) as copy:
            for posting in postings:
                copy.write_row(posting)
        count += len(rows)
    _count(counts)
    return count


def _row(number: int, document: Document, version: int, left: Stock | None) -> SearchDocument:
    return SearchDocument(
        number=number,
        digest=document.digest,
        version=version,
        text_version=version,
        available=None if left is None else left.available,
        accessible=0 if left is None else left.accessible,
        **asdict(document.facts),
    )


def _postings(
    documents: Iterable[tuple[int, Document]], term_ids: Mapping[tuple[str, str], int]
) -> Iterator[tuple[int, int, int]]:
    for number, document in documents:
        for text, weight in document.weights.items():
            yield term_ids[document.language, text], number, weight


def _lock_state(*, skip_locked: bool = False) -> SearchState | None:
    transactions.require_transaction()
    found = SearchState.objects.select_for_update(no_key=True, skip_locked=skip_locked).first()
    if found is None and not SearchState.objects.exists():
        SearchState.objects.bulk_create([SearchState()], ignore_conflicts=True)
        found = SearchState.objects.select_for_update(no_key=True, skip_locked=skip_locked).first()
    return found


def _index(event_ids: set[int], version: int) -> None:
    documents = {document.facts.event_id: document for document in read_documents(event_ids)}
    known = {row.event_id: row for row in SearchDocument.objects.filter(event_id__in=event_ids)}
    next_number = (SearchDocument.objects.aggregate(last=Max("number"))["last"] or 0) + 1 if documents else 0
    term_ids: dict[tuple[str, str], int] = {}
    rewritten: dict[int, Document | None] = {}
    new, changed = [], []
    for event_id, document in documents.items():
        row = known.get(event_id)
        if row is None:
            new.append(_row(next_number, document, version, None))
            rewritten[next_number] = document
            next_number += 1
            continue
        facts = asdict(document.facts)
        if row.digest != document.digest:
            rewritten[row.number] = document
            row.digest, row.text_version = document.digest, version
        elif all(getattr(row, name) == value for name, value in facts.items()):
            continue
        for name, value in facts.items():
            setattr(row, name, value)
        row.version = version
        changed.append(row)
    for event_id in known.keys() - documents.keys():
        row = known[event_id]
        if row.is_live:
            rewritten[row.number] = None
            row.is_live, row.digest, row.text_version, row.version = False, "", version, version
            changed.append(row)
    SearchDocument.objects.bulk_create(new, batch_size=_BATCH)
    SearchDocument.objects.bulk_update(
        changed,
        ["digest", "text_version", "version", *(name for name in Facts.__slots__ if name != "event_id")],
        batch_size=_BATCH,
    )
    _add_terms([document for document in rewritten.values() if document is not None], term_ids)
    counts: Counter[int] = Counter()
    old = SearchPosting.objects.filter(number__in=list(rewritten))
    counts.subtract(old.values_list("term_id", flat=True))
    old._raw_delete(using="default")
    present = [(number, document) for number, document in rewritten.items() if document is not None]
    postings = list(_postings(present, term_ids))
    SearchPosting.objects.bulk_create(
        (SearchPosting(term_id=term_id, number=number, weight=weight) for term_id, number, weight in postings),
        batch_size=_BATCH,
    )
    counts.update(term_id for term_id, _, _ in postings)
    _count(counts)


def _add_terms(documents: Iterable[Document], term_ids: dict[tuple[str, str], int]) -> None:
    """Add the terms of these documents that are new, and the ids of all their terms to `term_ids`."""
    wanted: dict[tuple[str, str], str] = {}
    for document in documents:
        for text in document.weights:
            key = (document.language, text)
            if key not in term_ids:
                wanted.setdefault(key, document.written[text])
    if not wanted:
        return
    _read_term_ids(wanted, term_ids)
    new = [_term(*key, written) for key, written in wanted.items() if key not in term_ids]
    SearchTerm.objects.bulk_create(new, batch_size=_BATCH)
    term_ids.update({(term.language, term.text): term.pk for term in new})


def _read_term_ids(wanted: Mapping[tuple[str, str], str], term_ids: dict[tuple[str, str], int]) -> None:
    by_language: dict[str, list[str]] = {}
    for language, text in wanted:
        by_language.setdefault(language, []).append(text)
    for language, texts in by_language.items():
        found = SearchTerm.objects.filter(language=language, text__in=texts).values_list("text", "pk")
        term_ids.update({(language, text): pk for text, pk in found})


def _term(language: str, text: str, written: str) -> SearchTerm:
    first, second = metaphone.codes(text)
    return SearchTerm(
        language=language,
        text=text,
        stem=stem(written, language)[:WORD_CHARACTERS_MAX],
        written=written,
        sound=first,
        second_sound=second,
    )


def batched(items: Iterable[Item], count: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `count`; `itertools.batched` needs Python 3.12."""
    left = iter(items)
    while part := list(islice(left, count)):
        yield part


def _count(counts: Mapping[int, int]) -> None:
    """Add to the number of documents of these terms, and delete those that are in no document any more."""
    changed = sorted((term_id, delta) for term_id, delta in counts.items() if delta)
    for part in batched(changed, 20_000):
        with connection.cursor() as cursor:
            _change_counts.count(cursor, term_ids=[term_id for term_id, _ in part], deltas=[delta for _, delta in part])
        fallen = [term_id for term_id, delta in part if delta < 0]
        SearchTerm.objects.filter(pk__in=fallen, document_count__lte=0)._raw_delete(using="default")
