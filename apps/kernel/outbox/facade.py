"""Write a message in the transaction of the change it speaks of; it is delivered after the commit, at least once.

The row with its visibility time-out is the claim; whatever wakes a worker is only a wake-up and may be lost.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.outbox import outbox_metrics
from apps.kernel.outbox.models import OutboxMessage

logger = logging.getLogger(__name__)

ATTEMPTS_MAX = 10
BACKOFF_SECONDS_MAX = 300
KEPT_DAYS = 7
VISIBILITY = timedelta(minutes=10)
WINDOW_MAX = 500
"""Due messages of a topic that a claim looks through: those behind an earlier one of their key are put aside when a
claim comes up short, so that hardly any stand in its way."""
SPARE_COUNT = 16
"""Of a topic so many more than wanted are looked at: rivals have some locked at this moment."""
PUT_ASIDE_ROUNDS_MAX = 1_000
oldest_due_seconds = outbox_metrics.oldest_due_seconds

_publish = sql.load("apps.kernel.outbox", "publish_messages")
_claim = sql.load("apps.kernel.outbox", "claim_messages")
_set_behind = sql.load("apps.kernel.outbox", "set_behind")
_let_next_go = sql.load("apps.kernel.outbox", "let_next_go")
_settle = sql.load("apps.kernel.outbox", "settle_message")
_retry = sql.load("apps.kernel.outbox", "retry_message")
_postpone = sql.load("apps.kernel.outbox", "postpone_message")
_prolong = sql.load("apps.kernel.outbox", "prolong_claim")


@dataclass(frozen=True, slots=True)
class Message:
    id: int
    topic: str
    key: str
    body: dict[str, Any]
    receipt: UUID
    attempts: int
    """This delivery's number, from 1."""
    created_at: datetime
    available_at: datetime
    """When it was due."""


Handler = Callable[[Message], None]
Backoff = Callable[[int], timedelta]
"""How long a message waits after its so-many-th attempt has failed, from 1."""


def exponential_backoff(first_seconds: float = 2, seconds_max: float = BACKOFF_SECONDS_MAX) -> Backoff:
    """A wait that doubles with each failure, up to `seconds_max`."""
    return lambda attempts: timedelta(seconds=min(first_seconds * 2 ** min(attempts - 1, 30), seconds_max))


@dataclass(frozen=True, slots=True)
class Topic:
    """What becomes of the messages of one topic."""

    handler: Handler
    visibility: timedelta
    attempts_max: int
    backoff: Backoff
    together_max: int | None


_topics: dict[str, Topic] = {}
_wake: list[Callable[[], None]] = []


class NoHandler(LookupError):
    """A topic nobody handles: the message stays and is tried again, and its last error says so."""


class WorkerLost(RuntimeError):
    """At every attempt the worker ended before its handler did, so this message may be why: it is put aside."""


class NotDelivered(Exception):
    """Raised by a handler where the other side is to blame: tried again like any failure, told without a trace."""


class RetryLater(Exception):
    """Raised by a handler: not now, again in `seconds`. It counts as no failure, however often it is raised."""

    def __init__(self, seconds: float, why: str = "") -> None:
        super().__init__(why or f"again in {seconds:g} s")
        self.seconds = seconds


def register_handler(
    topic: str,
    handler: Handler,
    visibility: timedelta = VISIBILITY,
    *,
    attempts_max: int = ATTEMPTS_MAX,
    backoff: Backoff | None = None,
    together_max: int | None = None,
) -> None:
    """From now on messages of this topic go to `handler`, which must be safe to run twice for one message.

    A claim that is not settled within `visibility` (a worker was killed) is another's to take. After a failure the
    message waits as `backoff` says, two seconds and then twice as long each time unless given; after `attempts_max`
    of them it is put aside for a person to look at, and the next of its key is delivered. A handler that raises Later
    has not failed. A process has at most `together_max` of the topic under way: what may be slow, and matters less than
    money, leaves the other deliverers to the rest.
    """
    assert attempts_max >= 1
    _topics[topic] = Topic(handler, visibility, attempts_max, backoff or exponential_backoff(), together_max)


def has_handler(topic: str) -> bool:
    return topic in _topics


def register_wake(wake: Callable[[], None]) -> None:
    """`wake` is called after a commit that wrote messages. It may fail or be lost: the scanner looks anyway."""
    _wake[:] = [wake]


class NewMessage(NamedTuple):
    """A message to be written."""

    topic: str
    key: str
    body: dict[str, Any]
    delay: timedelta = timedelta()


def publish(topic: str, key: str, body: dict[str, Any], *, delay: timedelta = timedelta()) -> None:
    """The message exists if and only if the caller's transaction commits. Joins the caller's transaction."""
    publish_all([NewMessage(topic, key, body, delay)])


def publish_all(news: Sequence[NewMessage]) -> None:
    """The same for several, in one statement, written in their order."""
    transactions.require_transaction()
    with connection.cursor() as cursor:
        _publish.count(
            cursor,
            topics=[one.topic for one in news],
            keys=[one.key for one in news],
            bodies=[json.dumps(one.body) for one in news],
            delays=[one.delay for one in news],
        )
    for one in news:
        outbox_metrics.published(one.topic)
    # Once for each transaction, however many it writes.
    if not all(one.delay for one in news) and wake not in [one[1] for one in connection.run_on_commit]:
        transaction.on_commit(wake, robust=True)


def wake() -> None:
    """Whoever delivers has been told that there may be something to do."""
    for call in _wake:
        call()


def claim(limit: int, under_way: Mapping[str, int] = MappingProxyType({})) -> list[Message]:
    """Up to `limit` due messages are ours for their topic's visibility, in the order they were due, one per key.
    `under_way` says how many of each topic the caller has already. There may be more due than it finds: who got any
    looks again."""
    claimed = _claim_once(limit, under_way)
    for _ in range(PUT_ASIDE_ROUNDS_MAX):
        # Whatever was found starts before others are put aside: a long backlog of one key takes seconds, once.
        if claimed or _put_aside() == 0:
            break
        claimed = _claim_once(limit, under_way)
    return sorted(claimed, key=lambda message: (message.available_at, message.id))


def _claim_once(limit: int, under_way: Mapping[str, int]) -> list[Message]:
    topics = sorted(_topics)
    allowances = (_allowance(_topics[topic].together_max, under_way.get(topic, 0)) for topic in topics)
    with transactions.write(), connection.cursor() as cursor:
        rows = _claim.rows(
            cursor,
            limit=limit,
            window=WINDOW_MAX,
            spare=limit + SPARE_COUNT,
            visibility=VISIBILITY,
            topics=topics,
            visibilities=[_topics[topic].visibility for topic in topics],
            allowances=list(allowances),
        )
    # Django hands jsonb of a plain cursor over as text.
    return [Message(pk, topic, key, json.loads(body), *rest) for pk, topic, key, body, *rest in rows]


def _allowance(together_max: int | None, under_way_count: int) -> int | None:
    return None if together_max is None else max(0, together_max - under_way_count)


def _put_aside() -> int:
    """Due messages behind one that is under way, or waits for its next attempt, are out of every claim's way; how
    many."""
    with transactions.write(), connection.cursor() as cursor:
        return _set_behind.count(cursor, window=WINDOW_MAX)


def deliver(limit: int = 50) -> int:
    """Up to `limit` due messages have been handed over one after the other, in this thread; how many were claimed.

    Claimed one at a time: a message behind a slow one is another worker's to take, and its claim does not run out
    while it waits for its turn here. Servers deliver many at once (`delivery`).
    """
    delivered = 0
    while delivered < limit and (messages := claim(1)):
        delivered += 1
        hand_over(messages[0])
    return delivered


def hand_over(message: Message) -> None:
    """The claimed message has been through its handler, with no transaction and no lock open, and is done, put back,
    or put aside. Raises only what the ledger raises: then the claim runs out and another takes the message."""
    topic = _topics.get(message.topic)
    try:
        if topic is None:
            raise NoHandler(message.topic)
        if message.attempts > topic.attempts_max:
            raise WorkerLost(f"attempt {topic.attempts_max} has not come back, nor any before it")
        topic.handler(message)
    except RetryLater as later:
        if _end_claim(_postpone, message, wait=timedelta(seconds=later.seconds), why=str(later)[:2000]):
            outbox_metrics.ended(message.topic, "later")
    except Exception as error:
        # Whatever a handler meets must not lose the message nor stop its neighbours.
        trace = not isinstance(error, NotDelivered)
        logger.log(
            logging.ERROR if trace else logging.WARNING,
            "message %s (%s) failed, attempt %s: %s",
            message.id,
            message.topic,
            message.attempts,
            error,
            exc_info=trace,
        )
        attempts_max, backoff = (topic.attempts_max, topic.backoff) if topic else (ATTEMPTS_MAX, exponential_backoff())
        ended = _end_claim(
            _retry,
            message,
            backoff=backoff(message.attempts),
            attempts_max=attempts_max,
            error=f"{type(error).__name__}: {error}"[:2000],
        )
        for (is_dead,) in ended:
            outbox_metrics.ended(message.topic, "given up" if is_dead else "failed")
    else:
        for handled_seconds, delivered_seconds in _end_claim(_settle, message):
            outbox_metrics.deleted(message.topic, handled_seconds, delivered_seconds)


def _end_claim(statement: sql.Statement, message: Message, **params: Any) -> Sequence[tuple[Any, ...]]:
    """What the statement says of the row it touched; nothing where the claim is not ours any more."""
    with transactions.write(), connection.cursor() as cursor:
        # A statement of its own: it has to see what `set_behind` did while we waited for the row. In the same journey:
        # where the claim is another's, it changes nothing that whoever settles the message would not.
        ended, _ = sql.execute_batch(
            cursor,
            [
                statement.call(id=message.id, receipt=message.receipt, **params),
                _let_next_go.call(topic=message.topic, key=message.key),
            ],
        )
    rows = ended.rows
    if not rows:
        outbox_metrics.ended(message.topic, "overtaken")
        logger.warning("message %s (%s) outlived its visibility and is another's", message.id, message.topic)
    return rows


def prolong(message: Message) -> bool:
    """The claim lasts its topic's visibility from now on: for a handler that works in pieces. False once it is
    another's: then the handler should stop. Own transaction."""
    topic = _topics.get(message.topic)
    visibility = topic.visibility if topic else VISIBILITY
    with transactions.write(), connection.cursor() as cursor:
        return _prolong.count(cursor, id=message.id, receipt=message.receipt, visibility=visibility) == 1


def is_waiting(topic: str, key: str) -> bool:
    """Whether a message of this topic and key is still to be delivered and nobody has begun to."""
    waiting = OutboxMessage.objects.filter(topic=topic, key=key, done_at__isnull=True, dead_at__isnull=True)
    return waiting.exclude(claimed_until__gt=clock.now()).exists()


def is_unsettled(topic: str, key: str, body: dict[str, Any]) -> bool:
    """Whether this very message is neither done nor given up."""
    return OutboxMessage.objects.filter(
        topic=topic, key=key, body=body, done_at__isnull=True, dead_at__isnull=True
    ).exists()


def retry_given_up(message_ids: Sequence[int], now: datetime) -> int:
    """Given-up messages among these are due again, with all their attempts before them; how many."""
    with transactions.write():
        dead = OutboxMessage.objects.select_for_update(no_key=True).filter(pk__in=message_ids, dead_at__isnull=False)
        ids = list(dead.order_by("pk").values_list("pk", flat=True))
        OutboxMessage.objects.filter(pk__in=ids).update(
            dead_at=None, attempts=0, available_at=now, claimed_until=None, receipt=None, is_behind=False
        )
        if ids:
            transaction.on_commit(wake, robust=True)
    return len(ids)


def collect_garbage(limit: int = 10_000) -> int:
    """Messages done more than KEPT_DAYS ago are gone, at most `limit` of them; how many went."""
    old = OutboxMessage.objects.filter(done_at__lt=clock.now() - timedelta(days=KEPT_DAYS)).values("pk")[:limit]
    gone, _ = OutboxMessage.objects.filter(pk__in=old).delete()
    return gone
