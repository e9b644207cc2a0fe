"""What an event's page tells people and programs: place, times, organizer, refunds, and schema.org data."""

import json
import re
from datetime import timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from apps.events import registries
from apps.events.models import Event, Organizer, Venue
from apps.orders.models import ReturnPolicy
from tests.support.events.factories import in_days, make_event

pytestmark = pytest.mark.django_db
SCRIPT = re.compile(r'<script type="application/ld\+json">(.*?)</script>', re.DOTALL)


def page(slug: str = "concert") -> str:
    response = Client().get(f"/events/{slug}/")
    assert response.status_code == 200
    return str(response.content.decode())


def data_of(html: str) -> dict[str, Any]:
    (text,) = SCRIPT.findall(html)
    return dict(json.loads(text))


@pytest.fixture
def concert() -> Event:
    starts_at = in_days(40).replace(minute=0, second=0, microsecond=0)
    event = make_event("concert", name="Concert", timezone="Europe/Berlin", city="Berlin", starts_at=starts_at)
    Event.objects.update(doors_at=starts_at - timedelta(hours=1), ends_at=starts_at + timedelta(hours=2))
    Venue.objects.update(address="Am Markt 1")
    Organizer.objects.update(name="Northlight", contact_email="hello@northlight.example")
    return event


def test_the_page_shows_place_times_and_organizer(concert: Event) -> None:
    html = page()
    for text in ("Am Markt 1", "Doors open", "Ends about", "Northlight", "mailto:hello@northlight.example"):
        assert text in html
    assert 'href="https://www.openstreetmap.org/search?query=Am%20Markt%201%2C%20Berlin"' in html
    Venue.objects.update(latitude=52.52, longitude=13.4)
    assert "https://www.openstreetmap.org/?mlat=52.52&amp;mlon=13.4#map=17/52.52/13.4" in page()


def test_unknown_facts_are_left_out(concert: Event) -> None:
    Event.objects.update(doors_at=None, ends_at=None)
    Venue.objects.update(address="")
    Organizer.objects.update(name="Default organizer", contact_email="")
    html = page()
    for text in ("Doors open", "Ends about", "openstreetmap", "mailto:", "<dt>Organizer</dt>"):
        assert text not in html
    assert not {"endDate", "doorTime"} & set(data_of(html))


def test_the_refund_policy_is_stated(concert: Event) -> None:
    assert "Tickets cannot be returned. If the event is canceled, you get your money back" in page()
    ReturnPolicy.objects.create(event=concert, until_hours=48)
    assert "You can return tickets until 2 days before the start and get the price without fees back." in page()
    ReturnPolicy.objects.update(until_hours=0, keeps_fees=False)
    assert "You can return tickets until the start and get the price with fees back." in page()


def test_search_engines_get_the_event_as_data(concert: Event) -> None:
    data = data_of(page())
    assert (data["@context"], data["@type"], data["name"]) == ("https://schema.org", "Event", "Concert")
    assert data["url"].endswith("/events/concert/")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:00[+]0[12]:00", data["startDate"])
    assert data["location"]["address"] == {
        "@type": "PostalAddress", "streetAddress": "Am Markt 1", "addressLocality": "Berlin",
    }  # fmt: skip
    assert data["organizer"] == {"@type": "Organization", "name": "Northlight", "email": "hello@northlight.example"}
    offers = data["offers"]
    assert re.fullmatch(r"\d+\.\d\d", offers["lowPrice"])
    assert float(offers["lowPrice"]) <= float(offers["highPrice"])
    assert (offers["priceCurrency"], offers["availability"]) == (concert.currency, "https://schema.org/InStock")
    Event.objects.update(status=Event.Status.CANCELED)
    canceled = data_of(page())
    assert canceled["eventStatus"] == "https://schema.org/EventCancelled"
    assert "offers" not in canceled


@pytest.mark.parametrize("text", ["</script><script>alert(1)</script>", "<!--", "a & b", "\u2028", '"quoted"', "ő ř"])
def test_no_text_ends_the_data(concert: Event, text: str) -> None:
    Event.objects.update(name=text, description=text)
    html = page()
    assert "<script>alert" not in html
    assert data_of(html)["name"] == text


def test_previews_have_an_absolute_image_and_title(concert: Event, settings: Any) -> None:
    settings.SITE_URL = "https://tickets.example"
    html = page()
    assert '<meta property="og:url" content="https://tickets.example/events/concert/">' in html
    assert re.search(r'<meta property="og:image" content="https://tickets.example/static/img/share[.\w]*png">', html)
    assert '<meta property="og:title" content="Concert · ' in html
    assert '<link rel="canonical" href="https://tickets.example/events/concert/">' in html


def test_the_sitemap_lists_coming_public_events(concert: Event, settings: Any) -> None:
    settings.SITE_URL = "https://tickets.example"
    make_event("draft", draft=True)
    past = make_event("past")
    Event.objects.filter(pk=past.pk).update(starts_at=in_days(-1), doors_at=None, ends_at=None)
    response = Client().get("/sitemap.xml")
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/xml; charset=utf-8")
    found = [loc.text for loc in ElementTree.fromstring(response.content).iter() if loc.tag.endswith("loc")]
    assert found == ["https://tickets.example/", "https://tickets.example/events/concert/"]


def test_crawlers_are_kept_away_from_personal_pages(settings: Any) -> None:
    settings.SITE_URL = "https://tickets.example"
    text = Client().get("/robots.txt").content.decode()
    for line in ("User-agent: *", "Disallow: /orders/", "Disallow: /events/*/choose"):
        assert line in text.splitlines()
    assert text.rstrip().endswith("Sitemap: https://tickets.example/sitemap.xml")


def test_the_icon_is_an_icon() -> None:
    response = Client().get("/favicon.ico")
    assert (response.status_code, response.headers["Content-Type"]) == (200, "image/x-icon")
    assert response.content.startswith(b"\x00\x00\x01\x00")


@pytest.mark.parametrize(("count", "is_few"), [(8, False), (7, False), (1, True)])
def test_only_a_small_rest_of_a_sale_is_few(count: int, is_few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight seats: all of them, or most of them, are not "only" so many."""
    event = make_event("concert", general_admission=())
    provider = [lambda slugs: {event.pk: dict.fromkeys(slugs[event.pk], count)}]
    monkeypatch.setattr(registries, "_availability_providers", provider)
    for html in (page(), Client().get("/").content.decode()):
        assert (f"Only {count} left" in html, f"{count} tickets left" in html) == (is_few, not is_few)


def test_create_event_takes_the_place_of_a_new_venue(capsys: Any) -> None:
    options = {
        "name": "Fair", "venue": "Hall", "starts": "2030-05-01T20:00", "currency": "EUR", "price": [],
        "general_admission": ["Floor:10:1000"], "timezone": "Europe/Berlin",
    }  # fmt: skip
    call_command("create_event", "fair", address="Am Markt 1", coordinates=" 52.52,-13.4 ", **options)
    venue = Venue.objects.get(name="Hall")
    assert (venue.address, venue.latitude, venue.longitude) == ("Am Markt 1", 52.52, -13.4)
    for wrong in ("x", "91,0", "0,181", "1", "1,2,3", "nan,nan", ""):
        with pytest.raises(CommandError, match="coordinates"):
            call_command("create_event", "other", coordinates=wrong, **options)
    with pytest.raises(CommandError, match="address is"):
        call_command("create_event", "other", address="Elsewhere 2", **options)
