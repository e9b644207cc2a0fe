"""What a search and its type-ahead cost, as ratios to one read by primary key through the same view, with 1,000 and
100,000 events.

    python -m benchmarks.experiments.discovery.event_search [--sizes 1000,100000] [--searches 600]

Starts PostgreSQL and Valkey for itself and removes them afterwards. Events have names, performers, venues, cities, tags
and texts of made-up words whose frequencies fall as in natural texts. The searches, in one process through Django's
handler without a network: words of one event's name, one word with two words of the venue's city, a common tag with
filters, a misspelled performer, two words written as one, and a word that only sounds alike. The first request for each
word reads its postings from the database; every search here is a new one, as most are in a young process. Requests for
searches, type-ahead and the read by primary key take turns, so that other load concerns all of them alike. Goal: p50
and p99 at most 3 times those of the read, acceptable 8 times; at most twice as much for 100,000 events as for 1,000.
"""

import argparse
import itertools
import os
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from tests.support.servers import temporary_server_folder
from ticketing.devserver import postgres
from ticketing.devserver.servers import new_password

GOAL, ACCEPTABLE, GROWTH_MAX = 3.0, 8.0, 2.0
_CONSONANTS, _VOWELS = "bcdfghklmnprstvwz", "aeiou"
CITIES, VENUES_EACH = 60, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,100000", help="numbers of events")
    parser.add_argument("--searches", type=int, default=600, help="of each kind together, after as many to warm up")
    options = parser.parse_args()
    found = {}
    for size in (int(part) for part in options.sizes.split(",")):
        with _database():
            found[size] = measure(size, options.searches)
    sizes = sorted(found)
    for kind in ("search", "type-ahead"):
        first, last = found[sizes[0]][kind], found[sizes[-1]][kind]
        growth = [round(after / before, 2) for before, after in zip(first, last, strict=True)]
        print(f"{kind}: from {sizes[0]:,} to {sizes[-1]:,} events p50 × {growth[0]}, p99 × {growth[1]}")


@contextmanager
def _database() -> Iterator[None]:
    from ticketing.devserver import valkey

    folder, end = temporary_server_folder()
    try:
        cluster = postgres.start(folder, password=new_password(), superuser_password=new_password())
        os.environ["DATABASE_URL"] = cluster.url()
        os.environ["REDIS_URL"] = valkey.start(folder, password=new_password()).url
        os.environ["SECRET_KEY"] = "public-key-of-all-benchmarks-never-use-elsewhere-" + new_password()
        os.environ["LOG_LEVEL"] = "ERROR"
        os.environ["DJANGO_SETTINGS_MODULE"] = "ticketing.settings"
        _set_up(cluster.url())
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        yield
    finally:
        end()


def _set_up(url: str) -> None:
    import django
    from django.conf import settings
    from django.db import connections

    django.setup()
    settings.ALLOWED_HOSTS = ["*"]
    # A second size in the same process has another database.
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    connections.close_all()
    database = connections.settings["default"]
    database.update(
        HOST=parts.hostname, PORT=str(parts.port), PASSWORD=parts.password, USER=parts.username, NAME=parts.path[1:]
    )
    if hasattr(connections["default"], "close_pool"):
        connections["default"].close_pool()
    del connections["default"]


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


def measure(size: int, count: int) -> dict[str, tuple[float, float]]:
    """Print and return p50 and p99 of searches and of type-ahead, as ratios to the read by primary key."""
    from django.test import RequestFactory
    from rest_framework.request import Request
    from rest_framework.response import Response

    from apps.events.api_views import PublicView
    from apps.events.models import Event
    from apps.events.search import api_views, index_writer
    from apps.events.search.memory import index

    class ByKey(PublicView):
        def get(self, request: Request) -> Response:
            slug, name = Event.objects.values_list("slug", "name").get(pk=int(request.query_params["pk"]))
            return api_views.respond({"results": [{"event": slug, "name": name, "matched": None}]})

    begun = time.monotonic()
    texts = fill(size)
    print(f"{size:,} events written in {time.monotonic() - begun:.0f} s; ", end="")
    begun = time.monotonic()
    index_writer.rebuild()
    index_writer.vacuum()
    print(f"indexed in {time.monotonic() - begun:.0f} s; ", end="")
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.monotonic()
    index.clear()
    index.refresh()
    loaded = time.monotonic() - begun
    begun = time.monotonic()
    index.vocabulary.prepare()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before) / 1024
    print(
        f"read into memory in {loaded:.1f} s and prepared in {time.monotonic() - begun:.1f} s, "
        f"{len(index.vocabulary.words):,} words, at most {grown:.0f} MB more"
    )
    keys = list(Event.objects.values_list("pk", flat=True)[:5_000])
    request = RequestFactory().get
    views: dict[str, Callable[[dict[str, str]], Any]] = {
        "search": lambda query: api_views.Search.as_view()(request("/api/search", query)).render(),
        "type-ahead": lambda query: api_views.Suggestions.as_view()(
            request("/api/search/suggestions", {"q": query["q"][: max(3, len(query["q"]) * 2 // 3)]})
        ).render(),
        "by key": lambda _: ByKey.as_view()(request("/api/key", {"pk": random.choice(keys)})).render(),  # noqa: S311
    }
    asked = queries(texts, 2 * count)
    for query in asked[:count]:
        for view in views.values():
            assert view(query).status_code == 200
    times: dict[str, list[float]] = {name: [] for name in views}
    for query in asked[count:]:
        for name, view in views.items():
            started = time.perf_counter()
            view(query)
            times[name].append(1_000 * (time.perf_counter() - started))
    quantiles = {name: _quantiles(values) for name, values in times.items()}
    base = quantiles["by key"]
    print("| request | p50, ms | p99, ms | p50 ratio | p99 ratio |\n| --- | ---: | ---: | ---: | ---: |")
    for name, (middle, high) in quantiles.items():
        print(f"| {name} | {middle:.2f} | {high:.2f} | {middle / base[0]:.2f} | {high / base[1]:.2f} |")
    return {name: quantiles[name] for name in ("search", "type-ahead")}


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    ordered = statistics.quantiles(values, n=100)
    return ordered[49], ordered[98]


if __name__ == "__main__":
    main()
