"""Reconciliation of the search index with the events: events that it lacks, and documents that are out of date."""

import random
from collections.abc import Iterator

from django.db import connection
from django.db.models import Max

from apps.events.models import SearchChange, SearchDocument
from apps.events.search import index_writer
from apps.events.search.documents import read_documents
from apps.kernel.checks import reconciler
from apps.kernel.checks.reconciler import GONE, REPAIRED, Difference
from apps.kernel.db import sql, transactions

FOUND_MAX = 1_000
SAMPLE = 50
"""Documents of each run that are compared with their event word by word."""

_missing = sql.load("apps.events", "search_missing")


def register() -> None:
    reconciler.register(
        "search index",
        "the search knows every public event as it is",
        _find,
        _repair,
        kinds=("search_missing", "search_outdated"),
    )


def _find(event_id: int | None) -> Iterator[Difference]:
    with connection.cursor() as cursor:
        missing = {found for (found,) in _missing.rows(cursor, event_id=event_id, limit=FOUND_MAX)}
    for found in sorted(missing):
        line = f"event {found}: public or in the search index, but not both, and no note of a change"
        yield Difference("search_missing", line, found)
    documents = SearchDocument.objects.filter(is_live=True)
    if event_id is not None:
        documents = documents.filter(event_id=event_id)
    else:
        last = documents.aggregate(last=Max("number"))["last"] or 0
        first = random.randint(0, max(0, last - SAMPLE))  # noqa: S311 - A sample, no secret.
        documents = documents.filter(number__gte=first)
    stored = dict(documents.order_by("number").values_list("event_id", "digest")[:SAMPLE])
    noted = set(SearchChange.objects.filter(event_id__in=list(stored)).values_list("event_id", flat=True))
    for document in read_documents(stored.keys() - noted - missing):
        found = document.facts.event_id
        if document.digest != stored[found]:
            yield Difference("search_outdated", f"event {found}: its texts differ from the search index", found)


def _repair(difference: Difference, by: str) -> str:
    with transactions.write():
        SearchChange.objects.create(event_id=difference.about)
    while index_writer.index_changes():
        pass
    return GONE if any(found.about == difference.about for found in _find(difference.about)) else REPAIRED
