"""Listeners that follow availability by polling; for streams see `stream_listeners`."""

import random

from ticketing.simulator.api import Busy, NoResponse
from ticketing.simulator.visitors import TRIES_MAX, VisitorContext

POLL_SECONDS = 2.0


class Listener:
    __slots__ = ("_context", "_etag", "_random", "_tries")
    keeps_open = False

    def __init__(self, context: VisitorContext, rng: random.Random) -> None:
        self._context, self._random = context, rng
        self._etag = ""
        self._tries = 0

    async def act(self, late_seconds: float) -> float | None:
        context = self._context
        if context.closing:
            return None
        try:
            response = await context.api.call("listen", "GET", f"/events/{context.event}/sections", etag=self._etag)
        except Busy as busy:
            return busy.seconds * (1 + self._random.random())
        except NoResponse as error:
            self._tries += 1
            if self._tries >= TRIES_MAX:
                context.breaches.note("no response", f"a listener: {error}, {self._tries} times in a row")
                return None
            return POLL_SECONDS * (1 + self._random.random())
        self._tries = 0
        if response.status not in (200, 304):
            context.breaches.note("unexpected responses", f"a listener: {response.status} {response.problem}")
            return None
        context.figures.counts["unchanged" if response.status == 304 else "changes seen"] += 1
        self._etag = response.etag or self._etag
        return POLL_SECONDS * self._random.uniform(0.8, 1.2)


class MinimumStay:
    """An actor that does nothing but keep the run going until it is due."""

    keeps_open = True

    async def act(self, late_seconds: float) -> float | None:
        return None
