"""The search in the API and on the catalog's page: filters, facets, pages, corrections and marks."""

from datetime import timedelta
from urllib.parse import quote

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.events.demo.season import load_season
from apps.events.models import Event
from apps.events.search import index_writer
from apps.events.search.memory import index
from apps.events.search.words.metaphone import codes
from apps.kernel import clock
from apps.reservations.counts import search_stock
from tests.support.factories import make_event

pytestmark = pytest.mark.django_db


def _index() -> None:
    while index_writer.index_changes():
        pass
    index.refresh(at_once=True)


@pytest.fixture
def season() -> None:
    load_season()
    _index()


def _get(**parameters: object) -> dict:
    response = Client().get("/api/search", parameters)
    assert response.status_code == 200, response.content
    return response.json()


def test_a_shopper_who_types_swarzeneger_in_newyork_gets_that_evening_first(season: None) -> None:
    found = _get(q="swarzeneger in newyork")
    assert found["results"][0]["name"] == "An Evening with Arnold Schwarzenegger"
    assert found["results"][0]["matched"] in ("sound", "spelling")
    assert "new-york" in found["results"][0]["event"]
    assert found["did_you_mean"] == "schwarzenegger in new york"
    page = Client().get("/", {"q": "swarzeneger in newyork"}).content.decode()
    assert 'Did you mean <a href="/?q=schwarzenegger+in+new+york"' in page
    assert "<mark>Schwarzenegger</mark>" in page
    assert "Match: <span>" in page


def test_results_come_in_pages_with_facets_that_agree_with_the_filters(season: None) -> None:
    found = _get(q="jazz", size=4)
    assert set(found) == {"results", "did_you_mean", "ignored", "facets", "total", "next", "suggestions"}
    assert set(found["results"][0]) == {"event", "name", "matched"}
    seen = [result["event"] for result in found["results"]]
    while found["next"]:
        found = Client().get(found["next"]).json()
        seen += [result["event"] for result in found["results"]]
    assert len(seen) == len(set(seen)) == found["total"] > 4
    for name, values in _get().get("facets").items():
        for value in values:
            narrowed = _get(**{name: value["value"]})
            assert narrowed["total"] == value["count"], (name, value)
    cities = {value["value"]: value["count"] for value in _get(city="Berlin")["facets"]["city"]}
    assert len(cities) == 12
    assert sum(cities.values()) == _get()["total"] == 300
    day = Event.objects.filter(venue__city="Wien").earliest("starts_at").starts_at.date()
    assert _get(when=f"{day}..{day + timedelta(days=2)}", city="Wien")["total"] >= 1
    prices = [
        Event.objects.get(slug=result["event"]).categories.get().price_minor
        for result in _get(q="klassik", sort="price", size=50)["results"]
    ]
    assert prices == sorted(prices) != []


def test_availability_and_accessible_seats_are_those_that_reservations_report() -> None:
    make_event("open", name="Gala Open", rows=1, accessible=frozenset({"hall-A-1"}))
    make_event("plain", name="Gala Plain", rows=1)
    gone = make_event("gone", name="Gala Gone", rows=1)
    _index()
    assert search_stock.report_stock() == 3
    assert search_stock.report_stock() == 0
    index_writer.report_stock({gone.id: index_writer.Stock(0, 0)})
    index.refresh(at_once=True)
    assert [one["event"] for one in _get(q="gala", accessible=1)["results"]] == ["open"]
    assert {one["event"] for one in _get(q="gala", available=1)["results"]} == {"open", "plain"}
    assert _get(q="gala")["results"][-1]["event"] == "gone"
    index_writer.rebuild()
    index.refresh(at_once=True)
    assert _get(q="gala", accessible=1)["total"] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"when": "someday"}, {"when": "2027-02-30"}, {"when": "2027-05-02..2027-05-01"}, {"sort": "random"},
        {"page": "0"}, {"page": "51"}, {"page": "x"}, {"size": "51"}, {"price_max": "-1"}, {"available": "yes"},
        {"city": "x" * 121},
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_named(wrong: dict) -> None:
    response = Client().get("/api/search", wrong)
    assert response.status_code == 422
    assert list(response.json()["errors"]) == list(wrong)
    page = Client().get("/", wrong)
    assert page.status_code == 200
    assert "Filter: " in page.content.decode()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=120), st.sampled_from(["q", "city", "when", "sort"]))
def test_no_text_makes_the_search_fail(text: str, name: str) -> None:
    client = Client()
    value = quote(text.encode("utf-8", "surrogatepass"))
    for path in ("/api/search", "/api/search/suggestions", "/"):
        assert client.get(f"{path}?{name}={value}").status_code in (200, 422)
    codes(text)


def test_marks_and_words_of_the_query_are_escaped() -> None:
    make_event("concert", name="<b>Tango</b> & Co", rows=0, general_admission=5)
    _index()
    page = Client().get("/", {"q": "tango <script>alert(1)</script>"}).content.decode()
    assert "<script>alert" not in page
    assert "&lt;b&gt;<mark>Tango</mark>&lt;/b&gt; &amp; Co" in page
    assert '<s dir="auto">' in page


def test_without_results_shorter_searches_are_suggested_that_have_some(season: None) -> None:
    found = _get(q="tango hamlet")
    assert found["total"] == 0
    assert {one["q"] for one in found["suggestions"]} == {"tango", "hamlet"}
    page = Client().get("/", {"q": "tango hamlet"}).content.decode()
    assert "These searches have results" in page
    for one in found["suggestions"]:
        assert _get(q=one["q"])["total"] == one["total"] > 0


def test_type_ahead_offers_events_and_completed_words(season: None) -> None:
    found = Client().get("/api/search/suggestions?q=arnold schw").json()
    assert found["events"][0]["name"] == "An Evening with Arnold Schwarzenegger"
    assert found["queries"] == ["arnold schwarzenegger"]
    assert Client().get("/api/search/suggestions?q=").json() == {"events": [], "queries": []}


def test_type_ahead_keeps_an_event_while_its_name_is_typed(season: None) -> None:
    name = "schwarzenegger"
    for typed in (f"arnold {name[:length]}" for length in range(1, len(name))):
        found = Client().get("/api/search/suggestions", {"q": typed}).json()
        assert found["events"][0]["name"] == "An Evening with Arnold Schwarzenegger", typed
        assert found["queries"] == [f"arnold {name}"]
    assert Client().get("/api/search/suggestions?q=berlin berlin").json()["queries"] == []


@pytest.mark.parametrize(
    "unknown", ["jazz rock", "metal opera", "bluegrass berlin", "museum at night", "wheelchair", "beyoncé", "🎸", "%"]
)
def test_what_no_event_has_is_not_replaced_by_what_is_hardly_like_it(season: None, unknown: str) -> None:
    found = _get(q=unknown)
    assert (found["total"], found["did_you_mean"]) == (0, None), found["results"][:1]


def test_a_page_past_the_end_leads_to_the_first(season: None) -> None:
    assert Client().get("/?page=24").url == "/"
    assert Client().get("/?q=jazz&page=9").url == "/?q=jazz"


def test_each_of_the_next_months_can_be_chosen(season: None) -> None:
    page = Client().get("/")
    month = next(choice for choice in page.context["filters"]["whens"] if ".." in choice.value)
    shown = Client().get("/", {"when": month.value})
    assert f"({shown.context['found']['total']})" in month.name
    assert f'<option value="{month.value}" selected>{month.name}</option>' in shown.content.decode()
    starts = Event.objects.filter(slug__in=[one["slug"] for one in shown.context["events"]]).values_list("starts_at")
    assert {f"{start:%B %Y}" for (start,) in starts} == {month.name.partition(" (")[0]}


def test_the_search_may_be_cached_and_is_the_same_for_every_visitor(season: None) -> None:
    response = Client().get("/api/search?q=jazz")
    assert "public" in response.headers["Cache-Control"]
    assert "Cookie" not in response.headers.get("Vary", "")
    assert not response.cookies


def test_the_catalog_has_pages_and_shows_an_event_before_it_is_indexed() -> None:
    for number in range(27):
        make_event(f"e{number}", rows=0, general_admission=5, starts_at=clock.now() + timedelta(days=2 + number))
    first = Client().get("/")
    assert [event["slug"] for event in first.context["events"]] == [f"e{number}" for number in range(24)]
    second = Client().get(first.context["next_url"])
    assert [event["slug"] for event in second.context["events"]] == ["e24", "e25", "e26"]
    assert (second.context["previous_url"], second.context["next_url"]) == ("/", "")
