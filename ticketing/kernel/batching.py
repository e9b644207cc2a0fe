"""Group commit: many requests, few transactions, and each caller gets its own outcome.

While one batch commits the next gathers; an idle batcher commits at once, a batch of one. There is no timer: the
commit under way is what the next batch waits for.

To put a service on it, give it a `decide(connection, requests)` that returns one outcome per request, in order:

- The connection is psycopg's, in autocommit, never Django's (see kernel.pools). Transactions are opened with
  `transactions.write_on(connection, lock_ms=…)`, which yields the cursor; statements are the same SQL files, run on
  that cursor. The ORM, `clock.now()` and `transactions.require()` speak to Django's connection and have no place here.
- It may open several transactions, one after the other, and has none open when it returns. What passes by itself
  (a lock that does not come) it then handles from the second one on, for those whom the first has answered.
- Requests are validated and resolved to ids before they are submitted, and carry the ids of the rows they will
  become. Refusals are outcomes; an exception means that the batch could not be decided.
- With several transactions it may be a generator, which yields after each what that has settled, by index: who has
  won is then told at once, however long the others take.
- What an earlier attempt committed is found by `find_committed(connection, requests)`, which maps the index of a
  request to its outcome. It runs before every attempt but the first: a COMMIT whose answer was lost may have
  committed, and a decide of several transactions may fail after its first. A decide that itself finds what is
  committed (it reads existing answers first) passes `finds_itself`.
"""

import asyncio
import atexit
import logging
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic

from prometheus_client import Gauge, Histogram
from psycopg import Connection
from psycopg_pool import ConnectionPool

from ticketing.kernel import pools, problems
from ticketing.kernel.attempts import Attempts, Decide, Misdecided, OutcomeUnknown, happened
from ticketing.kernel.calls import Call, Outcome, Request, refuse

__all__ = ["METRICS", "Batcher", "Misdecided", "OutcomeUnknown", "finds_itself"]

logger = logging.getLogger(__name__)

WAITING_MAX = 5_000
BATCH_MAX = 256
CONNECT_MS = 5_000
CLOSE_MS = 10_000

_sizes = Histogram(
    "fairgate_batch_size",
    "Requests decided together.",
    ["batcher"],
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    registry=None,
)
_queued = Histogram(
    "fairgate_batch_queued_seconds", "From the submission to the beginning of its batch.", ["batcher"], registry=None
)
_committed = Histogram(
    "fairgate_batch_commit_seconds",
    "From the beginning of a batch to its last answer, retries included.",
    ["batcher"],
    registry=None,
)
_waiting = Gauge("fairgate_batch_waiting_count", "Requests that no batch has taken yet.", ["batcher"], registry=None)
METRICS = (_sizes, _queued, _committed, _waiting, happened)
"""Of this process; the composition root registers them where it serves figures."""


def finds_itself(connection: Connection[Any], requests: Sequence[Any]) -> Mapping[int, Any]:
    """The `find_committed` of a decide that finds by itself what an earlier attempt committed."""
    return {}


class Batcher(Generic[Request, Outcome]):
    """Commits what is submitted in groups, in arrival order. Made once, at import; costs nothing until it is used.

    `committers`: how many batches may be under way at once, each in a thread with a connection of its own. With more
    than one, arrival order holds within a batch, not between two that run side by side.
    `waiting_max`: how many requests may wait for a batch; one more is refused. `batch_max`: the largest batch.
    `connect_ms`: how long a batch waits for a connection before its callers are told that the ledger is away.
    """

    def __init__(
        self,
        name: str,
        decide: Decide[Request, Outcome],
        *,
        find_committed: Callable[[Connection[Any], list[Request]], Mapping[int, Outcome]],
        committers: int = 1,
        waiting_max: int = WAITING_MAX,
        batch_max: int = BATCH_MAX,
        connect_ms: int = CONNECT_MS,
    ) -> None:
        assert committers > 0
        assert waiting_max > 0
        assert batch_max > 0
        self.name = name
        self._attempts = Attempts(name, decide, find_committed)
        self._committers = committers
        self._waiting_max = waiting_max
        self._batch_max = batch_max
        self._connect_ms = connect_ms
        self._sizes, self._queued = _sizes.labels(name), _queued.labels(name)
        self._committed, self._waiting_count = _committed.labels(name), _waiting.labels(name)
        self._waiting_count.set(0)
        self._start_anew()
        _batchers.add(self)

    def _start_anew(self) -> None:
        """As before the first request. Also what a forked child does: threads, locks and callers stayed behind."""
        self._changed = threading.Condition(threading.Lock())
        self._closing = False
        # Ordered by arrival, and one that goes away is taken out of the middle at no cost.
        self._waiting: OrderedDict[int, Call[Request, Outcome]] = OrderedDict()
        self._threads: list[threading.Thread] = []
        self._pool: ConnectionPool[Connection[Any]] | None = None

    # --- callers ---------------------------------------------------------------------------------------------------

    async def submit(self, request: Request) -> Outcome:
        """The request is decided and committed; its outcome. For async handlers, on any loop.

        A caller that is canceled before a batch took its request has changed nothing; later, it only loses the
        answer. Raises problems.Busy at once when too many wait or the batcher is closed, problems.Busy too when locks
        did not come in time, problems.LedgerAway when nothing was changed because there is no database,
        OutcomeUnknown when it may have been, or what `decide` raised over this very request.
        """
        call = self._enqueue(Call(request, future=asyncio.get_running_loop().create_future()))
        assert call.future is not None
        try:
            await call.future
        except asyncio.CancelledError:
            # Only here and not in a finally: a coroutine that is collected with its loop would end there too, in
            # whatever thread collects, which may hold the very lock.
            self._drop(call)
            raise
        return call.result()

    def submit_sync(self, request: Request, timeout_ms: int) -> Outcome:
        """The same for a thread, which waits at most `timeout_ms`. Too late, it raises problems.Busy if nothing was
        begun, OutcomeUnknown if a batch has it."""
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("this would stop the event loop of its thread: await submit()")
        call = self._enqueue(Call(request, done=threading.Event()))
        assert call.done is not None
        try:
            in_time = call.done.wait(timeout_ms / 1_000)
        finally:
            dropped = self._drop(call)
        if dropped:
            raise problems.Busy
        # Its answer may have come between the end of the wait and the look into the queue.
        if not in_time and not call.done.is_set():
            raise OutcomeUnknown
        return call.result()

    def _enqueue(self, call: Call[Request, Outcome]) -> Call[Request, Outcome]:
        with self._changed:
            if self._closing or len(self._waiting) >= self._waiting_max:
                self._note("refused")
                raise problems.Busy
            if len(self._threads) < self._committers:
                self._start_threads()
            self._waiting[id(call)] = call
            self._waiting_count.set(len(self._waiting))
            self._changed.notify()
        return call

    def _drop(self, call: Call[Request, Outcome]) -> bool:
        """The caller waits no more. Whether the request was still waiting, so that nobody will ever decide it."""
        if call.answered:
            return False
        with self._changed:
            dropped = self._waiting.pop(id(call), None) is not None
            if dropped:
                self._waiting_count.set(len(self._waiting))
                self._note("dropped")
        return dropped

    def close(self, *, drain: bool = True, timeout_ms: int = CLOSE_MS) -> None:
        """From now on every submission is refused. What waits is still decided with `drain`, refused without; threads
        and connections are gone, or are left behind with a warning if a batch does not end within `timeout_ms`.

        Blocks: from a loop, call it in a thread. Closing again is nothing.
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

    def _start_threads(self) -> None:
        """As many committers as there may be, or as many as can be had. Raises problems.Busy if that is none."""
        try:
            if self._pool is None:
                # Opened here and not at import: a server that forks its workers after loading the site must not hand
                # them one socket to share.
                self._pool = self._open_pool()
                atexit.register(self.close)
            while len(self._threads) < self._committers:
                number = len(self._threads)
                thread = threading.Thread(
                    target=self._commit_batches, args=(self._pool,), name=f"batcher-{self.name}-{number}", daemon=True
                )
                thread.start()
                self._threads.append(thread)
        except RuntimeError as error:
            # The machine has no more threads for us, or the interpreter is ending.
            logger.warning(
                "batcher %s: %s of %s committers: %s", self.name, len(self._threads), self._committers, error
            )
            if not self._threads:
                self._note("refused")
                raise problems.Busy from error

    def _open_pool(self) -> ConnectionPool[Connection[Any]]:
        pool = pools.beside_django(self.name, size_max=self._committers, connect_ms=self._connect_ms)
        try:
            pool.open()
        except RuntimeError:
            pool.close()  # Half open it would never lend anything.
            raise
        return pool

    def _commit_batches(self, pool: ConnectionPool[Connection[Any]]) -> None:
        while calls := self._take():
            begun = time.monotonic()
            try:
                self._sizes.observe(len(calls))
                for call in calls:
                    self._queued.observe(begun - call.since)
                if not self._attempts.carry_out(pool, calls):
                    # Who waits would only meet the same, one batch and one time-out after the other.
                    with self._changed:
                        rest = self._take_all()
                    refuse(rest, problems.LedgerAway)
            except BaseException:
                # Whatever it was (a decide that exits, no memory left), this thread goes on: others wait for it.
                logger.exception("batcher %s: a batch of %s failed", self.name, len(calls))
            finally:
                refuse([call for call in calls if not call.answered], OutcomeUnknown)
                self._committed.observe(time.monotonic() - begun)

    def _take(self) -> list[Call[Request, Outcome]]:
        """The next batch, as soon as there is anything; empty once the batcher is closed and nothing waits."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            size = min(len(self._waiting), self._batch_max)
            calls = [self._waiting.popitem(last=False)[1] for _ in range(size)]
            self._waiting_count.set(len(self._waiting))
        return calls

    def _take_all(self) -> list[Call[Request, Outcome]]:
        calls = list(self._waiting.values())
        self._waiting.clear()
        self._waiting_count.set(0)
        return calls

    def _note(self, what: str, count: int = 1) -> None:
        happened.labels(self.name, what).inc(count)


_batchers: weakref.WeakSet[Batcher[Any, Any]] = weakref.WeakSet()
_inherited: list[object] = []


def _after_fork() -> None:
    # The parent's pools are kept and never touched: their locks may be held by threads that are not here, and a
    # connection that is collected must not say goodbye over a socket that the parent uses.
    for batcher in _batchers:
        if batcher._pool is not None:
            batcher._pool._closed = True
            _inherited.append(batcher._pool)
        batcher._start_anew()


os.register_at_fork(after_in_child=_after_fork)
