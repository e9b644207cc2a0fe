"""What processes tell one another of their buckets: through Redis, in a thread, while nobody waits.

Only buckets in heavy use are spoken of: from a sixteenth of their burst on, and four requests at the least, so that a
crowd whose members each ask now and then is no traffic to Redis at all. Until then a process keeps to the limit by
itself; so with N processes an address may have up to N sixteenths more than its burst.
"""

import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from hashlib import blake2b

from apps.kernel import lua, redis, secret_key
from apps.kernel.rate_limits.buckets import Buckets

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.2
KEYS_AT_ONCE = 250
"""Redis does nothing else while it counts these: well under a millisecond."""
_share = lua.load("apps.kernel.rate_limits", "share")


class Sharing:
    """Shares the buckets of one process. Its thread runs between `begin()` and `end()`."""

    def __init__(self, buckets: Callable[[], Iterable[tuple[str, Buckets]]], time: Callable[[], float]) -> None:
        self._buckets = buckets
        self._time = time
        self._thread: threading.Thread | None = None
        self._reset()
        _sharings.add(self)

    def begin(self) -> None:
        """From now on this process shares what it counts."""
        with self._changing:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="rate-limits", daemon=True)
                thread.start()
                self._thread = thread

    def end(self) -> None:
        """The thread is gone, and nothing is shared before the next `begin()`."""
        with self._changing:
            thread = self._thread
            self._stopping.set()
            self._reset()
        if thread is not None:
            thread.join(timeout=5)

    def share(self) -> int:
        """What was counted since the last time is in Redis, and the buckets here owe what all processes' did; of how
        many. With Redis away nothing is shared, and what would have been is not told later either."""
        told = 0
        for name, buckets in self._buckets():
            pending = iter(list(buckets.take_pending().items()))
            while some := list(itertools.islice(pending, KEYS_AT_ONCE)):
                told += self._share_some(name, buckets, some)
        return told

    def _share_some(self, name: str, buckets: Buckets, some: list[tuple[str, int]]) -> int:
        keys = [_key(name, subject) for subject, _ in some]
        weights = [round(buckets.interval * 1e6), round(buckets.window * 1e6), *(count for _, count in some)]
        owed = redis.attempt(lambda client: _share.run(client, keys, weights))
        if owed is None:
            return 0
        for (subject, _), microseconds in zip(some, owed, strict=True):
            buckets.set_usage(subject, microseconds / 1e6, self._time())
        return len(some)

    def _run(self) -> None:
        stopping = self._stopping
        while not stopping.wait(INTERVAL_SECONDS):
            try:
                self.share()
            except Exception:
                logger.exception("rate limits: what this process counted was not shared")

    def _reset(self) -> None:
        self._changing = threading.RLock()
        self._stopping = threading.Event()
        self._thread = None

    def after_fork(self) -> None:
        """In the child: the thread stayed behind, and what is pending is the parent's to tell."""
        self._reset()
        for _, buckets in self._buckets():
            buckets.take_pending()


def _key(name: str, subject: str) -> str:
    # Neither an address nor a part of a token stands in Redis in the clear. One hash tag: one command, one server.
    digest = blake2b(f"{name} {subject}".encode(), key=secret_key.require_key().encode()[:64], digest_size=12)
    return f"limits:{{{name}}}:{digest.hexdigest()}"


_sharings: weakref.WeakSet[Sharing] = weakref.WeakSet()


def _after_fork() -> None:
    for sharing in _sharings:
        sharing.after_fork()


os.register_at_fork(after_in_child=_after_fork)
