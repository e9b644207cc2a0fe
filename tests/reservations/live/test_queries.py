"""Reads of seat states: the public ids of seats are kept for a limited number of seats."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.events import facade as events
from apps.reservations.live import queries
from apps.reservations.models import SeatInventory
from tests.support.factories import make_event

pytestmark = pytest.mark.django_db


def test_public_ids_are_kept_for_the_sections_read_last(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = queries._PublicIds()
    monkeypatch.setattr(queries, "_public_ids", kept)
    monkeypatch.setattr(queries, "SEATS_KEPT_MAX", 12)
    event = make_event(rows=1, seats_per_row=5, halls=("One", "Two", "Three"))
    SeatInventory.objects.filter(seat__number="1").update(status=SeatInventory.Status.BLOCKED, blocked_for="house")
    ids = {section.slug: section.id for section in events.list_sections(event.id)}

    def count_statements(*slugs: str) -> int:
        with CaptureQueriesContext(connection) as statements:
            found = queries.read_seats([ids[slug] for slug in slugs])
        assert found == {ids[slug]: {f"{slug}-A-1": "blocked"} for slug in slugs}
        return len(statements)

    assert count_statements("one", "two") == 3
    assert count_statements("one", "two") == 1
    assert count_statements("three") == 2
    assert list(kept._sections) == [ids["two"], ids["three"]]
    assert count_statements("two") == 1
    assert count_statements("one") == 2
    assert kept._seat_count == 10
    monkeypatch.setattr(queries, "SEATS_KEPT_MAX", 3)
    assert count_statements("three") == 2
    assert list(kept._sections) == [ids["three"]], "a larger section is kept alone"
