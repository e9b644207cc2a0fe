"""Events of made-up words, searches for them, and the requests that are compared: searches, their type-ahead, and one
read by primary key through the same kind of view. All run in one process through Django's handler, without a network.

Words have frequencies that fall as in natural texts. The searches are words of one event's name, one word with two
words of the venue's city, a common tag with filters, a misspelled performer, two words written as one, and a word that
only sounds alike. Django must be set up.
"""

import itertools
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

_CONSONANTS, _VOWELS = "bcdfghklmnprstvwz", "aeiou"
CITIES, VENUES_EACH = 60, 8
BY_KEY = "by key"


class Words:
    """Made-up words; `common()` returns them with falling frequencies."""

    def __init__(self, count: int) -> None:
        self.dice = random.Random(count)  # noqa: S311 - the same words every time, no secret
        made: dict[str, None] = {}
        while len(made) < count:
            syllables = self.dice.choice((2, 3, 3, 4))
            made["".join(self.dice.choice(_CONSONANTS) + self.dice.choice(_VOWELS) for _ in range(syllables))] = None
        self.all = list(made)
        self.weights = list(itertools.accumulate(1 / (rank + 3) for rank in range(count)))

    def common(self, count: int) -> list[str]:
        return self.dice.choices(self.all, cum_weights=self.weights, k=count)

    def any(self, count: int) -> list[str]:
        return self.dice.choices(self.all, k=count)


def fill(size: int) -> list[dict[str, str]]:
    """Create this many events and return what they are called."""
    from apps.events.models import Category, Event, OnSale, Organizer, Venue
    from apps.kernel import clock

    words = Words(min(60_000, 2_000 + size))
    dice, now = words.dice, clock.now()
    organizer = Organizer.objects.create(slug="benchmark", name="Benchmark")
    cities = [" ".join(words.any(dice.choice((1, 1, 2)))).title() for _ in range(CITIES)]
    venues = Venue.objects.bulk_create(
        Venue(slug=f"venue-{number}", name=f"{' '.join(words.any(2)).title()} {number}", city=cities[number % CITIES])
        for number in range(CITIES * VENUES_EACH)
    )
    texts = []
    for number in range(size):
        venue = dice.choice(venues)
        texts.append(
            {
                "name": " ".join(words.common(3)).title(), "performers": " ".join(words.any(2)).title(),
                "tags": ", ".join(words.common(2)), "summary": " ".join(words.common(10)),
                "description": " ".join(words.common(40)), "venue": venue.pk, "city": venue.city, "number": number,
            }
        )  # fmt: skip
    for start in range(0, size, 5_000):
        part = texts[start : start + 5_000]
        events = Event.objects.bulk_create(
            Event(
                slug=f"event-{text['number']}", name=text["name"], performers=text["performers"], tags=text["tags"],
                summary=text["summary"], description=text["description"], venue_id=text["venue"], organizer=organizer,
                starts_at=now + timedelta(days=dice.uniform(1, 400)), currency="EUR", status="published",
                published_at=now,
            )
            for text in part
        )  # fmt: skip
        OnSale.objects.bulk_create(OnSale(event=event, opens_at=now) for event in events)
        Category.objects.bulk_create(
            Category(event=event, key="A", name="A", price_minor=dice.randrange(500, 15_000)) for event in events
        )
    return texts  # type: ignore[return-value]


def queries(texts: Sequence[dict[str, str]], count: int) -> list[dict[str, str]]:
    """Return this many searches, of all kinds in turn."""
    dice = random.Random(count)  # noqa: S311 - the same searches every time, no secret
    found: list[dict[str, str]] = []
    while len(found) < count:
        text = dice.choice(texts)
        name, performer = text["name"].split(), text["performers"].split()
        tag = text["tags"].split(", ")[0]
        at = dice.randrange(1, len(performer[0]) - 1)
        wrong = performer[0][:at] + dice.choice(_CONSONANTS) + performer[0][at + 1 :]
        sound = performer[0].lower().replace("c", "k").replace("f", "ph").replace("z", "s").replace("k", "c")
        found += [
            {"q": " ".join(name[:2])},
            {"q": f"{name[0]} {text['city']}"},
            {"q": tag, "when": "month", "available": "1"},
            {"q": f"{wrong} {performer[1]}"},
            {"q": "".join(performer)},
            {"q": sound},
        ]
    return found[:count]


def views() -> dict[str, Callable[[Mapping[str, str]], Any]]:
    """Return what answers a search: "search", "type-ahead" for its first two thirds, and BY_KEY, which ignores it."""
    from django.test import RequestFactory
    from rest_framework.request import Request
    from rest_framework.response import Response

    from apps.events.api_views import PublicView
    from apps.events.models import Event
    from apps.events.search import api_views

    class ByKey(PublicView):
        def get(self, request: Request) -> Response:
            slug, name = Event.objects.values_list("slug", "name").get(pk=int(request.query_params["pk"]))
            return api_views.respond({"results": [{"event": slug, "name": name, "matched": None}]})

    keys = list(Event.objects.values_list("pk", flat=True)[:5_000])
    request = RequestFactory().get
    search, suggestions, by_key = api_views.Search.as_view(), api_views.Suggestions.as_view(), ByKey.as_view()
    return {
        "search": lambda query: search(request("/api/search", query)).render(),
        "type-ahead": lambda query: suggestions(
            request("/api/search/suggestions", {"q": query["q"][: max(3, len(query["q"]) * 2 // 3)]})
        ).render(),
        BY_KEY: lambda _: by_key(request("/api/key", {"pk": random.choice(keys)})).render(),  # noqa: S311
    }


class Time(NamedTuple):
    """How long an answer took, in milliseconds."""

    total: float
    processor: float
    """Of this thread, without PostgreSQL: other load has less influence on it."""


def timed(
    answers: Mapping[str, Callable[[Mapping[str, str]], Any]], asked: Sequence[Mapping[str, str]]
) -> dict[str, list[Time]]:
    """Return the times of the answers to each of these searches; the kinds of answers take turns, so that other load
    concerns all of them alike."""
    times: dict[str, list[Time]] = {name: [] for name in answers}
    for query in asked:
        for name, answer in answers.items():
            started, processor = time.perf_counter(), time.thread_time()
            response = answer(query)
            taken = time.perf_counter() - started, time.thread_time() - processor
            times[name].append(Time(*(1_000 * seconds for seconds in taken)))
            assert response.status_code == 200, response.status_code
    return times


def quantiles(values: Sequence[float]) -> tuple[float, float]:
    """Return p50 and p99."""
    ordered = statistics.quantiles(values, n=100)
    return ordered[49], ordered[98]
