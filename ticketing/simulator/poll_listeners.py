"""Somebody who only watches what is free, by asking for what has changed; over a stream: `stream_listeners`."""

import random

from ticketing.simulator.api import Busy, NoAnswer
from ticketing.simulator.visitors import TRIES_MAX, VisitorContext

ASK_SECONDS = 2.0


class Listener:
    __slots__ = ("_door", "_etag", "_random", "_tries")
    keeps_open = False

    def __init__(self, door: VisitorContext, rng: random.Random) -> None:
        self._door, self._random = door, rng
        self._etag = ""
        self._tries = 0

    async def act(self, late_seconds: float) -> float | None:
        door = self._door
        if door.closing:
            return None
        try:
            answer = await door.api.call("listen", "GET", f"/events/{door.event}/sections", etag=self._etag)
        except Busy as busy:
            return busy.seconds * (1 + self._random.random())
        except NoAnswer as error:
            self._tries += 1
            if self._tries >= TRIES_MAX:
                door.breaches.note("no answer", f"a listener: {error}, {self._tries} times on end")
                return None
            return ASK_SECONDS * (1 + self._random.random())
        self._tries = 0
        if answer.status not in (200, 304):
            door.breaches.note("unexpected answers", f"a listener: {answer.status} {answer.problem}")
            return None
        door.figures.counts["unchanged" if answer.status == 304 else "changes seen"] += 1
        self._etag = answer.etag or self._etag
        return ASK_SECONDS * self._random.uniform(0.8, 1.2)


class MinimumStay:
    """Nobody: the run goes on until it has acted."""

    keeps_open = True

    async def act(self, late_seconds: float) -> float | None:
        return None
