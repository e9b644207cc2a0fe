"""Calls at a fixed rate, with the latency of each: what visitors notice while the system is busy with something else.

Latency counts from the due time of a call, so that a stall affects all calls that were due meanwhile, not only the one
in progress.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Act = Callable[[], Any]


@dataclass
class Measurements:
    """The measurements so far: by name, due times and latencies in seconds."""

    taken: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)

    def between(self, name: str, spans: Iterable[tuple[float, float]]) -> list[float]:
        """Return the latencies of the calls that were due within one of these spans."""
        chosen = list(spans)
        return [took for due, took in self.taken[name] if any(begin <= due < end for begin, end in chosen)]


@contextmanager
def run_at_rate(acts: Mapping[str, Act], per_second: float, *, threads_each: int = 1) -> Iterator[Measurements]:
    """Call each of these at this rate during the block, in separate threads. Raises the error of a call."""
    measurements = Measurements({name: [] for name in acts})
    stopping = threading.Event()
    start = threading.Barrier(len(acts) * threads_each + 1)
    pause = threads_each / per_second

    def work(name: str, act: Act, shift: float) -> None:
        from django.db import connections

        taken = measurements.taken[name]
        try:
            act()  # Not timed: sets up what a thread needs, such as a connection.
            start.wait()
            due = time.monotonic() + shift
            while not stopping.wait(max(0.0, due - time.monotonic())):
                act()
                taken.append((due, time.monotonic() - due))
                due += pause
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
            measurements.errors.append(error)
            start.abort()
        finally:
            connections.close_all()

    threads = [
        threading.Thread(target=work, args=(name, act, pause * (number + part / len(acts)) / threads_each))
        for part, (name, act) in enumerate(acts.items())
        for number in range(threads_each)
    ]
    for thread in threads:
        thread.start()
    try:
        start.wait()
        yield measurements
    except threading.BrokenBarrierError:
        pass  # The error that broke it is raised below.
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    if measurements.errors:
        raise measurements.errors[0]


def percentiles_ms(seconds: Sequence[float]) -> str:
    """Return the median, the 99th percentile and the maximum, as three cells of a table."""
    if not seconds:
        return "– | – | –"
    ordered = sorted(seconds)
    chosen = (ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], ordered[-1])
    return " | ".join(f"{1_000 * one:,.1f}" for one in chosen)
