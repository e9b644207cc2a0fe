"""Updates of events for the listeners of this process: a channel-layer subscription per followed event, and a
fallback.

The relay publishes every event at least twice a second. If no message arrives (Redis is unavailable, a message was
lost, the relay has crashed), this process reads the relay's frames in PostgreSQL, and if they are old too, it counts by
itself. So updates are at most two seconds late; a `state` frame shows listeners that no relay runs.

The progress of a queue is read each second for events with listeners, and for the others when a client asks. If many
events have listeners, a pass over all of them would take seconds: then those with few listeners are read less often.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import msgspec
from channels.layers import get_channel_layer

from apps.events import facade as events
from apps.kernel import redis
from apps.kernel.fastpath import thread_pool
from apps.kernel.heavy_work import duty_cycle
from apps.kernel.observability import log_context
from apps.kernel.push.channel_names import group_of, topic_of
from apps.kernel.push.frames import Frame, Key, frame
from apps.kernel.push.hub import Hub
from apps.queue import facade as queue
from apps.reservations.live.announcement_log import AnnouncementLog
from apps.reservations.live.queries import CountsDocument, OwnerReader, read_counts, read_reservations
from apps.reservations.live.watched_states import OwnedStates, SeatStates

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.1
QUEUE_SECONDS = 1.0
"""The interval of reading the queue's progress."""
QUEUE_PASS_SECONDS = 0.5
"""A pass over the queues that are due takes no longer. The next one begins with those for which most listeners have
waited longest."""
SILENT_SECONDS = 1.2
"""After this time without a message the relay counts as silent: it publishes more often."""
SILENT_READ_SECONDS = 0.5
"""The shortest interval of reading counts while the relay is silent."""
KEPT_SECONDS = 30.0
"""How long an event without listeners is still followed."""
REREAD_SECONDS = {"reservation": 10.0}
DEFAULT_REREAD_SECONDS = 3.0
"""The interval of reading things whose changes the relay does not publish."""


@dataclass(slots=True)
class _EventFeed:
    """A followed event and its latest state."""

    event: events.EventView
    sections: dict[str, int]
    """Ids by slug."""
    latest: dict[Key, Frame] = field(default_factory=dict)
    """The frames for a new listener, by key."""
    counts: bytes = b""
    """The last frame of counts without its timestamp, to detect changes."""
    received_at: float = float("-inf")
    read_at: float = float("-inf")
    paused_until: float = 0.0
    queue_read_at: float = float("-inf")
    queue_read: "asyncio.Task[None] | None" = None
    """The latest read of the queue's progress."""
    wanted_at: float = 0.0
    is_subscribed: bool = False
    is_late: bool = False
    announcements: AnnouncementLog = field(default_factory=AnnouncementLog)


class EventUpdates:
    """All followed events of one process. Runs on the event loop."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.seats = SeatStates(hub)
        self._owned: dict[str, OwnedStates] = {}
        self._by_id: dict[int, _EventFeed] = {}
        self._channel: str | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._running: dict[str, asyncio.Task[None]] = {}
        """The last task of each kind of work, by the method's name."""
        self.add_owned("reservation", read_reservations)

    def add_owned(self, kind: str, reader: OwnerReader) -> None:
        """Let owners follow things of this kind."""
        again = REREAD_SECONDS.get(kind, DEFAULT_REREAD_SECONDS)
        self._owned[kind] = OwnedStates(self.hub, kind, reader, again_seconds=again)

    def owned(self, kind: str) -> OwnedStates:
        return self._owned[kind]

    async def follow_event(self, event: events.EventView) -> list[Frame]:
        """Follow the event; return the frames for a new listener."""
        followed = self._by_id.get(event.id)
        if followed is None or not followed.latest:
            sections = await thread_pool.run_for_client(events.list_sections, event.id)
            ids = {section.slug: section.id for section in sections}
            followed = self._by_id.setdefault(event.id, _EventFeed(event, ids))
            followed.wanted_at = monotonic()
            self._ensure_tasks()
            await self._read_counts([event.id])
            await self._read_announcements([event.id])
        followed.wanted_at, followed.event = monotonic(), event
        if not self._has_recent_queue(followed, monotonic()):
            await self._read_queue(followed)
        self._ensure_tasks()
        return [*followed.latest.values(), *followed.announcements.latest_frames()]

    def section_of(self, event_id: int, slug: str) -> int | None:
        followed = self._by_id.get(event_id)
        return None if followed is None else followed.sections.get(slug)

    async def close(self) -> None:
        """Disconnect all listeners and stop all tasks."""
        await self.hub.close()
        for task in self._running.values():
            task.cancel()

    def _start(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> bool:
        """Run `work(*args)` in a task unless its last task is still running; return whether it was started."""
        last = self._running.get(work.__name__)
        if last is not None and not last.done():
            return False
        self._running[work.__name__] = thread_pool.create_shared_task(work(*args))
        return True

    # --- subscription ------------------------------------------------------------------------------------------------

    def _ensure_tasks(self) -> None:
        self._start(self._tick_loop)
        self._start(self._receive_loop)

    async def _receive_loop(self) -> None:
        layer = get_channel_layer()
        while True:
            try:
                if self._channel is None:
                    self._channel = await layer.new_channel()
                self._on_message(await layer.receive(self._channel))
            except redis.RedisUnavailable as error:
                logger.debug("updates come from PostgreSQL: %s", log_context.summarize_error(error))
                await asyncio.sleep(SILENT_READ_SECONDS)

    async def _subscribe(self, channel: str, followed: Collection[_EventFeed]) -> None:
        for one in followed:
            try:
                await get_channel_layer().group_add(group_of(one.event.id), channel)
                one.is_subscribed = True
            except redis.RedisUnavailable as error:
                logger.debug("the subscription is retried: %s", log_context.summarize_error(error))
                return

    def _on_message(self, message: Mapping[str, Any]) -> None:
        followed = self._by_id.get(message.get("event", 0))
        if followed is None:
            return
        if "frames" not in message and "owned" not in message:  # From the relay.
            followed.received_at = monotonic()
            self._publish_state(followed, is_late=False)
        if "counts" in message:
            self._publish_counts(followed, CountsDocument(message["id"], message["counts"]))
        for kind, about, frame_id, data in message.get("frames", ()):
            self._publish_frame(followed, Frame(Key(kind, about), data, frame_id))
        moved = [followed.sections[slug] for slug in message.get("moved", ()) if slug in followed.sections]
        by_id = {section_id: slug for slug, section_id in followed.sections.items()}
        self.seats.mark_due([(section_id, by_id[section_id]) for section_id in moved])
        ids = message.get("reservations", b"")
        if ids:
            self._owned["reservation"].mark_due([uuid.UUID(bytes=ids[at : at + 16]) for at in range(0, len(ids), 16)])
        for kind, name in message.get("owned", ()):
            if kind in self._owned:
                self._owned[kind].mark_due([uuid.UUID(name)])

    def _publish_frame(self, followed: _EventFeed, update: Frame) -> None:
        if update.key.kind != events.ANNOUNCEMENT_FRAME:
            self._publish(followed, update)
        elif followed.announcements.record_if_new(update):
            self.hub.publish(topic_of(followed.event.id), update)

    def _publish(self, followed: _EventFeed, update: Frame) -> None:
        followed.latest[update.key] = update
        self.hub.publish(topic_of(followed.event.id), update)

    def _publish_counts(self, followed: _EventFeed, document: CountsDocument) -> None:
        last = followed.latest.get(_COUNTS)
        # Frames of one relay are published in order; frames of different relays cannot be compared.
        if last is not None and not _is_newer(document.frame_id, last.id):
            return
        counts = document.data.rpartition(b',"timestamp"')[0]
        if last is not None and counts == followed.counts:
            # Unchanged counts: keep the newer frame id, which reconnecting clients will send.
            followed.latest[_COUNTS] = Frame(_COUNTS, document.data, document.frame_id)
            return
        followed.counts = counts
        self._publish(followed, Frame(_COUNTS, document.data, document.frame_id))

    def _publish_state(self, followed: _EventFeed, *, is_late: bool) -> None:
        if followed.is_late == is_late and _STATE in followed.latest:
            return
        followed.is_late = is_late
        self._publish(followed, frame("state", {"live": not is_late}))

    # --- periodic work -----------------------------------------------------------------------------------------------

    async def _tick_loop(self) -> None:
        while self._by_id:
            await asyncio.sleep(TICK_SECONDS)
            try:
                self._tick()
            except Exception:
                logger.exception("updating the listeners failed; it is retried with the next tick")

    def _tick(self) -> None:
        now = monotonic()
        for event_id, followed in list(self._by_id.items()):
            if self.hub.has_listeners(topic_of(event_id)):
                followed.wanted_at = now
            elif now - followed.wanted_at > KEPT_SECONDS:
                del self._by_id[event_id]
                if followed.is_subscribed:
                    self._run_in_background(self._leave_group(event_id))
        new = [one for one in self._by_id.values() if not one.is_subscribed]
        if new and self._channel is not None:
            self._start(self._subscribe, self._channel, new)
        silent = [
            event_id
            for event_id, one in self._by_id.items()
            if now - one.received_at > SILENT_SECONDS
            and now - one.read_at > SILENT_READ_SECONDS
            and now >= one.paused_until
        ]
        if silent and self._start(self._read_counts, silent):
            self.seats.mark_all_due()
            for owned in self._owned.values():
                owned.mark_all_due()
        self._start(self._read_queues)
        late = [event_id for event_id, one in self._by_id.items() if one.announcements.is_due(now, one.received_at)]
        if late:
            self._start(self._read_announcements, late)
        self.seats.tick()
        for owned in self._owned.values():
            owned.tick()

    async def _read_counts(self, event_ids: Collection[int]) -> None:
        """Publish the relay's last counts, or counts by this process."""
        begun = monotonic()
        wanted = [self._by_id[event_id] for event_id in event_ids if event_id in self._by_id]
        try:
            found = await thread_pool.run_in_thread(read_counts, [one.event.id for one in wanted])
        except Exception as error:  # noqa: BLE001 - PostgreSQL is unavailable: the next tick retries.
            logger.debug("the counts are not updated: %s", log_context.summarize_error(error))
            for one in wanted:
                one.read_at = monotonic()
            return
        for one in wanted:
            one.read_at = monotonic()
            document = found.get(one.event.id)
            if document is None:
                continue
            if document.is_own:
                one.paused_until = monotonic() + duty_cycle.pause_seconds(begun)
            self._publish_counts(one, document)
            self._publish_state(one, is_late=document.is_late)

    async def _read_queues(self) -> None:
        """Read the queues that are due of events with listeners, for QUEUE_PASS_SECONDS at most."""
        begun = monotonic()
        waiting = {
            event_id: (begun - one.queue_read_at) * self.hub.listener_count(topic_of(event_id))
            for event_id, one in self._by_id.items()
            if self.hub.has_listeners(topic_of(event_id)) and not self._has_recent_queue(one, begun)
        }
        for event_id in sorted(waiting, key=waiting.__getitem__, reverse=True):
            if event_id in self._by_id:
                await self._read_queue(self._by_id[event_id])
            if monotonic() - begun > QUEUE_PASS_SECONDS:
                return

    def _has_recent_queue(self, followed: _EventFeed, now: float) -> bool:
        is_reading = followed.queue_read is not None and not followed.queue_read.done()
        return now - followed.queue_read_at <= QUEUE_SECONDS and not is_reading

    async def _read_queue(self, followed: _EventFeed) -> None:
        """Publish the progress of this queue. Concurrent calls share one read."""
        if followed.queue_read is None or followed.queue_read.done():
            followed.queue_read = thread_pool.create_shared_task(self._read_queue_now(followed))
        await asyncio.shield(followed.queue_read)

    async def _read_queue_now(self, followed: _EventFeed) -> None:
        followed.queue_read_at = monotonic()
        try:
            document = await queue.get_room_progress(followed.event)
        except Exception as error:  # noqa: BLE001 - As above.
            logger.debug("the queue's progress is read later: %s", log_context.summarize_error(error))
            return
        if document is None:
            return
        update = Frame(_QUEUE, msgspec.json.encode(document))
        last = followed.latest.get(_QUEUE)
        if last is None or last.data != update.data:
            self._publish(followed, update)

    async def _read_announcements(self, event_ids: Collection[int]) -> None:
        """Publish announcements that the subscription has missed."""
        logs = {event_id: one.announcements for event_id in event_ids if (one := self._by_id.get(event_id)) is not None}
        for log in logs.values():
            log.polled_at = monotonic()
        try:
            known = {event_id: log.read_to for event_id, log in logs.items()}
            found = await thread_pool.run_in_thread(events.announcements_since, known)
        except Exception as error:  # noqa: BLE001 - As above.
            logger.debug("announcements are read later: %s", log_context.summarize_error(error))
            return
        for event_id, feed in found.items():
            for update in logs[event_id].read(feed):
                self.hub.publish(topic_of(event_id), update)

    async def _leave_group(self, event_id: int) -> None:
        if self._channel is not None:
            try:
                await get_channel_layer().group_discard(group_of(event_id), self._channel)
            except redis.RedisUnavailable as error:
                logger.debug("leaving a group failed: %s", log_context.summarize_error(error))

    def _run_in_background(self, act: Any) -> None:
        task = thread_pool.create_shared_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_COUNTS, _QUEUE, _STATE = Key("sections"), Key("queue"), Key("state")


def _is_newer(one: str, other: str) -> bool:
    """Return whether the frame with id `one` was written after `other`, or by another relay."""
    epoch, _, sequence = one.rpartition("-")
    epoch_before, _, sequence_before = other.rpartition("-")
    if epoch != epoch_before or not sequence.isdigit() or not sequence_before.isdigit():
        return True
    return int(sequence) > int(sequence_before)
