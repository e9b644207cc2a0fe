"""Rechecks the admissions of listeners that receive seats, in one task per process: a task for each would cost as much
as the listener."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from apps.events import facade as events
from apps.kernel.fastpath import thread_pool
from apps.kernel.http import problems
from apps.kernel.observability import log_context
from apps.kernel.push.frames import frame
from apps.kernel.push.hub import Hub, Listener
from apps.queue import facade as queue

logger = logging.getLogger(__name__)

RECHECK_SECONDS = 20.0
ROUND_SECONDS = 0.1
"""Listeners due within this time are checked together, mostly with one statement."""
BATCH_MAX = 100


@dataclass(slots=True)
class _SeatViewer:
    listener: Listener
    event: events.EventView
    caller: queue.Caller
    sections: Mapping[str, str]
    """Section slugs by topic."""
    due_at: float


class SeatViewers:
    """All seat viewers of one process. Runs on the event loop."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._waiting: deque[_SeatViewer] = deque()
        """In due order."""
        self._check_task: asyncio.Task[None] | None = None

    def add(
        self, listener: Listener, event: events.EventView, caller: queue.Caller, sections: Mapping[str, str]
    ) -> None:
        """Keep the listener subscribed to these sections (slugs by topic) while the caller is admitted; afterwards send
        the reason and unsubscribe it."""
        self._wait(_SeatViewer(listener, event, caller, sections, 0.0))
        if self._check_task is None or self._check_task.done():
            self._check_task = thread_pool.create_shared_task(self._check_loop())

    def close(self) -> None:
        if self._check_task is not None:
            self._check_task.cancel()

    def _wait(self, viewer: _SeatViewer) -> None:
        viewer.due_at = monotonic() + RECHECK_SECONDS
        self._waiting.append(viewer)

    async def _check_loop(self) -> None:
        while self._waiting:
            await asyncio.sleep(max(ROUND_SECONDS, self._waiting[0].due_at - monotonic()))
            now, due = monotonic(), list[_SeatViewer]()
            while self._waiting and self._waiting[0].due_at <= now and len(due) < BATCH_MAX:
                due.append(self._waiting.popleft())
            await asyncio.gather(*(self._check(one) for one in due if not one.listener.is_gone))

    async def _check(self, viewer: _SeatViewer) -> None:
        try:
            queue.require_entry(viewer.event.id, await queue.claim_or_get_entry_async(viewer.event, viewer.caller))
        except Exception as error:  # noqa: BLE001 - An error must not stop the other checks.
            problem = problems.from_exception(error)
            if problem is not None and problem.status < 500:
                for topic, section in viewer.sections.items():
                    self._hub.leave_topic(viewer.listener, topic)
                    viewer.listener.send_frame(frame("seats", _end_document(section, problem), about=section))
                return
            logger.debug("an admission is checked again later: %s", log_context.summarize_error(error))
        self._wait(viewer)


def _end_document(section: str, problem: problems.Problem) -> dict[str, Any]:
    return {"section_id": section, "seats": {}, "ended": problem.type}
