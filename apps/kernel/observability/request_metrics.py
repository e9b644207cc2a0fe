"""Request metrics: responses by route and status, their durations, and requests in flight, at minimal cost.

`route` is a name from a small set ("join", "poll", …; "forwarded" for requests that the fast path passes to the site),
never a path. The counts are plain numbers in a dictionary: the objects of prometheus_client take a lock for each sum
of a histogram, which costs several times as much. Two threads that count at the same moment may lose one count; an
event loop cannot.
"""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
CELLS_MAX = 1_000
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

_Key = tuple[str, str, int]
_cells: dict[_Key, tuple[list[int], list[float]]] = {}
_in_flight = [0]


def record_response(route: str, method: str, status: int, seconds: float) -> None:
    """Count a response. Costs about half a microsecond; never raises."""
    counts, total = _cells.get((route, method, status)) or _cell(route, method, status)
    counts[bisect_left(SECONDS, seconds)] += 1
    total[0] += seconds


def request_started() -> None:
    """Count a request as in flight until `request_finished`."""
    _in_flight[0] += 1


def request_finished() -> None:
    _in_flight[0] -= 1


def forget() -> None:
    """Reset all counts (tests)."""
    _cells.clear()
    _in_flight[0] = 0


def _cell(route: str, method: str, status: int) -> tuple[list[int], list[float]]:
    # Clients can invent methods, and the number of cells must not grow with them.
    key = (route, method if method in _METHODS else "other", status)
    if len(_cells) >= CELLS_MAX and key not in _cells:
        key = ("other", "other", 0)
    return _cells.setdefault(key, ([0] * (len(SECONDS) + 1), [0.0]))


class RequestCollector(Collector):
    """Exports this process's request metrics."""

    def collect(self) -> Iterable[Metric]:
        seconds = HistogramMetricFamily(
            "fairgate_http_request_seconds",
            "From a request's arrival to its response, by route; `forwarded`: requests that the site answered.",
            labels=["route", "method", "status"],
        )
        for (route, method, status), (counts, total) in list(_cells.items()):
            buckets = zip((*map(str, SECONDS), "+Inf"), map(float, accumulate(counts)), strict=True)
            seconds.add_metric([route, method, str(status)], list(buckets), total[0])
        in_flight = GaugeMetricFamily("fairgate_http_in_flight_count", "Requests in flight.")
        in_flight.add_metric([], _in_flight[0])
        return [seconds, in_flight]


METRICS = (RequestCollector(),)
"""The collectors of this process."""
