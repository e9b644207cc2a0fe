"""Calls at a steady pace, and how long each took: what a visitor notices while the house is busy with something else.

Each call is timed from the moment at which it was due, so that a stall counts for everybody who would have come
meanwhile, not only for the one who was in it.
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
    """What was measured so far: by name, when a call was due and how many seconds later it had its answer."""

    taken: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)

    def between(self, name: str, spans: Iterable[tuple[float, float]]) -> list[float]:
        """The durations of the calls that were due within one of these spans."""
        chosen = list(spans)
        return [took for due, took in self.taken[name] if any(begin <= due < end for begin, end in chosen)]


@contextmanager
def run_at_rate(acts: Mapping[str, Act], per_second: float, *, threads_each: int = 1) -> Iterator[Measurements]:
    """While the block runs each of these is called so often, in threads of its own. Raises what a call raised."""
    watch = Measurements({name: [] for name in acts})
    stopping = threading.Event()
    start = threading.Barrier(len(acts) * threads_each + 1)
    pause = threads_each / per_second

    def work(name: str, act: Act, shift: float) -> None:
        from django.db import connections

        taken = watch.taken[name]
        try:
            act()  # Whatever a thread needs at first (a connection) it has before it is timed.
            start.wait()
            due = time.monotonic() + shift
            while not stopping.wait(max(0.0, due - time.monotonic())):
                act()
                taken.append((due, time.monotonic() - due))
                due += pause
        except BaseException as error:  # noqa: BLE001 - Raised in the thread that asked.
            watch.errors.append(error)
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
        yield watch
    except threading.BrokenBarrierError:
        pass  # What broke it is raised below.
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    if watch.errors:
        raise watch.errors[0]


def percentiles_ms(seconds: Sequence[float]) -> str:
    """The median, the 99th percentile and the worst, as three cells of a table."""
    if not seconds:
        return "– | – | –"
    ordered = sorted(seconds)
    chosen = (ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], ordered[-1])
    return " | ".join(f"{1_000 * one:,.1f}" for one in chosen)
