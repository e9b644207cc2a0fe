"""Performers, tags, short description and language of an event: in the command, the API, the page and the admin."""

from datetime import timedelta

import pytest
from django.core.management import call_command
from django.test import Client

from apps.events.creation import EventRefused
from apps.events.demo.season import load_season
from apps.events.models import Event
from apps.kernel import clock
from tests.support.factories import make_event

pytestmark = pytest.mark.django_db


def test_a_repeated_command_with_texts_changes_nothing_and_the_api_and_the_page_show_them() -> None:
    starts = (clock.now() + timedelta(days=9)).isoformat(timespec="seconds")
    command = [
        "create_event", "liederabend", "--name", "Liederabend", "--venue", "Saal", "--timezone", "Europe/Berlin",
        "--starts", starts, "--currency", "EUR", "--general-admission", "Saal:50:1500", "--summary", "Lieder.",
        "--performer", "Samuel Köhler", "--performer", "Crosby, Stills & Nash", "--tag", "Klassik", "--tag", "Lied",
        "--language", "de", "--on-sale", (clock.now() - timedelta(minutes=1)).isoformat(),
    ]  # fmt: skip
    call_command(*command, verbosity=0)
    call_command(*command, verbosity=0)
    shown = Client().get("/api/events/liederabend").json()
    assert (shown["summary"], shown["language"]) == ("Lieder.", "de")
    assert (shown["performers"], shown["tags"]) == (["Samuel Köhler", "Crosby, Stills & Nash"], ["Klassik", "Lied"])
    assert "Samuel Köhler" in Client().get("/events/liederabend/").content.decode()


@pytest.mark.parametrize(
    "wrong", [{"tags": ("a,b",)}, {"language": "tlh"}, {"performers": ("",)}, {"summary": "x" * 301}]
)
def test_texts_that_cannot_be_stored_are_refused(wrong: dict) -> None:
    with pytest.raises(EventRefused):
        make_event(rows=1, **wrong)


def test_the_season_has_300_events_in_a_dozen_cities_and_is_loaded_once() -> None:
    assert load_season() == 300
    assert load_season() == 0
    events = Event.objects.all()
    assert events.values("venue__city").distinct().count() == 12
    assert set(events.values_list("language", flat=True)) == {"en", "de"}
    assert events.filter(performers__contains="Schwarzenegger", venue__city="New York").exists()
