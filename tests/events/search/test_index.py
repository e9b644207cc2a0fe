"""The search index: it follows every change after its commit, exactly once, and is the same after a rebuild."""

import random
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.events.models import Event, SearchChange, SearchDocument, SearchPosting, SearchTerm, Synonym, Venue
from apps.events.search import engine, index_writer, memory, postings, reconciliation
from apps.events.search.memory import FACTS, Index, index
from apps.events.search.words import vocabulary
from apps.kernel import clock
from apps.kernel.checks import reconciler
from apps.kernel.db import transactions
from tests.support.factories import make_event
from tests.support.races import storm, values


def _found(text: str, **values: object) -> list[str]:
    index.refresh(at_once=True)
    return [result.slug for result in engine.search(engine.Query(text=text, **values)).results]  # type: ignore[arg-type]


def _index_all() -> None:
    while index_writer.index_changes():
        pass


def _postings() -> set[tuple[int, str, str, int]]:
    events = dict(SearchDocument.objects.values_list("number", "event_id"))
    rows = SearchPosting.objects.values_list("number", "term__language", "term__text", "weight")
    return {(events[number], *rest) for number, *rest in rows}


@pytest.mark.django_db
def test_an_event_is_found_once_it_is_public_and_by_its_new_texts_after_each_kind_of_change() -> None:
    event = make_event("concert", name="Summer Concert", rows=1)
    Event.objects.filter(pk=event.id).update(status="draft")
    _index_all()
    assert _found("concert") == []
    Event.objects.filter(pk=event.id).update(status="published")
    _index_all()
    assert _found("concert") == ["concert"]
    Event.objects.filter(slug="concert").update(performers="Odile Marchetti")
    assert _found("odile") == []
    _index_all()
    assert _found("odile") == ["concert"]
    Venue.objects.filter(events__slug="concert").update(city="Reykjavík")
    _index_all()
    assert _found("reykjavik") == ["concert"]
    assert _found("", city="Reykjavík") == ["concert"]
    Event.objects.filter(slug="concert").update(name="Autumn Recital")
    _index_all()
    assert _found("summer") == []
    assert _found("recital autumn") == ["concert"]
    Event.objects.filter(slug="concert").update(starts_at=clock.now() - timedelta(hours=1), doors_at=None)
    _index_all()
    assert _found("recital") == []


@pytest.mark.django_db
@pytest.mark.parametrize(("packed_share", "texts_max"), [(200, 500), (0, 500), (200, 3)])
def test_a_process_that_applied_changes_has_what_a_fresh_one_reads_and_a_rebuild_writes(
    packed_share: int, texts_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sets are kept as integers or packed, and corrected until too many texts have changed."""
    monkeypatch.setattr(postings, "_PACKED_SHARE", packed_share)
    for module in (memory, postings):
        monkeypatch.setattr(module, "CHANGED_TEXTS_MAX", texts_max)
    dice = random.Random(5)
    words = ["jazz", "rock", "opera", "hamlet", "faust", "tango", "ballet", "choir", "gospel", "circus"]
    for number in range(6):
        make_event(f"e{number}", name=" ".join(dice.sample(words, 3)), rows=0, general_admission=5)
    _index_all()
    for word in words:
        _found(word)  # Its postings are in memory from now on.
    for round_ in range(8):
        event = Event.objects.get(slug=f"e{dice.randrange(6)}")
        event.name, event.tags = " ".join(dice.sample(words, 2)), f"new{round_}"
        event.starts_at += timedelta(days=dice.randint(1, 50))
        event.save()
        if round_ % 3 == 0:
            index_writer.report_stock({event.pk: index_writer.Stock(round_, round_ % 2)})
        _index_all()
        fresh = Index()
        fresh.refresh()
        index.refresh(at_once=True)
        for name in ("live", "left", "accessible", "priced", "start_planes", "price_planes", "rank_planes"):
            assert getattr(index.documents, name) == getattr(fresh.documents, name), name
        ids = list(SearchTerm.objects.values_list("pk", flat=True))
        assert index.levels_of(ids, index.generation) == fresh.levels_of(ids, fresh.generation)
        assert _found(f"new{round_}") == [event.slug]
    assert FACTS[0] == "number"
    before = _postings(), {word: sorted(_found(word)) for word in words}
    counts = dict(SearchTerm.objects.filter(document_count__gt=0).values_list("text", "document_count"))
    index_writer.rebuild()
    assert (_postings(), {word: sorted(_found(word)) for word in words}) == before
    assert dict(SearchTerm.objects.values_list("text", "document_count")) == counts


@pytest.mark.django_db
def test_a_warm_process_searches_without_reading_postings_and_within_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(8):
        make_event(f"e{number}", name=f"Nightjar word{number}", rows=0, general_admission=5)
    _index_all()

    def statements_of_postings() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert len(engine.search(engine.Query(text="nightjar")).results) == 8
            assert engine.complete("nightjar wor")[0]
        return sum("events_searchposting" in one["sql"] for one in captured.captured_queries)

    index.refresh()
    assert statements_of_postings() > 0  # The control: this process has read no posting yet.
    index.clear()
    index.warm()
    assert index._postings.is_warm
    assert statements_of_postings() == 0
    monkeypatch.setattr(postings, "BYTES_MAX", 1_500)
    monkeypatch.setattr(postings, "COMMON_BYTES_MAX", 1_000)
    index.clear()
    index.warm()
    assert 0 < index._postings._bytes <= 1_000
    assert statements_of_postings() > 0
    assert index._postings._bytes <= 1_500


@pytest.mark.django_db
def test_words_that_no_event_has_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "ADDED_MIN", 30)
    make_event("concert", name="Summer Concert", rows=0, general_admission=5)
    _index_all()
    assert _found("concert") == ["concert"]
    sizes = []
    for turn in range(12):
        words = [f"word{letter}x{turn}" for letter in "abcdefgh"]
        Event.objects.filter(slug="concert").update(description=" ".join(words))
        _index_all()
        assert _found(words[0]) == ["concert"]
        sizes.append((SearchTerm.objects.count(), len(index.vocabulary.words)))
    assert len({terms for terms, _ in sizes}) == 1
    assert max(words for _, words in sizes) <= sizes[0][0] + 30
    # A process that missed more terms than that reads the vocabulary anew.
    for turn in range(6):
        make_event(
            f"e{turn}", name=" ".join(f"name{letter}{turn}" for letter in "abcdefgh"), rows=0, general_admission=5
        )
    _index_all()
    assert _found("namec4") == ["e4"]
    assert _found("concert") == ["concert"]


@pytest.mark.django_db(transaction=True)
def test_concurrent_loops_index_each_change_once_and_a_change_in_progress_is_indexed_after_its_commit() -> None:
    for number in range(3):
        make_event(f"e{number}", name=f"Evening {number}", rows=0, general_admission=5)
    # A control: without the note that the trigger writes with it, the change would stay unknown to the index.
    with transactions.write():
        Event.objects.filter(slug="e0").update(name="Matinee")
        assert sum(values(storm(3, lambda _: index_writer.index_changes()))) == 3
        assert SearchDocument.objects.count() == 3
    assert _found("matinee") == []
    assert _found("evening", sort="date")[0] == "e0"
    assert sum(values(storm(3, lambda _: index_writer.index_changes()))) == 1
    assert _found("matinee") == ["e0"]
    assert not SearchChange.objects.exists()
    assert sorted(SearchDocument.objects.values_list("number", flat=True)) == [1, 2, 3]


@pytest.mark.django_db(transaction=True)
def test_searches_go_on_while_events_change_and_the_index_is_rebuilt() -> None:
    """One thread renames events and rebuilds the index, the others search: each finds its word or not, none fails."""
    for number in range(4):
        make_event(f"e{number}", name=f"Evening nightjar {number}", rows=0, general_admission=5)
    _index_all()

    def act(turn: int) -> int:
        for round_ in range(12):
            if turn == 0:
                Event.objects.filter(slug=f"e{round_ % 4}").update(
                    name=f"Evening kestrel {round_}", language="deen"[:2]
                )
                index_writer.rebuild() if round_ % 3 == 0 else index_writer.index_changes()
            else:
                index.refresh(at_once=True)
                for text in ("nightjr", "evening kestrel", "eveningkestrel", "kes"):
                    assert engine.search(engine.Query(text=text)).total <= 4
                    engine.complete(text)
        return 1

    assert sum(values(storm(4, act))) == 4
    _index_all()
    assert sorted(_found("kestrel")) == ["e0", "e1", "e2", "e3"]
    assert _found("nightjar") == []


@pytest.mark.django_db
def test_the_reconciler_finds_and_repairs_what_the_index_lacks_or_has_wrong() -> None:
    reconciliation.register()
    event = make_event("concert", name="Nightjar", rows=0, general_admission=5)
    assert list(reconciliation._find(None)) == []
    _index_all()
    assert list(reconciliation._find(None)) == []
    SearchDocument.objects.update(digest="wrong")
    assert [found.kind for found in reconciliation._find(event.id)] == ["search_outdated"]
    SearchPosting.objects.all()._raw_delete(using="default")
    SearchDocument.objects.all().delete()
    (finding,) = [found for found in reconciler.run(repair_by="an operator") if found.name == "search index"]
    assert [(one.difference.kind, one.state) for one in finding.outcomes] == [("search_missing", reconciler.REPAIRED)]
    index.clear()
    assert _found("nightjar") == ["concert"]


@pytest.mark.django_db
def test_synonyms_of_staff_count_at_once_and_are_checked() -> None:
    staff = Client(headers={"Sec-Fetch-Site": "same-origin"})
    staff.force_login(get_user_model().objects.create_superuser("organizer", "o@example.com", "secret"))
    make_event("concert", name="Zydeco Evening", rows=0, general_admission=5)
    _index_all()
    assert _found("cajun swamp") == []
    add = reverse("admin:events_synonym_add")
    assert "Enter 2 to 20" in staff.post(add, {"words": "zydeco, ", "note": ""}).content.decode()
    assert staff.post(add, {"words": "Zydeco, cajun swamp", "note": ""}).status_code == 302
    assert _found("cajun swamp") == ["concert"]
    synonym = Synonym.objects.get(words__startswith="Zydeco")
    staff.post(reverse("admin:events_synonym_delete", args=[synonym.pk]), {"post": "yes"})
    assert _found("cajun swamp") == []
