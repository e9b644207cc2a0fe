"""The states of seats, reservations and orders that listeners of this process follow.

Changed states are read together, in one round for all listeners. At intervals all followed states are read again.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence, Sized
from itertools import accumulate, takewhile
from time import monotonic
from typing import Any, Generic, TypeVar
from uuid import UUID

from apps.kernel.fastpath import thread_pool
from apps.kernel.fastpath.cache import BatchRefreshingCache
from apps.kernel.heavy_work import duty_cycle
from apps.kernel.http import problems
from apps.kernel.observability import log_context
from apps.kernel.push.frames import DeltaFrame, Frame, Key, frame
from apps.kernel.push.hub import Hub, Listener
from apps.reservations.live.queries import OwnerReader, read_seats

logger = logging.getLogger(__name__)

ROUND_SECONDS = 0.3
"""The shortest time from one round to the next; slow reads make it longer."""
POLLED_MAX = 500
READ_MAX = 200
ENTRIES_MAX = 20_000
"""Things read in one round, and the entries that their states had last (seats that are not free); the rest wait for the
next. One thing may have more entries."""

Thing = TypeVar("Thing", bound=Hashable)
State = TypeVar("State", bound=Sized)


class WatchedStates(ABC, Generic[Thing, State]):
    """The states of all followed things of one kind. Each thing has its own topic in the hub."""

    AGAIN_SECONDS = 10.0
    """The interval after which all followed things are read again, changed or not."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._known: dict[Thing, State] = {}
        self._frames: dict[Thing, tuple[State, Frame]] = {}
        self._changed: dict[Thing, None] = {}
        """The things that are due for a read, the one that has waited longest first."""
        self._rounds_count = 0
        self._reread_at = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._paused_until = 0.0

    @abstractmethod
    def topic(self, thing: Thing) -> str: ...

    @abstractmethod
    def read(self, things: Collection[Thing]) -> Mapping[Thing, State]:
        """Return the current state of each thing that exists. Blocks, so it is called in a thread."""

    @abstractmethod
    def full_frame(self, thing: Thing, state: State) -> Frame:
        """Return the frame for a new listener."""

    @abstractmethod
    def changed(self, thing: Thing, before: State, after: State) -> Frame:
        """Return the frame for listeners that know the state `before`."""

    async def watch(self, listener: Listener, thing: Thing) -> Frame | None:
        """Subscribe the listener; return the first frame, or None if the thing does not exist."""
        self._hub.listen(listener, [self.topic(thing)])
        if thing not in self._known:
            state = await self.read_first(thing)
            if state is None:
                return None
            if thing not in self._known:
                self._known[thing] = state
                # The next round finds changes since that read began, of which no message was followed yet.
                self._changed[thing] = None
        return self._shared_frame(thing, self._known[thing])

    async def read_once(self, thing: Thing) -> Frame | None:
        """Return the current frame without subscribing, or None if the thing does not exist."""
        state = self._known.get(thing)
        if state is None:
            state = await self.read_first(thing)
        return None if state is None else self._shared_frame(thing, state)

    async def read_first(self, thing: Thing) -> State | None:
        """Return the state of a thing that is not followed, as of a moment ago; None if it does not exist."""
        return (await thread_pool.run_for_client(self.read, [thing])).get(thing)

    def _shared_frame(self, thing: Thing, state: State) -> Frame:
        """Return `full_frame`, made once for each state: a thousand new listeners get the same bytes."""
        kept = self._frames.get(thing)
        if kept is None or kept[0] is not state:
            kept = self._frames[thing] = (state, self.full_frame(thing, state))
        return kept[1]

    def mark_due(self, things: Collection[Thing]) -> None:
        """Schedule a read of these things, except those that are not followed."""
        self._changed |= dict.fromkeys(thing for thing in things if thing in self._known)

    def mark_all_due(self) -> None:
        self._changed |= dict.fromkeys(self._known)

    def tick(self) -> None:
        """Start the next read if one is due. Called at short intervals."""
        now = monotonic()
        if now >= self._reread_at:
            self._reread_at = now + self.AGAIN_SECONDS
            for thing in [one for one in self._known if not self._hub.has_listeners(self.topic(one))]:
                del self._known[thing]
            self._frames = {thing: kept for thing, kept in self._frames.items() if thing in self._known}
            self.mark_all_due()
        if self._changed and now >= self._paused_until and (self._reading is None or self._reading.done()):
            self._reading = asyncio.get_running_loop().create_task(self._read_due())

    async def _read_due(self) -> None:
        self._changed = {thing: None for thing in self._changed if thing in self._known}
        due = self._next_things()
        for thing in due:
            del self._changed[thing]
        if not due:
            return
        begun = monotonic()
        try:
            await self._read_now(due)
        except Exception as error:  # noqa: BLE001 - The things stay due for the next round.
            self._changed |= dict.fromkeys(due)
            logger.debug("reading states failed; the next round tries again: %s", log_context.summarize_error(error))
        self._paused_until = begun + max(ROUND_SECONDS, monotonic() - begun + duty_cycle.pause_seconds(begun))

    def _next_things(self) -> list[Thing]:
        """Return what this round reads. Every other round begins with the things of few entries, the others with those
        that have waited longest: so large ones delay no small one by more than a round, and none waits forever."""
        self._rounds_count += 1
        waiting = list(self._changed)
        if self._rounds_count % 2:
            waiting.sort(key=lambda thing: len(self._known[thing]))
        counts = accumulate(len(self._known[thing]) for thing in waiting)
        fitting = sum(1 for _ in takewhile(lambda count: count <= ENTRIES_MAX, counts))
        return waiting[: min(max(1, fitting), READ_MAX)]

    async def _read_now(self, things: Collection[Thing]) -> None:
        found = await thread_pool.run_in_thread(self.read, things)
        for thing in things:
            before, after = self._known.get(thing), found.get(thing)
            if after is None:
                self._known.pop(thing, None)
                continue
            self._known[thing] = after
            if before is not None and before != after:
                self._hub.publish(self.topic(thing), self.changed(thing, before, after))


def _read_sections(section_ids: Sequence[int]) -> Mapping[int, dict[str, str]]:
    return read_seats(section_ids)


polled: BatchRefreshingCache[int, dict[str, str]] = BatchRefreshingCache(
    _read_sections, fresh_seconds=ROUND_SECONDS, stale_seconds=0, most=POLLED_MAX, missing=lambda _: problems.NotFound()
)
"""The seats of sections that clients poll or begin to follow, by the section's id: however many ask, they are read once
a round, and in one thread at a time."""


class SeatStates(WatchedStates[tuple[int, str], dict[str, str]]):
    """The seat states of sections. A thing is a section's id and slug."""

    def topic(self, thing: tuple[int, str]) -> str:
        return f"seats:{thing[0]}"

    def read(self, things: Collection[tuple[int, str]]) -> Mapping[tuple[int, str], dict[str, str]]:
        found = read_seats([section_id for section_id, _ in things])
        return {thing: found[thing[0]] for thing in things}

    async def read_first(self, thing: tuple[int, str]) -> dict[str, str] | None:
        return await polled.get(thing[0])

    def full_frame(self, thing: tuple[int, str], state: dict[str, str]) -> Frame:
        return DeltaFrame(_key(thing), {"section_id": thing[1], "complete": True}, "seats", state)

    def changed(self, thing: tuple[int, str], before: dict[str, str], after: dict[str, str]) -> Frame:
        changes = {guid: status for guid, status in after.items() if before.get(guid) != status}
        changes |= {guid: "available" for guid in before if guid not in after}
        return DeltaFrame(_key(thing), {"section_id": thing[1]}, "seats", changes)


def _key(thing: tuple[int, str]) -> Key:
    return Key("seats", thing[1])


class OwnedStates(WatchedStates[UUID, Mapping[str, Any]]):
    """The states of reservations or of orders: only an owner may follow them, and their app supplies `reader`."""

    def __init__(self, hub: Hub, kind: str, reader: OwnerReader, *, again_seconds: float) -> None:
        super().__init__(hub)
        self.kind = kind
        self._reader = reader
        self.AGAIN_SECONDS = again_seconds

    def topic(self, thing: UUID) -> str:
        return f"{self.kind}:{thing}"

    def read(self, things: Collection[UUID]) -> Mapping[UUID, Mapping[str, Any]]:
        return self._reader(things)

    def full_frame(self, thing: UUID, state: Mapping[str, Any]) -> Frame:
        return frame(self.kind, state, about=str(thing))

    def changed(self, thing: UUID, before: Mapping[str, Any], after: Mapping[str, Any]) -> Frame:
        return self.full_frame(thing, after)
