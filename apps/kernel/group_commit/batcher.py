"""Group commit: many requests share few transactions, and each caller gets its own outcome.

While one batch commits, requests gather for the next one. An idle batcher commits a single request at once, as a batch
of one. While many requests of a key arrive and few of them wait, its batch first waits a few milliseconds for more
(GROUP_COMMIT_GATHER_MS), before it takes a turn, a connection or a lock: a transaction costs far more than one more
request in it.

A service provides `decide(connection, requests)`, which returns one outcome per request, in order:

- The connection is psycopg's, in autocommit, never Django's (see apps/kernel/db/pools.py). Transactions are opened with
  `transactions.write_on(connection, lock_ms=…)`, which yields the cursor for the usual SQL files. The ORM and
  `clock.now()` use Django's connection, so they may not be used here.
- It may open several transactions, one after the other, and has none open when it returns. If the second or a later one
  fails transiently (a lock timeout), it handles the failure itself for the requests that the first transaction has
  answered.
- Before requests are submitted, they are validated, names in them are resolved to ids, and the ids of the rows that
  they will create are generated. Refusals are outcomes; an exception means that the batch could not be decided.
- If it opens several transactions, it may be a generator. After each transaction it yields the outcomes that are then
  settled, by index. The callers of these requests are answered at once, however long the others take.
- `find_committed(connection, requests)` returns the outcomes that an earlier attempt committed, by index. It runs
  before every attempt except the first, because a COMMIT whose response was lost may have succeeded, and because a
  `decide` that opens several transactions may fail after the first one has committed. A service whose `decide` finds
  committed outcomes itself (it reads existing answers first) passes `decide_finds_committed`.

Keys (events, for example) are isolated from each other: each has a bounded queue, queues are served in turn, and
batches of different keys run side by side, up to `committers_max` at once. With `mixes`, keys with few requests are
decided together, since a hundred small events would otherwise cost a hundred transactions: while such a mixed batch is
running and not late, requests of keys with few requests gather for the next one. A key with many requests, or whose
batch took far longer than usual, is decided alone and never waits for a mixed batch. Keys whose last batch took so long
have only half of the committers, so that all others find one, however many such keys there are.

With `turns`, a batch waits for its turn among the machine's processes before it dequeues requests. There is one turn
for each key whose batches collide, and one that all mixed batches share.
"""

import asyncio
import atexit
import logging
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic

from django.conf import settings
from prometheus_client import Gauge, Histogram
from psycopg import Connection
from psycopg_pool import ConnectionPool

from apps.kernel.db import pools
from apps.kernel.group_commit.arrivals import Arrivals
from apps.kernel.group_commit.pending import Call, Outcome, Request, refuse
from apps.kernel.group_commit.process_turns import Turns
from apps.kernel.group_commit.retries import Attempts, Decide, InvalidDecision, OutcomeUnknown, happened
from apps.kernel.http import problems

__all__ = ["METRICS", "Batcher", "InvalidDecision", "OutcomeUnknown", "close_all", "decide_finds_committed"]

logger = logging.getLogger(__name__)

WAITING_MAX = 5_000
BATCH_MAX = 256
CONNECT_MS = 5_000
CLOSE_MS = 10_000
FEW = 16
"""A batch of so many requests waits for no others."""
IDLE_MS = 30_000
"""A committer thread ends after this time without work; the pool closes the thread's connection later."""
SLOW_SECONDS = 0.15
SLOW_TIMES = 5.0
"""A batch is slow if it takes longer than SLOW_SECONDS and more than SLOW_TIMES the usual duration, as when another
transaction keeps a lock. Its keys are then decided alone for ALONE_SECONDS."""
USUAL_SECONDS_MAX = 0.1
"""The usual duration counts as this at most. Otherwise batches that become slower by and by would never be slow."""
ALONE_SECONDS = 5.0
SLOW_SHARE = 2
"""One committer in so many may decide keys whose last batch was slow."""
LATE_SECONDS = 0.025
LATE_TIMES = 3.0
"""A mixed batch is late if it has taken longer than both LATE_SECONDS and LATE_TIMES the usual duration. Other keys
then no longer wait for its end."""
_MIXED_TURN = "together"
"""The key of the turn that all mixed batches share."""

_sizes = Histogram(
    "fairgate_batch_size",
    "Requests decided together.",
    ["batcher"],
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    registry=None,
)
_queued = Histogram(
    "fairgate_batch_queued_seconds",
    "From the submission of the request that waited longest to the beginning of its batch.",
    ["batcher"],
    registry=None,
)
_committed = Histogram(
    "fairgate_batch_commit_seconds",
    "From the beginning of a batch to its last answer, retries included.",
    ["batcher"],
    registry=None,
)
_waiting = Gauge("fairgate_batch_waiting_count", "Requests that no batch has taken yet.", ["batcher"], registry=None)
_queues = Gauge(
    "fairgate_batch_queues", "Keys (events) with requests waiting or under way.", ["batcher"], registry=None
)
METRICS = (_sizes, _queued, _committed, _waiting, _queues, happened)
"""Metrics of this process; the composition root registers them where it serves metrics."""


def decide_finds_committed(connection: Connection[Any], requests: Sequence[Any]) -> Mapping[int, Any]:
    """The `find_committed` of a batcher whose `decide` itself finds committed outcomes."""
    return {}


@dataclass(eq=False, slots=True)
class _Queue(Generic[Request, Outcome]):
    """The waiting calls of one key, and the number of running batches with calls of it."""

    # In order of arrival. A call whose caller no longer waits can be removed from any position in constant time.
    calls: "OrderedDict[int, Call[Request, Outcome]]" = field(default_factory=OrderedDict)
    under_way: int = 0


def _no_key(request: Any) -> Hashable:
    """All requests share one queue."""
    return None


class Batcher(Generic[Request, Outcome]):
    """Commits submitted requests in groups, in order of arrival. Created once, at import; threads and connections are
    opened on first use.

    `key`: the queue of a request. `committers`: how many batches with one key may run at once, each in a thread with a
    connection of its own. With more than one, the order of arrival applies within a batch, but not between concurrent
    ones. `committers_max`: how many may run in all. `mixes`: small queues are decided together. `waiting_max`: how many
    requests of one key may wait for a batch; further ones are refused. `batch_max`: the largest batch. `turns`: lets
    the machine's processes take turns with batches that would collide at one lock. `meets_at` returns the key of the
    turn that a request needs; None if it needs none. `connect_ms`: how long a batch waits for a connection before its
    callers get DatabaseUnavailable.
    """

    def __init__(
        self,
        name: str,
        decide: Decide[Request, Outcome],
        *,
        find_committed: Callable[[Connection[Any], list[Request]], Mapping[int, Outcome]],
        key: Callable[[Request], Hashable] = _no_key,
        committers: int = 1,
        committers_max: int | None = None,
        mixes: bool = False,
        waiting_max: int = WAITING_MAX,
        batch_max: int = BATCH_MAX,
        turns: Turns | None = None,
        meets_at: Callable[[Request], Hashable] = _no_key,
        connect_ms: int = CONNECT_MS,
        idle_ms: int = IDLE_MS,
    ) -> None:
        assert committers > 0
        assert committers_max is None or committers_max >= committers
        assert waiting_max > 0
        assert batch_max > 0
        self.name = name
        self._attempts = Attempts(name, decide, find_committed)
        self._key = key
        self._committers = committers
        self._committers_max = committers_max or committers
        self._mixes = mixes
        self._waiting_max = waiting_max
        self._batch_max = batch_max
        self._turns = turns
        self._meets_at = meets_at
        self._connect_ms = connect_ms
        self._idle_ms = idle_ms
        self._gather_seconds = settings.GROUP_COMMIT_GATHER_MS / 1_000
        self._sizes, self._queued = _sizes.labels(name), _queued.labels(name)
        self._committed, self._waiting_gauge = _committed.labels(name), _waiting.labels(name)
        self._queues_gauge = _queues.labels(name)
        self._waiting_gauge.set(0)
        self._queues_gauge.set(0)
        self._reset()
        _batchers.add(self)

    def _reset(self) -> None:
        """Set the initial state. Also called in a forked child, which has no threads, locks or callers."""
        self._changed = threading.Condition(threading.Lock())
        self._closing = False
        self.waiting_count = 0
        """Requests that no batch has taken yet."""
        # In the order in which they are served: a key that was served goes to the end.
        self._queues: OrderedDict[Hashable, _Queue[Request, Outcome]] = OrderedDict()
        self._alone_until: dict[Hashable, float] = {}
        # Keys whose last batch was slow, and the threads that run another batch of such a key.
        self._slow: set[Hashable] = set()
        self._slow_threads: set[threading.Thread] = set()
        self._usual_seconds = 0.0
        # For each thread that runs a mixed batch: when the batch took its requests; None while it waits for its turn.
        self._mixed_since: dict[threading.Thread, float | None] = {}
        self._arrivals = Arrivals()
        self._idle = 0
        self._watching = 0
        self._numbers = count()
        self._threads: list[threading.Thread] = []
        self._pool: ConnectionPool[Connection[Any]] | None = None

    # --- callers ---------------------------------------------------------------------------------------------------

    async def submit(self, request: Request) -> Outcome:
        """Decide and commit the request; return its outcome. For async handlers, on any event loop.

        If the caller is canceled before a batch has taken its request, nothing is changed; after that, only the answer
        is lost. Raises

        - problems.Busy: at once if too many requests wait or the batcher is closed; later if a lock timed out;
        - problems.DatabaseUnavailable: the database is unavailable, and nothing was changed;
        - OutcomeUnknown: the request may have succeeded;
        - any exception that `decide` raised for this request.
        """
        future = asyncio.get_running_loop().create_future()
        call = self._enqueue(Call(request, self._key(request), future=future))
        try:
            await future
        except asyncio.CancelledError:
            # Not in a `finally` block: that would also run when a coroutine is garbage-collected with its loop. Any
            # thread may run the garbage collector, also one that holds the lock that `_drop` takes.
            self._drop(call)
            raise
        return call.result()

    def submit_sync(self, request: Request, timeout_ms: int) -> Outcome:
        """Submit from a thread and return the outcome, waiting at most `timeout_ms`. After that, raises problems.Busy
        if the request was still queued, or OutcomeUnknown if a batch had taken it."""
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("submit_sync would block the event loop of this thread; await submit() instead")
        call = self._enqueue(Call(request, self._key(request), done=threading.Event()))
        assert call.done is not None
        try:
            in_time = call.done.wait(timeout_ms / 1_000)
        finally:
            dropped = self._drop(call)
        if dropped:
            raise problems.Busy
        # The answer may have arrived between the end of the wait and the look-up in the queue.
        if not in_time and not call.done.is_set():
            raise OutcomeUnknown
        return call.result()

    def _enqueue(self, call: Call[Request, Outcome]) -> Call[Request, Outcome]:
        with self._changed:
            queue = self._queues.get(call.key)
            if self._closing or (queue is not None and len(queue.calls) >= self._waiting_max):
                self._note("refused")
                raise problems.Busy
            if not self._threads or (self._idle == 0 and (queue is None or queue.under_way < self._committers)):
                self._start_a_thread()
            if queue is None:
                queue = self._queues[call.key] = _Queue()
            queue.calls[id(call)] = call
            self._arrivals.note(call.key, call.since)
            self.waiting_count += 1
            self._waiting_gauge.set(self.waiting_count)
            # One wake-up for each batch, not for each request: further requests only join the queue, and a committer
            # looks for waiting keys again when its batch ends.
            if (
                self._idle
                and len(queue.calls) == 1
                and queue.under_way < self._committers
                and self._needs_wakeup(call.key)
            ):
                self._changed.notify()
        return call

    def _drop(self, call: Call[Request, Outcome]) -> bool:
        """Remove the call of a caller that no longer waits. Return whether it was still queued and will never be
        decided."""
        if call.answered:
            return False
        with self._changed:
            queue = self._queues.get(call.key)
            dropped = queue is not None and queue.calls.pop(id(call), None) is not None
            if dropped:
                self.waiting_count -= 1
                self._waiting_gauge.set(self.waiting_count)
                self._forget_empty(call.key)
                self._note("dropped")
        return dropped

    def close(self, *, drain: bool = True, timeout_ms: int = CLOSE_MS) -> None:
        """Refuse every further submission and end threads and connections. With `drain`, waiting requests are still
        decided; without it they are refused. A batch that does not end within `timeout_ms` is left behind with a
        warning.

        Blocks: from an event loop, call it in a thread. Closing again has no effect.
        """
        with self._changed:
            self._closing = True
            refused = [] if drain else self._take_all()
            self._changed.notify_all()
            threads = list(self._threads)
        refuse(refused, problems.Busy)
        deadline = time.monotonic() + timeout_ms / 1_000
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            late = self._take_all()
            pool, self._pool = self._pool, None
            self._threads = [thread for thread in threads if thread.is_alive()]
        refuse(late, problems.Busy)
        if self._threads:
            logger.warning("batcher %s: a batch did not end within %s ms", self.name, timeout_ms)
        if pool is not None:
            pool.close()
        atexit.unregister(self.close)

    # --- committers ------------------------------------------------------------------------------------------------

    def _start_a_thread(self) -> None:
        """Start one more committer thread if possible. Raises problems.Busy if there is still no thread at all."""
        if len(self._threads) >= self._committers_max:
            return
        try:
            if self._pool is None:
                # Opened on first use and not at import: workers that a server forks after loading the site must not
                # share one socket.
                self._pool = self._open_pool()
                atexit.register(self.close)
            name = f"batcher-{self.name}-{next(self._numbers)}"
            thread = threading.Thread(target=self._commit_batches, args=(self._pool,), name=name, daemon=True)
            self._threads.append(thread)
            try:
                thread.start()
            except RuntimeError:
                self._threads.remove(thread)
                raise
        except RuntimeError as error:
            # The machine has no more threads, or the interpreter is shutting down.
            logger.warning(
                "batcher %s: only %s of %s committers: %s", self.name, len(self._threads), self._committers_max, error
            )
            if not self._threads:
                self._note("refused")
                raise problems.Busy from error

    def _open_pool(self) -> ConnectionPool[Connection[Any]]:
        pool = pools.create_pool(self.name, size_max=self._committers_max, connect_ms=self._connect_ms, prepares=True)
        try:
            pool.open()
        except RuntimeError:
            pool.close()  # A pool that was opened only in part would never lend a connection.
            raise
        return pool

    def _commit_batches(self, pool: ConnectionPool[Connection[Any]]) -> None:
        while keys := self._wait_for_keys():
            if self._gathers(keys):
                time.sleep(self._gather_seconds)
            with self._turns.acquired(self._turn_for(keys)) if self._turns is not None else nullcontext():
                begun = time.monotonic()
                try:
                    if calls := self._dequeue(keys, begun):
                        self._commit(pool, calls, begun)
                finally:
                    self._release_keys(keys, time.monotonic() - begun)

    def _gathers(self, keys: Sequence[Hashable]) -> bool:
        """Return whether the batch of these keys waits for more requests. A mixed batch gathers while the one before
        runs."""
        if len(keys) > 1 or not self._gather_seconds:
            return False
        with self._changed:
            has_few = len(self._queues[keys[0]].calls) < FEW
            return has_few and not self._closing and self._arrivals.are_frequent(keys[0], time.monotonic())

    def _commit(self, pool: ConnectionPool[Connection[Any]], calls: list[Call[Request, Outcome]], begun: float) -> None:
        try:
            self._sizes.observe(len(calls))
            self._queued.observe(begun - min([call.since for call in calls]))
            if not self._attempts.carry_out(pool, calls):
                # The waiting requests would fail in the same way, one batch and one timeout after the other.
                with self._changed:
                    rest = self._take_all()
                refuse(rest, problems.DatabaseUnavailable)
        except BaseException:
            # After any error (a decide that exits, no memory left) this thread continues: other requests wait for it.
            logger.exception("batcher %s: a batch of %s failed", self.name, len(calls))
        finally:
            refuse([call for call in calls if not call.answered], OutcomeUnknown)
            self._committed.observe(time.monotonic() - begun)

    def _wait_for_keys(self) -> list[Hashable]:
        """Wait until a batch can begin, and return its keys. Return no keys, so that the thread ends, once the batcher
        is closed and its queues are empty, or after `idle_ms` without work."""
        with self._changed:
            idle_until = time.monotonic() + self._idle_ms / 1_000
            while not (keys := self._next_keys(now := time.monotonic())):
                late_at = self._late_at(now)
                if (self._closing and not self.waiting_count) or (late_at is None and idle_until <= now):
                    self._remove_thread()
                    return []
                self._idle += 1
                self._watching += late_at is not None
                self._changed.wait((idle_until if late_at is None else late_at) - now)
                self._watching -= late_at is not None
                self._idle -= 1
            self._begin(keys)
            if keys[0] in self._slow:
                self._slow_threads.add(threading.current_thread())
            if len(keys) > 1:
                self._mixed_since[threading.current_thread()] = None
            self._notify_committers()
        return keys

    def _begin(self, keys: Sequence[Hashable]) -> None:
        for key in keys:
            self._queues[key].under_way += 1
            self._queues.move_to_end(key)

    def _needs_wakeup(self, key: Hashable) -> bool:
        """Return whether an idle committer must wake up for this key now: either to decide its requests, or, if no
        other committer does so, to watch whether the mixed batch for which the key waits becomes late."""
        now = time.monotonic()
        return not self._watching or self._late_at(now) is None or not self._can_mix(key, self._queues[key], now)

    def _late_at(self, now: float) -> float | None:
        """Return when the latest running mixed batch becomes late; None if it is late already or none is running. Small
        queues then no longer gather."""
        if not self._mixed_since:
            return None
        allowed = max(LATE_SECONDS, LATE_TIMES * self._usual_seconds)
        late_at = max([now if since is None else since for since in self._mixed_since.values()]) + allowed
        return late_at if late_at > now else None

    def _turn_for(self, keys: Sequence[Hashable]) -> Hashable:
        """Return the key of the turn that the batch needs, derived from the longest-waiting request of each queue; None
        if it needs none."""
        with self._changed:
            firsts = [next(iter(calls.values())) for key in keys if (calls := self._queues[key].calls)]
            turn_keys = [key for call in firsts if (key := self._meets_at(call.request)) is not None]
        if len(keys) > 1:
            return _MIXED_TURN if turn_keys else None
        return turn_keys[0] if turn_keys else None

    def _dequeue(self, keys: list[Hashable], now: float) -> list[Call[Request, Outcome]]:
        """Take the waiting calls of these keys, up to the size of a batch; none if no caller waits any longer. A mixed
        batch also takes the keys that have become ready in the meantime."""
        calls: list[Call[Request, Outcome]] = []
        with self._changed:
            if len(keys) > 1:
                self._mixed_since[threading.current_thread()] = now
                more = self._small_keys(now, sum([len(self._queues[key].calls) for key in keys]))
                self._begin(more)
                keys += more
            for key in keys:
                queue = self._queues[key]
                size = min(len(queue.calls), self._batch_max - len(calls))
                calls += [queue.calls.popitem(last=False)[1] for _ in range(size)]
            self.waiting_count -= len(calls)
            self._waiting_gauge.set(self.waiting_count)
            if self._closing:
                self._changed.notify_all()
        return calls

    def _notify_committers(self) -> None:
        """Wake or start another committer if a batch is ready; while closing, wake all of them."""
        if self._closing:
            self._changed.notify_all()
        elif self._next_keys(time.monotonic()):
            if self._idle:
                self._changed.notify()
            else:
                self._start_a_thread()

    def _next_keys(self, now: float) -> list[Hashable]:
        """Return the next key to serve, with all keys that can be mixed with it. Small queues gather while a mixed
        batch is running and not late. Slow keys wait while their share of the committers is busy."""
        gathering = self._late_at(now) is not None
        takes_slow = len(self._slow_threads) < max(1, self._committers_max // SLOW_SHARE)
        for key, queue in self._queues.items():
            if queue.calls and queue.under_way < self._committers and (takes_slow or key not in self._slow):
                if not self._can_mix(key, queue, now):
                    return [key]
                if not gathering:
                    return self._small_keys(now)
        return []

    def _small_keys(self, now: float, size: int = 0) -> list[Hashable]:
        """Return the ready keys that can be mixed, as many as fit into a batch that has `size` calls already."""
        keys: list[Hashable] = []
        for key, queue in self._queues.items():
            if not queue.calls or queue.under_way >= self._committers or not self._can_mix(key, queue, now):
                continue
            if size + len(queue.calls) <= self._batch_max:
                keys.append(key)
                size += len(queue.calls)
        return keys

    def _can_mix(self, key: Hashable, queue: _Queue[Request, Outcome], now: float) -> bool:
        """Return whether the calls of this key may be decided together with those of others."""
        return self._mixes and 2 * len(queue.calls) <= self._batch_max and self._alone_until.get(key, 0) <= now

    def _release_keys(self, keys: Collection[Hashable], seconds: float) -> None:
        """Mark the batch with these keys as ended: their next batches may begin."""
        with self._changed:
            self._mixed_since.pop(threading.current_thread(), None)
            self._slow_threads.discard(threading.current_thread())
            if self._mixes:
                self._track_duration(keys, seconds)
            for key in keys:
                if (queue := self._queues.get(key)) is not None:
                    queue.under_way -= 1
                    self._forget_empty(key)
            self._queues_gauge.set(len(self._queues))
            if self._closing:
                self._changed.notify_all()

    def _track_duration(self, keys: Collection[Hashable], seconds: float) -> None:
        now = time.monotonic()
        if self._alone_until:
            self._alone_until = {key: until for key, until in self._alone_until.items() if until > now}
            self._slow &= self._alone_until.keys()
        if seconds > SLOW_SECONDS and seconds > SLOW_TIMES * self._usual_seconds:
            if len(self._queues) > 1:
                self._alone_until |= dict.fromkeys(keys, now + ALONE_SECONDS)
                self._slow.update(keys)
        else:
            self._slow.difference_update(keys)
            usual = self._usual_seconds + (seconds - self._usual_seconds) / 8
            self._usual_seconds = min(usual, USUAL_SECONDS_MAX)

    def _forget_empty(self, key: Hashable) -> None:
        queue = self._queues[key]
        if not queue.calls and not queue.under_way:
            del self._queues[key]

    def _remove_thread(self) -> None:
        thread = threading.current_thread()
        if not self._closing and thread in self._threads:
            # While closing, `close` joins the threads that it has listed.
            self._threads.remove(thread)

    def _take_all(self) -> list[Call[Request, Outcome]]:
        calls = [call for queue in self._queues.values() for call in queue.calls.values()]
        for key, queue in list(self._queues.items()):
            queue.calls.clear()
            self._forget_empty(key)
        self.waiting_count = 0
        self._waiting_gauge.set(0)
        return calls

    def _note(self, what: str) -> None:
        happened.labels(self.name, what).inc()


_batchers: weakref.WeakSet[Batcher[Any, Any]] = weakref.WeakSet()
_inherited: list[object] = []


def close_all() -> None:
    """Close every batcher of this process: waiting requests are decided, further ones refused, connections closed.

    Blocks: from an event loop, call it in a thread. A server calls this at shutdown, after it has answered its last
    request.
    """
    for batcher in list(_batchers):
        batcher.close()


def _after_fork() -> None:
    # The parent's pools are kept but never used. Their locks may be held by threads that do not exist in the child, and
    # a connection that is garbage-collected would end the parent's session over the shared socket.
    for batcher in _batchers:
        if batcher._pool is not None:
            batcher._pool._closed = True
            _inherited.append(batcher._pool)
        batcher._reset()


os.register_at_fork(after_in_child=_after_fork)
