"""Only so many requests of one event are under way in this process at once; the others wait before the door.

Whoever waits here has cost nothing but its own reading: no token is verified, nothing is asked, no batch knows of it.
So the crowd of one event, however large, is never in front of another event's buyers by more than a few requests in the
loop, in Redis and in PostgreSQL. While nobody else has anything to do an event may have more under way, since larger
batches are cheaper.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from django.core.exceptions import ImproperlyConfigured
from prometheus_client import Gauge

from ticketing.kernel import problems

ACTIVE_SECONDS = 1.0
"""So long after its last request an event still counts as one beside which others are to be small."""
WAIT_SECONDS_MAX = 5.0
"""Who has waited for longer is refused at its turn: its client may have given up."""

_waiting = Gauge("fairgate_turnstile_waiting_count", "Requests before the door, beyond what may be under way.",
                 ["turnstile"], registry=None)  # fmt: skip
METRICS = (_waiting,)
"""Of this process; the composition root registers them where it serves figures."""


class _Line:
    """Of one event."""

    __slots__ = ("at", "under_way", "waiting")

    def __init__(self) -> None:
        self.under_way = 0
        self.at = 0.0
        """The last time that somebody asked for it."""
        self.waiting: deque[tuple[float, Callable[[problems.Problem | None], None]]] = deque()


class Turnstile:
    """`alone_max`: how many an event may have under way while no other is active; `beside_max`: while one is.
    `waiting_max`: how many of one event may wait; one more is refused. `knows`: whether there is such an event, as far
    as is known at sight. Used on one loop's thread. Raises ImproperlyConfigured where nobody could ever pass."""

    def __init__(
        self, name: str, *, alone_max: int, beside_max: int, waiting_max: int, knows: Callable[[str], bool]
    ) -> None:
        if alone_max < 1 or beside_max < 1 or waiting_max < 0:
            of = f"LANE_{name.upper()}"
            raise ImproperlyConfigured(f"{of}_MAX and {of}_BESIDE_MAX are at least 1, {of}_WAITING_MAX at least 0")
        self._knows = knows
        self._alone_max = alone_max
        self._beside_max = beside_max
        self._waiting_max = waiting_max
        self._lines: dict[str, _Line] = {}
        self._tidied_at = 0.0
        self._waiting = _waiting.labels(name)
        self._waiting.set(0)

    def concerns(self, event: str) -> bool:
        """Whether its requests pass here: nobody's crowd is held up by events that clients make up."""
        return event in self._lines or self._knows(event)

    def pass_now(self, event: str) -> bool:
        """Whether the request may go on at once. If so, `leave` follows."""
        line = self._lines.get(event)
        if line is None:
            line = self._lines[event] = _Line()
        now = line.at = monotonic()
        if now - self._tidied_at > ACTIVE_SECONDS:
            self._tidy(now)
        if line.waiting or line.under_way >= self._most():
            return False
        line.under_way += 1
        return True

    def wait(self, event: str, go_on: Callable[[problems.Problem | None], None]) -> None:
        """`go_on` will be called at the request's turn, with None, and `leave` follows; or with why it is refused.
        Raises problems.Busy where too many wait. After `pass_now` has said no."""
        line = self._lines[event]
        if len(line.waiting) >= self._waiting_max:
            raise problems.Busy
        line.waiting.append((line.at, go_on))
        self._waiting.inc()

    async def come(self, event: str) -> None:
        """The request may go on, and `leave` follows. Raises problems.Busy."""
        if self.pass_now(event):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def go_on(refusal: problems.Problem | None) -> None:
            if turn.done():
                if refusal is None:
                    self.leave(event)  # It has gone meanwhile.
            elif refusal is None:
                turn.set_result(None)
            else:
                turn.set_exception(refusal)

        self.wait(event, go_on)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave(event)  # Its turn came in the very step in which it went.
            raise

    def leave(self, event: str) -> None:
        """A request of this event is not under way any more; the next one that waits is."""
        line = self._lines[event]
        line.under_way -= 1
        most = self._most()
        while line.waiting and line.under_way < most:
            since, go_on = line.waiting.popleft()
            self._waiting.dec()
            if monotonic() - since > WAIT_SECONDS_MAX:
                go_on(problems.Busy())
                continue
            line.under_way += 1
            # In the loop's next step, so that a row of them that are refused at once does not go ever deeper.
            asyncio.get_running_loop().call_soon(go_on, None)

    def _most(self) -> int:
        return self._alone_max if len(self._lines) < 2 else self._beside_max

    def _tidy(self, now: float) -> None:
        self._tidied_at = now
        for event, line in list(self._lines.items()):
            if not line.under_way and not line.waiting and now - line.at > ACTIVE_SECONDS:
                del self._lines[event]
