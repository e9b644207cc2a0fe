"""The outbox: messages are written in the transaction of their change and delivered after its commit, at least once.

A claim is a visibility timeout in the message's row. Wake-ups only shorten the wait for the scanner and may be lost.
"""

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, connection, transaction

from apps.kernel.db import sql, transactions
from apps.kernel.observability import log_context
from apps.kernel.outbox import claim_limits, outbox_metrics, partitions, stored_messages
from apps.kernel.outbox.topic_groups import ALL_GROUPS, TopicGroup

logger = logging.getLogger(__name__)

ATTEMPTS_MAX = 10
BACKOFF_SECONDS_MAX = 300
VISIBILITY = timedelta(minutes=10)
WINDOW_MAX = 500
"""Due messages of a topic that one claim examines. When a claim finds too few, messages behind an earlier one of their
key are put aside (`is_behind`), so that the next claim skips them."""
SPARE_COUNT = 16
"""Candidates examined beyond the limit, since concurrent claims have some of them locked."""
PUT_ASIDE_ROUNDS_MAX = 1_000
GIVE_BACK_AGE_MAX = timedelta(minutes=5)
"""An older message whose list loses its database session is handled alone."""
LIST_MAX = 100
"""Messages of a topic with a list handler that are handled together."""
EXITS = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What ends a process or a test and is no failure of a handler. Every other error is one, also a library's panic, which
is a BaseException."""

collect_garbage = stored_messages.collect_garbage
count_due = stored_messages.count_due
is_unsettled = stored_messages.is_unsettled
is_waiting = stored_messages.is_waiting
read_waiting = stored_messages.read_waiting
ORIGIN_FIELD, SOURCE_FIELD = partitions.ORIGIN_FIELD, stored_messages.SOURCE_FIELD

_publish = sql.load("apps.kernel.outbox", "publish_messages", prepared=True)
_claim = sql.load("apps.kernel.outbox", "claim_messages", prepared=True)
_set_behind = sql.load("apps.kernel.outbox", "set_behind")
_unblock_next_messages = sql.load("apps.kernel.outbox", "unblock_next_messages", prepared=True)
_settle = sql.load("apps.kernel.outbox", "settle_messages", prepared=True)
_return = sql.load("apps.kernel.outbox", "return_messages")
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
ListHandler = Callable[[Sequence[Message]], Collection[int]]
"""Handles messages of one topic together. Returns the ids of those that the topic's handler must handle alone; it has
changed nothing for these."""


class Ends(Protocol):
    """Ends messages that a list starter has begun to handle. May be called from any thread; an end of a message that
    has ended already changes nothing. Raises no error of the database: such an end is repeated until it succeeds."""

    def end(self, handled: Sequence[Message], alone: Sequence[Message] = ()) -> None:
        """Settle these messages, all of one topic, and give the others back: the topic's handler gets each alone."""
        ...

    def postpone(self, message: Message, seconds: float, why: str) -> None:
        """Give the message back as RetryLater does: the topic's handler gets it alone in `seconds`."""
        ...


ListStarter = Callable[[Sequence[Message], Ends], None]
"""Begins to handle messages of one topic and returns while the work goes on. Each message is ended as soon as its own
work is done. If it raises, the messages that have not ended are handled alone."""
Backoff = Callable[[int], timedelta]
"""Returns how long a message waits after its n-th failed attempt, counted from 1."""


def exponential_backoff(first_seconds: float = 2, seconds_max: float = BACKOFF_SECONDS_MAX) -> Backoff:
    """Return a backoff that doubles with each failure, up to `seconds_max`."""
    return lambda attempts: timedelta(seconds=min(first_seconds * 2 ** min(attempts - 1, 30), seconds_max))


@dataclass(frozen=True, slots=True)
class Topic:
    """How the messages of one topic are handled; see `register_handler`."""

    handler: Handler
    visibility: timedelta
    attempts_max: int
    backoff: Backoff
    together_max: int | None
    list_handler: ListHandler | None
    list_starter: ListStarter | None
    group: TopicGroup
    is_preferred: bool

    @property
    def has_lists(self) -> bool:
        return self.list_handler is not None or self.list_starter is not None

    @property
    def is_shared(self) -> bool:
        return self.group is TopicGroup.MAIL and not self.is_preferred


_handled: ContextVar[Message | None] = ContextVar("outbox_message", default=None)
_topics: dict[str, Topic] = {}
_wake: list[Callable[[], object]] = []


class NoHandler(LookupError):
    """No handler is registered for the topic. The message is retried, with this as its last error."""


class WorkerLost(RuntimeError):
    """At every attempt the worker ended before the handler did. The message may be the cause, so it is given up."""


class NotDelivered(Exception):
    """Raised by a handler when the remote side failed: retried like any failure, logged without a traceback. The next
    attempt is `retry_seconds` later at least, and after `attempts_max` the message is given up, if its topic allows
    more."""

    def __init__(self, why: str, *, retry_seconds: float = 0, attempts_max: int | None = None) -> None:
        super().__init__(why)
        self.retry_seconds, self.attempts_max = retry_seconds, attempts_max


class RetryLater(Exception):
    """Raised by a handler to be called again in `seconds`. Never counts as a failure, however often it is raised."""

    def __init__(self, seconds: float, why: str = "") -> None:
        super().__init__(why or f"retry in {seconds:g} s")
        self.seconds = seconds


def register_handler(
    topic: str,
    handler: Handler,
    visibility: timedelta = VISIBILITY,
    *,
    attempts_max: int = ATTEMPTS_MAX,
    backoff: Backoff | None = None,
    together_max: int | None = None,
    list_handler: ListHandler | None = None,
    list_starter: ListStarter | None = None,
    group: TopicGroup = TopicGroup.SALES,
    is_preferred: bool = False,
) -> None:
    """Deliver messages of this topic to `handler`, which must be safe to run twice for one message.

    Another worker may take a claim that is not settled within `visibility` (the first worker was killed). After a
    failure the message waits for `backoff`: by default two seconds, doubled each time. After `attempts_max` failures
    it is given up until an operator retries it, and the next message of its key is delivered. RetryLater is not a
    failure. A process handles at most `together_max` messages of the topic at once, so that slow and less important
    topics leave threads to payments.

    `list_handler` gets the new messages of the topic first, up to LIST_MAX at once and one list at a time in a process:
    the messages that arrive meanwhile are the next list. Messages that it returns, all of them if it fails, and
    messages of earlier attempts go to `handler`, each alone; if it loses its database session, it gets them again. It
    takes much less time than `visibility`.

    `list_starter` gets lists in the same way, for work that waits for others: it returns soon, the next list begins,
    and each message ends by itself. The messages that a process has begun and not ended count for `together_max`.

    `group`: the processes that deliver the topic, see `TopicGroup`. All topics of MAIL together use at most half of the
    threads for mails (`claim_limits.shared_max`), in turns, so that mails to slow servers leave the others to those
    that are `is_preferred`.
    """
    assert attempts_max >= 1
    assert list_handler is None or (together_max is None and list_starter is None)
    assert list_starter is None or together_max is not None
    _topics[topic] = Topic(
        handler,
        visibility,
        attempts_max,
        backoff or exponential_backoff(),
        together_max,
        list_handler,
        list_starter,
        group,
        is_preferred,
    )


def has_handler(topic: str) -> bool:
    return topic in _topics


def register_wake(wake: Callable[[], object]) -> None:
    """Call `wake` after each commit that wrote messages for `worker`. It may fail: the scanner finds them anyway."""
    _wake[:] = [wake]


def worker_groups() -> Collection[TopicGroup]:
    """Return what `worker` delivers, and `gatekeeper` in its absence."""
    return ALL_GROUPS if settings.MAIL_IN_WORKER else (TopicGroup.SALES,)


def _topics_outside(groups: Collection[TopicGroup], *, only_lists: bool = False) -> list[str]:
    """Return the topics of the other groups. A topic without a handler belongs to every group."""
    inside = {name for name, topic in _topics.items() if topic.group in groups and (topic.has_lists or not only_lists)}
    return sorted(_topics.keys() - inside)


def oldest_due_seconds(groups: Collection[TopicGroup] = ALL_GROUPS, *, only_lists: bool = False) -> float | None:
    """Return for how many seconds the oldest unclaimed message of these groups has been due, or None if none is due.
    Those behind another of their key do not count. `only_lists`: of topics with lists, on which sales wait."""
    return outbox_metrics.oldest_due_seconds(_topics_outside(groups, only_lists=only_lists))


def get_status() -> outbox_metrics.OutboxStatus:
    """Return the current figures of the outbox."""
    return outbox_metrics.get_status(_topics_outside([TopicGroup.SALES]), _topics_outside([TopicGroup.MAIL]))


class ClaimNotEnded(Exception):
    """The handler has ended, but the database failed when the claim was to be ended. The claim would hide the message
    for the rest of its visibility timeout: call `end` until it succeeds."""

    def __init__(self, message: Message, end: Callable[[], None]) -> None:
        super().__init__(f"the claim of message {message.id} ({message.topic}) could not be ended")
        self.end = end
        """Ends the claim as the handler's outcome requires: settled, postponed or due for a retry. Raises errors of the
        database. Safe to repeat: only the latest claim of a message can be ended."""


class NewMessage(NamedTuple):
    """A message to write."""

    topic: str
    key: str
    body: dict[str, Any]
    delay: timedelta = timedelta()


def publish(topic: str, key: str, body: dict[str, Any], *, delay: timedelta = timedelta()) -> None:
    """Write a message in the caller's transaction, so that it exists if and only if that commits."""
    publish_all([NewMessage(topic, key, body, delay)])


def publish_all(messages: Sequence[NewMessage]) -> None:
    """Write several messages in this order, in one statement. Joins the caller's transaction."""
    transactions.require_transaction()
    with connection.cursor() as cursor:
        sql.execute_batch(cursor, [publish_call(messages)])
    topics = [message.topic for message in messages]
    transaction.on_commit(partial(outbox_metrics.count_published, topics), robust=True)
    # Registered once per transaction, however many messages it writes.
    if _concerns_worker(messages) and wake not in [hook[1] for hook in connection.run_on_commit]:
        transaction.on_commit(wake, robust=True)


def publish_call(messages: Sequence[NewMessage]) -> sql.Call:
    """Return the statement that writes these messages in this order, for a transaction on a connection other than
    Django's. Call `notify_published` after its commit."""
    return _publish.call(
        topics=[message.topic for message in messages],
        keys=[message.key for message in messages],
        bodies=[json.dumps(message.body) for message in messages],
        partitions=[partitions.partition_of(message.body) for message in messages],
        delays=[message.delay for message in messages],
    )


def notify_published(messages: Sequence[NewMessage]) -> None:
    """Count these committed messages, and notify the delivery workers. An error is only logged: the scanner finds the
    messages anyway."""
    outbox_metrics.count_published(message.topic for message in messages)
    if not _concerns_worker(messages):
        return
    try:
        wake()
    except Exception:
        logger.exception("delivery workers were not notified of %s messages", len(messages))


def _concerns_worker(messages: Sequence[NewMessage]) -> bool:
    """Return whether one of the messages is due now in a group of `worker`. `mailer` looks for its messages itself."""
    groups = worker_groups()
    return any(
        not message.delay and (message.topic not in _topics or _topics[message.topic].group in groups)
        for message in messages
    )


def wake() -> None:
    """Notify the delivery workers that messages may be due."""
    for call in _wake:
        call()


def claim(
    limit: int,
    under_way: Mapping[str, int] = MappingProxyType({}),
    *,
    busy_lists: Collection[str] | None = None,
    groups: Collection[TopicGroup] = ALL_GROUPS,
) -> list[Message]:
    """Claim up to `limit` due messages of these groups for their topic's visibility timeout, one per key. Return them
    by due time.

    `under_way` is the number of messages that the caller already has in progress, by topic. With `busy_lists`, the
    topics of which the caller has a list in progress, the new messages of other topics with a list handler are claimed
    too, and do not count for `limit`. A claim may miss due messages: after one that found any, claim again.
    """
    others = _topics_outside(groups)
    claimed, are_blocked = _claim_once(limit, under_way, busy_lists, others)
    for _ in range(PUT_ASIDE_ROUNDS_MAX):
        # Return claimed messages first: putting a long backlog of one key aside takes seconds, once.
        if not are_blocked or _put_aside(others) == 0:
            break
        claimed, are_blocked = _claim_once(limit, under_way, busy_lists, others)
    return sorted(claimed, key=lambda message: (message.available_at, message.id))


def _claim_once(
    limit: int, under_way: Mapping[str, int], busy_lists: Collection[str] | None, others: Sequence[str]
) -> tuple[list[Message], bool]:
    """Return the messages that were claimed, and, if there are none, whether some are due that may be blocked."""
    limits = claim_limits.read_limits(_topics, under_way, busy_lists, LIST_MAX)
    call = _claim.call(
        limit=limit,
        window=WINDOW_MAX,
        spare=limit + SPARE_COUNT,
        visibility=VISIBILITY,
        visibilities=[_topics[topic].visibility for topic in limits.topics],
        others=others,
        **limits._asdict(),
    )
    ((rows, _),) = transactions.write_batch([call])
    if rows and rows[0][0] is None:
        return [], True
    # Django returns jsonb as text from a plain cursor.
    return [Message(pk, topic, key, json.loads(body), *rest) for pk, topic, key, body, *rest in rows], False


def _put_aside(others: Sequence[str]) -> int:
    """Put aside due messages whose predecessor of the same key is in progress or waits for a retry, except of the
    topics `others`; return how many."""
    ((_, count),) = transactions.write_batch([_set_behind.call(window=WINDOW_MAX, others=others)])
    return count


def deliver(limit: int = 50) -> int:
    """Deliver up to `limit` due messages one after the other in this thread; return how many were claimed.

    They are claimed one at a time, so that another worker can take the message behind a slow one and no claim expires
    while its message waits here. Servers deliver concurrently (`delivery`).
    """
    delivered = 0
    while delivered < limit and (messages := claim(1)):
        delivered += 1
        hand_over(messages[0])
    return delivered


def is_listed(message: Message) -> bool:
    """Return whether the message may be handled together with others of its topic: it was never claimed before."""
    topic = _topics.get(message.topic)
    return topic is not None and topic.has_lists and message.attempts == 1


def is_started_in_lists(message: Message) -> bool:
    """Return whether the messages of its topic end one by one after their list has begun (`ListStarter`)."""
    topic = _topics.get(message.topic)
    return topic is not None and topic.list_starter is not None


def has_free_list(busy_lists: Collection[str], groups: Collection[TopicGroup] = ALL_GROUPS) -> bool:
    """Return whether there is a topic of these groups with lists that is not among these."""
    return any(topic.has_lists and topic.group in groups and name not in busy_lists for name, topic in _topics.items())


def start_list(messages: Sequence[Message], ends: Ends) -> None:
    """Run the list starter of these messages' topic, with no transaction and no lock open. Raises nothing: if it fails,
    the messages that have not ended are given back, to be handled alone."""
    starter = _topics[messages[0].topic].list_starter
    assert starter is not None
    try:
        starter(messages, ends)
    except EXITS:
        raise
    except BaseException:
        logger.exception("%s messages (%s) failed together and are handled alone", len(messages), messages[0].topic)
        ends.end((), messages)


def end_started(handled: Sequence[Message], others: Sequence[Message]) -> None:
    """Settle the handled messages, and give the others back: they are due at once, and handled alone. All are of one
    topic. Raises only ClaimNotEnded."""
    _end_or_keep((*handled, *others)[0], partial(_end_list, handled, others))


def postpone_started(message: Message, seconds: float, why: str) -> None:
    """Give the message back, due in `seconds`. Raises only ClaimNotEnded."""
    _end_or_keep(message, partial(_end_postponed, message, seconds, why[:2000]))


def hand_over_list(messages: Sequence[Message]) -> None:
    """Run the list handler of these messages' topic, for which `is_listed` is true, with no transaction and no lock
    open; then settle what it handled, and give the others back, to be handled alone.

    Raises only ClaimNotEnded, as `hand_over` does.
    """
    if len(messages) == 1:
        hand_over(messages[0])
        return
    left = _run_list_handler(messages)
    handled = [message for message in messages if message.id not in left]
    others = [message for message in messages if message.id in left]
    _end_or_keep(messages[0], partial(_end_list, handled, others))


def give_back(messages: Sequence[Message]) -> None:
    """End the claims of messages that the database's failure kept from being handled: they are new again."""
    ids, receipts = [message.id for message in messages], [message.receipt for message in messages]
    (returned,) = transactions.write_batch([_return.call(ids=ids, receipts=receipts, age_max=GIVE_BACK_AGE_MAX)])
    ended = {pk for (pk,) in returned.rows}
    for message in messages:
        if message.id in ended:
            outbox_metrics.ended(message.topic, "later")
        else:
            _report_overtaken(message)


def _end_list(handled: Sequence[Message], others: Sequence[Message]) -> None:
    """Settle the handled messages, and give the others back: they are due at once, and handled alone. All are of one
    topic."""
    messages = [*handled, *others]
    settled, _ = transactions.write_batch(
        [
            _settle.call(
                ids=[message.id for message in messages],
                receipts=[message.receipt for message in messages],
                are_done=[True] * len(handled) + [False] * len(others),
            ),
            _unblock_next_messages.call(topic=messages[0].topic, keys=[message.key for message in handled]),
        ]
    )
    seconds_of = {pk: (since_claim, since_written) for pk, since_claim, since_written in settled.rows}
    for message in messages:
        if message.id not in seconds_of:
            _report_overtaken(message)
    done = [seconds_of[message.id] for message in handled if message.id in seconds_of]
    outbox_metrics.deleted(messages[0].topic, done)
    for message in others:
        if message.id in seconds_of:
            outbox_metrics.ended(message.topic, "later")
    if others:
        wake()


def _run_list_handler(messages: Sequence[Message]) -> Collection[int]:
    """Return the ids of those to be handled alone: all, if the handler fails. Raises ClaimNotEnded if it lost its
    database session: the end of that claim gives the messages back."""
    handler = _topics[messages[0].topic].list_handler
    assert handler is not None
    try:
        return handler(messages)
    except EXITS:
        raise
    except BaseException as error:
        if transactions.is_connection_lost(error):
            raise ClaimNotEnded(messages[0], partial(give_back, messages)) from error
        logger.exception("%s messages (%s) failed together and are handled alone", len(messages), messages[0].topic)
        return [message.id for message in messages]


def hand_over(message: Message) -> None:
    """Run the handler with no transaction and no lock open; then settle, retry or give up the claimed message.

    Raises only ClaimNotEnded, from the database's error. Unless the caller ends the claim later, it expires and another
    worker takes the message.
    """
    _end_or_keep(message, _handle(message))


def _end_or_keep(message: Message, end: Callable[[], None]) -> None:
    try:
        end()
    except (*transactions.FAILURES, InterfaceError) as error:
        raise ClaimNotEnded(message, end) from error


def handled_message() -> Message | None:
    """Return the message that the running handler handles alone, or None."""
    return _handled.get()


def _handle(message: Message) -> Callable[[], None]:
    """Run the handler; return the end of the claim that its outcome requires."""
    topic = _topics.get(message.topic)
    handled = _handled.set(message)
    try:
        if topic is None:
            raise NoHandler(message.topic)
        if message.attempts > topic.attempts_max:
            raise WorkerLost(f"the worker ended during each of {topic.attempts_max} attempts")
        is_list = topic.list_handler is not None and is_listed(message)
        if not is_list or _run_list_handler([message]):
            topic.handler(message)
    except RetryLater as later:
        return partial(_end_postponed, message, later.seconds, str(later)[:2000])
    except (*EXITS, ClaimNotEnded):
        raise
    except BaseException as error:
        # No error of a handler may lose its message or stop the delivery of others.
        has_trace = not isinstance(error, NotDelivered)
        # An error may quote what it was given: a mail server's refusal contains the recipient's address.
        summary = log_context.mask_secrets(f"{type(error).__name__}: {error}")[:2000]
        logger.log(
            logging.ERROR if has_trace else logging.WARNING,
            "message %s (%s) failed, attempt %s: %s",
            message.id,
            message.topic,
            message.attempts,
            error,
            exc_info=has_trace,
        )
        return partial(_end_failed, message, summary, error)
    finally:
        _handled.reset(handled)
    return partial(_end_list, [message], [])


def _end_postponed(message: Message, seconds: float, why: str) -> None:
    if _end_claim(_postpone, message, wait=timedelta(seconds=seconds), why=why):
        outbox_metrics.ended(message.topic, "later")


def _end_failed(message: Message, summary: str, error: BaseException) -> None:
    topic = _topics.get(message.topic)
    attempts_max, backoff = (topic.attempts_max, topic.backoff) if topic else (ATTEMPTS_MAX, exponential_backoff())
    wait = backoff(message.attempts)
    if isinstance(error, NotDelivered):
        wait = max(wait, timedelta(seconds=error.retry_seconds))
        attempts_max = min(attempts_max, error.attempts_max or attempts_max)
    for (is_dead,) in _end_claim(_retry, message, backoff=wait, attempts_max=attempts_max, error=summary):
        outbox_metrics.ended(message.topic, "given up" if is_dead else "failed")


def _end_claim(statement: sql.Statement, message: Message, **params: Any) -> Sequence[tuple[Any, ...]]:
    """Run a statement that ends the claim, and return its rows: none if another worker holds the claim by now."""
    # `_unblock_next_messages` is a separate statement, because it must see what `set_behind` committed while the first
    # waited for the row. Both share a round trip: the second is correct even if the claim is no longer ours.
    ended, _ = transactions.write_batch(
        [
            statement.call(id=message.id, receipt=message.receipt, **params),
            _unblock_next_messages.call(topic=message.topic, keys=[message.key]),
        ]
    )
    if not ended.rows:
        _report_overtaken(message)
    return ended.rows


def _report_overtaken(message: Message) -> None:
    outbox_metrics.ended(message.topic, "overtaken")
    logger.warning(
        "the claim of message %s (%s) expired before it was settled; another worker has it", message.id, message.topic
    )


def prolong(message: Message) -> bool:
    """Renew the claim for its topic's visibility timeout, for a handler that works in steps. Own transaction.

    Returns False if another worker has the claim; the handler should then stop.
    """
    topic = _topics.get(message.topic)
    visibility = topic.visibility if topic else VISIBILITY
    ((_, count),) = transactions.write_batch(
        [_prolong.call(id=message.id, receipt=message.receipt, visibility=visibility)]
    )
    return count == 1
