"""Requests of the draw to the beacon, in threads of their own: a slow source delays no draw, and a round that several
draws name is fetched and verified once."""

import logging
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from apps.kernel.observability.repeated_errors import RepeatedErrors
from apps.queue.lobby import beacon

FETCHES_MAX = 16
"""Requests at once: rounds of other draws do not wait while a few are not answered."""
KEPT_MAX = 100
"""Rounds whose values and pauses are remembered."""
PAUSE_SECONDS = 2.0
"""Pause after a failed request for a round."""


@dataclass(slots=True)
class Fetch:
    """The requests for one round."""

    signed: beacon.Signed | None = None
    has_ended: bool = False
    """Whether a request has ended, with the value or without."""
    _running: Future[beacon.Signed] | None = None
    _not_before: float = 0.0


class BeaconFetches:
    """The rounds that are being fetched, and the latest that were. For one thread."""

    def __init__(self, logger: logging.Logger) -> None:
        self._fetches: dict[beacon.Round, Fetch] = {}
        self._repeated_errors = RepeatedErrors(logger)
        self._threads: ThreadPoolExecutor | None = None

    def ask(self, chosen: beacon.Round) -> Fetch:
        """Return the state of the round's requests, and begin one unless it has its value, is being fetched, or its
        last request failed less than PAUSE_SECONDS ago. Does not wait."""
        fetch = self._fetches.setdefault(chosen, Fetch())
        if fetch._running is not None and fetch._running.done():
            self._end(chosen, fetch, fetch._running)
        if fetch.signed is None and fetch._running is None and time.monotonic() >= fetch._not_before:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(FETCHES_MAX, thread_name_prefix="beacon")
            fetch._running = self._threads.submit(beacon.fetch, chosen)
            self._forget_others()
        return fetch

    def _end(self, chosen: beacon.Round, fetch: Fetch, ended: Future[beacon.Signed]) -> None:
        failing = f"draw: round {chosen.number} of {chosen.source} cannot be fetched"
        fetch._running, fetch.has_ended = None, True
        fetch._not_before = time.monotonic() + PAUSE_SECONDS
        try:
            fetch.signed = ended.result()
            self._repeated_errors.over(failing)
        except beacon.BeaconUnavailable as error:
            self._repeated_errors.record_failure(failing, error)

    def _forget_others(self) -> None:
        over = [chosen for chosen, fetch in self._fetches.items() if fetch._running is None]
        for chosen in over[: max(0, len(self._fetches) - KEPT_MAX)]:
            del self._fetches[chosen]

    def wait(self) -> bool:
        """Wait until a running request ends; return False if none is running."""
        running = [fetch._running for fetch in self._fetches.values() if fetch._running is not None]
        return bool(running) and bool(wait(running, return_when=FIRST_COMPLETED).done)

    def close(self) -> None:
        """Forget all rounds. Requests that are under way end by themselves, within their time limit."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._threads = None
        self._fetches.clear()
