"""Who is shown seats: whether they may still choose is asked anew now and then, by one task for all of a process. A
task for each would cost as much as the listener."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from apps.events import facade as events
from apps.kernel.http import problems
from apps.kernel.observability import log_context
from apps.kernel.push.frames import frame
from apps.kernel.push.hub import Hub, Listener
from apps.queue import facade as queue

logger = logging.getLogger(__name__)

RECHECK_SECONDS = 20.0
ROUND_SECONDS = 0.1
"""Who is due within this is asked about together: one statement, mostly."""
BATCH_MAX = 100


@dataclass(slots=True)
class _SeatViewer:
    listener: Listener
    event: events.EventView
    caller: queue.Caller
    sections: Mapping[str, str]
    """What they are called, by topic."""
    due_at: float


class SeatViewers:
    """All of one process. On the loop's own thread."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._waiting: deque[_SeatViewer] = deque()
        """In the order in which they are due."""
        self._asking: asyncio.Task[None] | None = None

    def add(
        self, listener: Listener, event: events.EventView, caller: queue.Caller, sections: Mapping[str, str]
    ) -> None:
        """The listener hears of these sections, which are called so, for as long as the caller may choose; and then why
        it hears no more. By topic."""
        self._wait(_SeatViewer(listener, event, caller, sections, 0.0))
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._check_loop())

    def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    def _wait(self, shopper: _SeatViewer) -> None:
        shopper.due_at = monotonic() + RECHECK_SECONDS
        self._waiting.append(shopper)

    async def _check_loop(self) -> None:
        while self._waiting:
            await asyncio.sleep(max(ROUND_SECONDS, self._waiting[0].due_at - monotonic()))
            now, due = monotonic(), list[_SeatViewer]()
            while self._waiting and self._waiting[0].due_at <= now and len(due) < BATCH_MAX:
                due.append(self._waiting.popleft())
            await asyncio.gather(*(self._check(one) for one in due if not one.listener.is_gone))

    async def _check(self, shopper: _SeatViewer) -> None:
        try:
            queue.require_entry(shopper.event.id, await queue.claim_or_get_entry_async(shopper.event, shopper.caller))
        except Exception as error:  # noqa: BLE001 - Whatever it is, the others are asked about.
            problem = problems.from_exception(error)
            if problem is not None and problem.status < 500:
                for topic, section in shopper.sections.items():
                    self._hub.leave_topic(shopper.listener, topic)
                    shopper.listener.send_frame(frame("seats", _end_document(section, problem), about=section))
                return
            logger.debug("whether somebody may still choose is asked again: %s", log_context.summarize_error(error))
        self._wait(shopper)


def _end_document(section: str, problem: problems.Problem) -> dict[str, Any]:
    return {"section_id": section, "seats": {}, "ended": problem.type}
