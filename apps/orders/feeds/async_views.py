"""Receives that wait for a message, on the fast path.

A waiting receiver occupies neither a thread nor a connection to PostgreSQL: one statement, twice a second, looks for
messages of all feeds that receivers of this process wait for. Then, or when the time is over, the request is forwarded
to the site, which checks the key and receives, as it does without a wait. So nothing here decides or changes anything,
and a receiver may get an empty list early: one of another process has been quicker.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Collection
from typing import NamedTuple

from apps.kernel.fastpath import thread_pool
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.fastpath.dispatcher import Route
from apps.kernel.fastpath.request import ClientDisconnected, ForwardToSite, Request
from apps.kernel.fastpath.response import Reply
from apps.kernel.feeds import facade as feeds
from apps.kernel.http import problems
from apps.kernel.observability.repeated_errors import RepeatedErrors
from apps.orders.feeds import bodies
from apps.orders.models import FeedKey
from apps.orders.webhooks.feed import key_digest

LOOK_SECONDS = 0.5
WAITING_MAX = 1_000
"""Receivers that wait in a process; further ones are answered at once."""
ORGANIZER_WAITING_MAX = 50
"""Of these, those with keys of one organizer."""
_FAILING = "feeds were not read for receivers that wait"

FeedName = tuple[int, str]
"""Organizer and name."""


class _Question(NamedTuple):
    """The key of a receiver, by its digest, and the feed's name."""

    digest: str
    feed: str


class _Receiver(NamedTuple):
    request: Request
    most: int
    """How many messages it takes."""
    until: float
    """On the event loop's clock."""
    woken: "asyncio.Future[None]"

    def has_to_end(self, now: float) -> bool:
        return now >= self.until or self.request.has_disconnected() or self.request.is_last()


class Waits:
    """The receivers that wait in this process, by feed, those that have waited longest first."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._receivers: dict[FeedName, deque[_Receiver]] = {}
        self._by_organizer: Counter[int] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._errors = RepeatedErrors(logging.getLogger(__name__))

    async def wait(self, feed: FeedName, request: Request, most: int, seconds: int) -> None:
        """Return when the feed may have messages for this receiver, after this time, or at once if too many wait."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Receivers of a closed event loop can no longer be waiting.
            self._loop, self._receivers, self._by_organizer, self._task = loop, {}, Counter(), None
        organizer_id = feed[0]
        is_full = self._by_organizer.total() >= WAITING_MAX
        if is_full or self._by_organizer[organizer_id] >= ORGANIZER_WAITING_MAX:
            return
        receiver = _Receiver(request, most, loop.time() + seconds, loop.create_future())
        self._receivers.setdefault(feed, deque()).append(receiver)
        self._by_organizer[organizer_id] += 1
        if self._task is None or self._task.done():
            self._task = thread_pool.create_shared_task(self._look())
        try:
            await receiver.woken
        finally:
            self._by_organizer[organizer_id] -= 1
            left = self._receivers.get(feed)
            if left is not None and receiver in left:
                left.remove(receiver)
                if not left:
                    del self._receivers[feed]

    async def _look(self) -> None:
        assert self._loop is not None
        while self._receivers:
            await asyncio.sleep(LOOK_SECONDS)
            self._end(self._loop.time())
            if not self._receivers:
                return
            try:
                due = await thread_pool.run_in_thread(feeds.count_due, list(self._receivers))
                self._errors.over(_FAILING)
            except Exception as error:  # noqa: BLE001 - the receivers wait until their time is over; the site answers them
                self._errors.record_failure(_FAILING, error)
                continue
            for feed, count in due.items():
                self._wake(feed, count)

    def _end(self, now: float) -> None:
        """Wake the receivers whose time is over, that have disconnected, or whose connection is to end."""
        for feed, receivers in list(self._receivers.items()):
            ended = [one for one in receivers if one.has_to_end(now)]
            for one in ended:
                receivers.remove(one)
                _set(one)
            if not receivers:
                del self._receivers[feed]

    def _wake(self, feed: FeedName, count: int) -> None:
        """Wake as many receivers of the feed as this number of messages needs."""
        receivers = self._receivers.get(feed)
        while receivers and count > 0:
            one = receivers.popleft()
            count -= one.most
            _set(one)
        if not receivers:
            self._receivers.pop(feed, None)


def _set(receiver: _Receiver) -> None:
    if not receiver.woken.done():
        receiver.woken.set_result(None)


waits = Waits()


async def receive_messages(request: Request, feed: str) -> Reply:
    """Wait if the request asks for that and its feed has no message. Always raises ForwardToSite or
    ClientDisconnected."""
    try:
        seconds = bodies.read_wait_seconds(request.GET) if request.method == "GET" else 0
        most = bodies.read_count(request.GET)
    except problems.Invalid:
        raise ForwardToSite from None
    key = request.bearer()
    if not seconds or key is None:
        raise ForwardToSite
    found = await _receivers.ask(_Question(key_digest(key.strip()), feed))
    if found is not None:
        await waits.wait(found, request, most, seconds)
        if request.has_disconnected():
            # What it would receive, no program would get.
            raise ClientDisconnected
    raise ForwardToSite


def load_receivers(questions: Collection[_Question]) -> list[FeedName | None]:
    """Return the feed for which each receiver has to wait, in order; None: the site can answer it now, since there are
    messages, no such feed, or no key that may receive from it. Blocks."""
    keys = {key.digest: key for key in FeedKey.objects.filter(digest__in={one.digest for one in questions})}
    named = [_feed_of(keys.get(one.digest), one.feed) for one in questions]
    due = feeds.count_due([feed for feed in dict.fromkeys(named) if feed is not None])
    return [feed if feed is not None and due.get(feed) == 0 else None for feed in named]


def _feed_of(key: FeedKey | None, name: str) -> FeedName | None:
    if key is None or key.revoked_at is not None or key.organizer_id is None:
        return None
    may_receive = key.has_scope(FeedKey.Scope.RECEIVE) and key.is_for_feed(name)
    return (key.organizer_id, name) if may_receive else None


_receivers: BatchLoader[_Question, FeedName | None] = BatchLoader(load_receivers)

ROUTES = (Route("GET", "feeds/<slug>/messages", receive_messages, "receive from a feed", "feed"),)
