"""Searches events in this process, slice by slice, for row search.

    python -m benchmarks.suite.load.searches EVENTS SECONDS

Runs in the environment of a migrated database without events (DATABASE_URL, REDIS_URL, SECRET_KEY), which it fills with
so many. It prints a line when it is ready, and then for each line that it reads one with the p50 and p99 of a slice, in
milliseconds, by kind of request, as JSON. It ends with its input.
"""

import json
import os
import sys
import time

import django

from benchmarks.support import event_searches

SEARCHES = 6_000
READY = "ready"
_AT_ONCE = 12


def main() -> None:
    size, seconds = int(sys.argv[1]), float(sys.argv[2])
    os.environ["ALLOWED_HOSTS"] = "*"
    django.setup()
    from apps.events.search import index_writer
    from apps.events.search.memory import index

    texts = event_searches.fill(size)
    index_writer.rebuild()
    index_writer.vacuum()
    index.warm()
    asked = event_searches.queries(texts, SEARCHES)
    del texts
    views = event_searches.views()
    print(READY, flush=True)
    at = 0
    for _ in sys.stdin:
        times: dict[str, list[float]] = {}
        end = time.monotonic() + seconds
        while time.monotonic() < end or not times:
            for name, values in event_searches.timed(views, asked[at : at + _AT_ONCE]).items():
                times.setdefault(name, []).extend(one.total for one in values)
            at = (at + _AT_ONCE) % SEARCHES
        print(json.dumps({name: event_searches.quantiles(values) for name, values in times.items()}), flush=True)


if __name__ == "__main__":
    main()
