"""Shares the counts of heavily used buckets between processes through Redis, in a thread that no request waits for.

A bucket is shared once it has used a sixteenth of its burst and at least four requests, so that many clients with few
requests each cause no traffic to Redis. Below that a process counts by itself: with N processes an address can exceed
its burst by up to N sixteenths.
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
"""Keys of one script call, which occupies Redis for well under a millisecond."""
_share = lua.load("apps.kernel.rate_limits", "share")


class Sharing:
    """Shares the buckets of one process, in a thread that runs from `begin()` to `end()`."""

    def __init__(self, buckets: Callable[[], Iterable[tuple[str, Buckets]]], time: Callable[[], float]) -> None:
        self._buckets = buckets
        self._time = time
        self._thread: threading.Thread | None = None
        self._reset()
        _sharings.add(self)

    def begin(self) -> None:
        """Start the thread."""
        with self._changing:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="rate-limits", daemon=True)
                thread.start()
                self._thread = thread

    def end(self) -> None:
        """Stop the thread."""
        with self._changing:
            thread = self._thread
            self._stopping.set()
            self._reset()
        if thread is not None:
            thread.join(timeout=5)

    def share(self) -> int:
        """Add the counts since the last call to Redis, set the buckets to the totals of all processes, and return how
        many buckets were shared. Without Redis the counts are dropped."""
        shared = 0
        for name, buckets in self._buckets():
            pending = iter(list(buckets.take_pending().items()))
            while batch := list(itertools.islice(pending, KEYS_AT_ONCE)):
                shared += self._share_batch(name, buckets, batch)
        return shared

    def _share_batch(self, name: str, buckets: Buckets, batch: list[tuple[str, int]]) -> int:
        keys = [_key(name, subject) for subject, _ in batch]
        weights = [round(buckets.interval * 1e6), round(buckets.window * 1e6), *(count for _, count in batch)]
        owed = redis.attempt(lambda client: _share.run(client, keys, weights))
        if owed is None:
            return 0
        for (subject, _), microseconds in zip(batch, owed, strict=True):
            buckets.set_usage(subject, microseconds / 1e6, self._time())
        return len(batch)

    def _run(self) -> None:
        stopping = self._stopping
        while not stopping.wait(INTERVAL_SECONDS):
            try:
                self.share()
            except Exception:
                logger.exception("rate limits: the counts of this process were not shared")

    def _reset(self) -> None:
        self._changing = threading.RLock()
        self._stopping = threading.Event()
        self._thread = None

    def after_fork(self) -> None:
        """Reset the child after a fork: the thread and the pending counts belong to the parent."""
        self._reset()
        for _, buckets in self._buckets():
            buckets.take_pending()


def _key(name: str, subject: str) -> str:
    # Hashed, so that Redis has no addresses or parts of tokens. One hash tag, so that one script can use all keys.
    digest = blake2b(f"{name} {subject}".encode(), key=secret_key.require_key().encode()[:64], digest_size=12)
    return f"limits:{{{name}}}:{digest.hexdigest()}"


_sharings: weakref.WeakSet[Sharing] = weakref.WeakSet()


def _after_fork() -> None:
    for sharing in _sharings:
        sharing.after_fork()


os.register_at_fork(after_in_child=_after_fork)
