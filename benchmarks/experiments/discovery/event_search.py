"""What a search and its type-ahead cost, as ratios to one read by primary key through the same view, with 1,000 and
100,000 events.

    python -m benchmarks.experiments.discovery.event_search [--sizes 1000,100000] [--searches 600]

Starts PostgreSQL and Valkey for itself and removes them afterwards. The events and the searches are those of
`benchmarks/support/event_searches.py`. The process has read the index before, as those of the site do when they start;
every search here is a new one. Goal: p50 and p99 at most 3 times those of the read, acceptable 8 times; at most twice
as much for 100,000 events as for 1,000.
"""

import argparse
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.support import event_searches
from tests.support.servers import temporary_server_folder
from ticketing.devserver import postgres
from ticketing.devserver.servers import new_password

QUANTILES = ("p50", "p99", "processor p50", "processor p99")


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
        growth = [f"{name} × {after / before:.2f}" for name, before, after in zip(QUANTILES, first, last, strict=True)]
        print(f"{kind}: from {sizes[0]:,} to {sizes[-1]:,} events {', '.join(growth)}")


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


def measure(size: int, count: int) -> dict[str, list[float]]:
    """Print p50 and p99 of searches and of type-ahead, in all and of the processor's time, with their ratios to the
    read by primary key. Return them in this order, in milliseconds."""
    from apps.events.search import index_writer
    from apps.events.search.memory import index

    begun = time.monotonic()
    texts = event_searches.fill(size)
    print(f"{size:,} events written in {time.monotonic() - begun:.0f} s; ", end="")
    begun = time.monotonic()
    index_writer.rebuild()
    index_writer.vacuum()
    print(f"indexed in {time.monotonic() - begun:.0f} s; ", end="", flush=True)
    asked = event_searches.queries(texts, 2 * count)
    del texts
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.monotonic()
    index.clear()
    index.refresh()
    loaded = time.monotonic() - begun
    begun = time.monotonic()
    index.warm()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before) / 1024
    print(
        f"read into memory in {loaded:.1f} s and warmed in {time.monotonic() - begun:.1f} s, "
        f"{len(index.vocabulary.words):,} words, at most {grown:.0f} MB more"
    )
    views = event_searches.views()
    event_searches.timed(views, asked[:count])
    times = event_searches.timed(views, asked[count:])
    found: dict[str, list[float]] = {}
    for name, values in times.items():
        whole, processor = zip(*values, strict=True)
        found[name] = [*event_searches.quantiles(whole), *event_searches.quantiles(processor)]
    base = found[event_searches.BY_KEY]
    print(f"| request | {' | '.join(f'{name}, ms | ratio' for name in QUANTILES)} |")
    print(f"| --- {'| ---: ' * 2 * len(QUANTILES)}|")
    for name, values_of in found.items():
        cells = [f"{one:.2f} | {one / of_base:.2f}" for one, of_base in zip(values_of, base, strict=True)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return {name: found[name] for name in ("search", "type-ahead")}


if __name__ == "__main__":
    main()
