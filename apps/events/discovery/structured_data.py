"""An event as schema.org data, for search engines, and the links of its page: map, canonical address."""

import json
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode, urljoin
from zoneinfo import ZoneInfo

from django.conf import settings
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

from apps.events.selectors import EventPage
from apps.kernel import formatting

MAP_URL = "https://www.openstreetmap.org"
MAP_ZOOM = 17
DESCRIPTION_CHARACTERS_MAX = 300
_AVAILABILITY = {"on_sale": "InStock", "sold_out": "SoldOut", "upcoming": "PreOrder", "closed": "Discontinued"}
_ESCAPES = {ord(">"): "\\u003E", ord("<"): "\\u003C", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def absolute_url(path: str) -> str:
    return urljoin(settings.SITE_URL, path)


def map_url(page: EventPage) -> str:
    """Return the venue's place on a map: by its coordinates, else a search for its address. Empty without both."""
    details, card = page.details, page.card
    if details.latitude is not None and details.longitude is not None:
        place = urlencode({"mlat": details.latitude, "mlon": details.longitude})
        return f"{MAP_URL}/?{place}#map={MAP_ZOOM}/{details.latitude}/{details.longitude}"
    if not details.address:
        return ""
    return f"{MAP_URL}/search?query={quote(', '.join(part for part in (details.address, card.city) if part))}"


def summary(page: EventPage) -> str:
    """Return the short description, or the first sentences of the description, in one line, for previews; else name,
    venue and date."""
    text = " ".join((page.card.summary or page.card.description).split())
    if len(text) > DESCRIPTION_CHARACTERS_MAX:
        text = f"{text[:DESCRIPTION_CHARACTERS_MAX].rsplit(' ', 1)[0]} …"
    when = _at_venue(page.card.starts_at, page.card.timezone)
    return text or f"{page.card.name}, {page.card.venue_name}, {when.day} {when:%B %Y}."


def structured_data(page: EventPage) -> SafeString:
    """Return the JSON-LD of the event, to be put into a script element as data, which no policy needs to allow."""
    text = json.dumps(_event(page), ensure_ascii=False, separators=(",", ":"))
    return mark_safe(text.translate(_ESCAPES))  # noqa: S308 - no character of the text can end the element.


def _event(page: EventPage) -> dict[str, Any]:
    card, details = page.card, page.details
    url = absolute_url(reverse("events:event", args=[card.slug]))
    address = {"streetAddress": details.address, "addressLocality": card.city}
    place: dict[str, Any] = {
        "@type": "Place",
        "name": card.venue_name,
        "address": {"@type": "PostalAddress"} | {name: value for name, value in address.items() if value},
    }
    if details.latitude is not None:
        place["geo"] = {"@type": "GeoCoordinates", "latitude": details.latitude, "longitude": details.longitude}
    data: dict[str, Any] = {
        "@context": "https://schema.org",
        "@type": "Event",
        "name": card.name,
        "url": url,
        "startDate": _iso(card.starts_at, card.timezone),
        "eventStatus": f"https://schema.org/{_status(page)}",
        "eventAttendanceMode": "https://schema.org/OfflineEventAttendanceMode",
        "location": place,
        "image": [absolute_url(reverse("events:poster", args=[card.slug]))],
        "description": summary(page),
        "organizer": {"@type": "Organization", "name": details.organizer_name},
    }
    if card.performers:
        data["performer"] = [{"@type": "PerformingGroup", "name": name} for name in card.performers]
    moved_from = details.moved_from if details.moved_from != card.starts_at else None
    times = (("endDate", details.ends_at), ("doorTime", details.doors_at), ("previousStartDate", moved_from))
    for name, moment in times:
        if moment is not None:
            data[name] = _iso(moment, card.timezone)
    if details.organizer_email:
        data["organizer"]["email"] = details.organizer_email
    prices = [price.price_minor for section in page.sections for price in section.prices]
    if prices and card.state in _AVAILABILITY:
        data["offers"] = {
            "@type": "AggregateOffer",
            "url": url,
            "priceCurrency": card.currency,
            "lowPrice": _amount(min(prices), card.currency),
            "highPrice": _amount(max(prices), card.currency),
            "availability": f"https://schema.org/{_AVAILABILITY[card.state]}",
            "validFrom": _iso(card.opens_at, card.timezone),
        }
    return data


def _status(page: EventPage) -> str:
    if page.card.state == "canceled":
        return "EventCancelled"
    return "EventScheduled" if page.details.moved_from in (None, page.card.starts_at) else "EventRescheduled"


def _at_venue(moment: datetime, timezone: str) -> datetime:
    return moment.astimezone(ZoneInfo(timezone))


def _iso(moment: datetime, timezone: str) -> str:
    return _at_venue(moment, timezone).isoformat(timespec="minutes")


def _amount(amount_minor: int, currency: str) -> str:
    """Return the amount as a plain decimal number, "45.00"."""
    decimals = formatting.minor_digits(currency)
    text = str(amount_minor).rjust(decimals + 1, "0")
    return f"{text[:-decimals]}.{text[-decimals:]}" if decimals else text
