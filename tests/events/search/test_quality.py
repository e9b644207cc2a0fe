"""The judged set: 200 queries with their best events. The set was written before the search."""

from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import pytest

from apps.events.models import Category, Event, OnSale, Organizer, Synonym, Venue
from apps.events.search import engine, index_writer
from apps.events.search.words.default_synonyms import DEFAULT_SYNONYMS
from apps.kernel import clock

FOLDER = Path(__file__).parent
pytestmark = pytest.mark.django_db


def _rows(name: str) -> list[list[str]]:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


@pytest.fixture
def judged_events() -> None:
    organizer = Organizer.objects.create(slug="judged", name="Judged")
    venues: dict[str, Venue] = {}
    now = clock.now()
    for slug, language, name, performers, venue, city, tags, summary in _rows("judged_events.tsv"):
        if venue not in venues:
            venues[venue] = Venue.objects.create(slug=f"venue-{len(venues)}", name=venue, city=city)
        event = Event.objects.create(
            slug=slug, language=language, name=name, performers=performers.replace("; ", "\n"), venue=venues[venue],
            tags=tags, summary=summary, organizer=organizer, starts_at=now + timedelta(days=40), currency="EUR",
            status="published", published_at=now,
        )  # fmt: skip
        OnSale.objects.create(event=event, opens_at=now - timedelta(days=1))
        Category.objects.create(event=event, key="A", name="A", price_minor=2_500)
    Synonym.objects.bulk_create([Synonym(words=words) for words in DEFAULT_SYNONYMS], ignore_conflicts=True)
    index_writer.rebuild()


def test_the_best_event_is_first_for_nearly_all_of_200_judged_queries(judged_events: None) -> None:
    ranks = defaultdict(list)
    misses = []
    for kind, query, best in _rows("judged_queries.tsv"):
        wanted = set(best.split(", "))
        found = [result.slug for result in engine.search(engine.Query(text=query)).results]
        rank = next((position for position, slug in enumerate(found, 1) if slug in wanted), None)
        ranks[kind].append(1 / rank if rank else 0.0)
        if rank != 1:
            misses.append(f"{kind}: {query!r} has {best} at {rank}, first {found[:3]}")
    everything = [value for values in ranks.values() for value in values]
    assert len(everything) == 200
    shown = {kind: round(sum(values) / len(values), 3) for kind, values in ranks.items()}
    mean = sum(everything) / len(everything)
    print(f"mean reciprocal rank {mean:.3f}; {shown}", *misses, sep="\n")
    assert mean > 0.9, "\n".join([f"{mean:.3f}", *misses])
    assert min(shown.values()) > 0.7, "\n".join([str(shown), *misses])
