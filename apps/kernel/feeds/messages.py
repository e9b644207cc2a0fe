"""Send, receive, delete and extend messages."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection

from apps.kernel.db import sql, transactions
from apps.kernel.feeds import dead_letters, feed_metrics, feed_rows
from apps.kernel.feeds.errors import FeedFull, MessageGone, ReceiptOutdated
from apps.kernel.feeds.models import Message
from apps.kernel.http import idempotency, problems

LIST_MAX = 10
"""Messages of one call, sent or received."""
DUE_MAX = 100
"""How many messages `count_due` counts in a feed."""
DELETED_MAX = 100
"""Messages that one call deletes."""
VISIBILITY_SECONDS_DEFAULT, VISIBILITY_SECONDS_MAX = 600, 12 * 3_600

_find_sent = sql.load("apps.kernel.feeds", "find_sent")
_insert = sql.load("apps.kernel.feeds", "insert_messages")
_receive = sql.load("apps.kernel.feeds", "receive_messages")
_lock_messages = sql.load("apps.kernel.feeds", "lock_messages")
_delete = sql.load("apps.kernel.feeds", "delete_messages")
_count_due = sql.load("apps.kernel.feeds", "count_due")
_extend = sql.load("apps.kernel.feeds", "extend_message")
_HANDLE = re.compile(r"([1-9][0-9]{0,17})-([0-9a-f]{32})", re.ASCII)


@dataclass(frozen=True, slots=True)
class NewMessage:
    id: str
    """Given by the sender: a repetition with the same id sends nothing."""
    key: str | None
    body: str
    """JSON text of at most BODY_BYTES_MAX bytes in UTF-8."""

    @property
    def fingerprint(self) -> str:
        return idempotency.fingerprint([self.key, self.body])


@dataclass(frozen=True, slots=True)
class SentMessage:
    id: str
    sequence: int
    is_new: bool
    """False: an earlier call has sent it."""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    id: str
    sequence: int
    key: str | None
    body: str
    sent_at: datetime
    receives: int
    """How often it has been received, this time included."""
    receipt_handle: str
    visible_at: datetime


class _Locked(NamedTuple):
    id: int
    sequence: int
    state: str
    receipt: UUID | None
    key: str | None
    size: int
    seconds: float | None


def send(organizer_id: int, name: str, messages: Sequence[NewMessage]) -> list[SentMessage]:
    """Send these messages with distinct ids, all or none, in their order; return each with its sequence number.

    A message that was sent before, as long as its row is kept, is returned and not sent again. The lock on the feed's
    row makes sequence numbers follow the commits, and counts exact: a concurrent call waits for this one. Raises
    FeedNotFound, FeedFull, and IdempotencyMismatch if an id belongs to another message.
    """
    with transactions.write(), connection.cursor() as cursor:
        feed = feed_rows.lock_feed(cursor, organizer_id, name)
        rows = _find_sent.rows(cursor, feed=feed.id, ids=[one.id for one in messages])
        known = {message_id: (fingerprint, sequence) for message_id, fingerprint, sequence in rows}
        for one in messages:
            if one.id in known and known[one.id][0] != one.fingerprint:
                raise problems.IdempotencyMismatch(f"The id {one.id} belongs to another message of this feed.")
        new = [one for one in messages if one.id not in known]
        sequences = {one.id: feed.next_sequence + position for position, one in enumerate(new)}
        if new:
            size = sum(len(one.body.encode()) for one in new)
            _require_room(feed, len(new), size)
            _insert.count(
                cursor,
                feed=feed.id,
                sequences=list(sequences.values()),
                ids=[one.id for one in new],
                keys=[one.key for one in new],
                bodies=[one.body for one in new],
                fingerprints=[one.fingerprint for one in new],
                states=dead_letters.states_of(cursor, feed.id, [one.key for one in new]),
                retention_seconds=feed.retention_seconds,
                receives_max=feed.receives_max,
            )
            feed_rows.change_counts(cursor, feed.id, sequences=len(new), messages=len(new), size=size)
    feed_metrics.sent.inc(len(new))
    return [
        SentMessage(one.id, sequences[one.id], True)
        if one.id in sequences
        else SentMessage(one.id, known[one.id][1], False)
        for one in messages
    ]


def _require_room(feed: feed_rows.LockedFeed, count: int, size: int) -> None:
    limits = {
        "messages": (feed.message_count + count, settings.FEED_MESSAGES_MAX),
        "bytes": (feed.byte_count + size, settings.FEED_BYTES_MAX),
    }
    for limit, (wanted, most) in limits.items():
        if wanted > most:
            raise FeedFull(limit=limit, max=most)


def receive(
    organizer_id: int, name: str, limit: int = LIST_MAX, visibility_seconds: int = VISIBILITY_SECONDS_DEFAULT
) -> list[ReceivedMessage]:
    """Return up to `limit` messages, those that have waited longest first and at most one of each key, and hide them
    from other receivers for `visibility_seconds`. Waits for no other receiver or sender. Raises FeedNotFound."""
    feed_id = feed_rows.find_feed_id(organizer_id, name)
    dead_letters.bury_exhausted(feed_id)
    with transactions.write(), connection.cursor() as cursor:
        rows = _receive.rows(cursor, feed=feed_id, limit=limit, visibility_seconds=visibility_seconds)
    feed_metrics.received.inc(len(rows))
    return [
        ReceivedMessage(message_id, sequence, key, body, sent_at, receives, f"{sequence}-{receipt.hex}", visible_at)
        for sequence, message_id, key, body, sent_at, receives, receipt, visible_at in sorted(rows)
    ]


def count_due(feeds: Collection[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """Return how many messages can be received now from each of these feeds, by organizer and name, up to DUE_MAX;
    without feeds that do not exist."""
    if not feeds:
        return {}
    with connection.cursor() as cursor:
        rows = _count_due.rows(
            cursor, organizers=[owner for owner, _ in feeds], names=[name for _, name in feeds], limit=DUE_MAX
        )
    return {(owner, name): count for owner, name, count in rows}


def delete(organizer_id: int, name: str, handle: str) -> None:
    """Delete the message and unblock its key. A repetition with the same handle changes nothing. The latest handle is
    valid after the visibility time-out, too, until another receive.

    Raises FeedNotFound, MessageGone, ReceiptOutdated.
    """
    (refusal,) = delete_list(organizer_id, name, [handle])
    if refusal is not None:
        raise refusal


def delete_list(organizer_id: int, name: str, handles: Sequence[str]) -> list[MessageGone | ReceiptOutdated | None]:
    """Delete these messages in one transaction and unblock their keys. Return in order the refusal of each handle,
    whose message is not deleted by it; None: its message is deleted, now or before. Raises FeedNotFound."""
    parsed = [_parse(handle) for handle in handles]
    sequences = sorted({one[0] for one in parsed if one is not None})
    with transactions.write(), connection.cursor() as cursor:
        feed = feed_rows.lock_feed(cursor, organizer_id, name)
        rows = _lock_messages.rows(cursor, feed=feed.id, sequences=sequences) if sequences else ()
        locked = {message.sequence: message for message in map(_Locked._make, rows)}
        found = [_refusal(one, locked) for one in parsed]
        named = {one[0] for one, refusal in zip(parsed, found, strict=True) if one is not None and refusal is None}
        ended = [locked[sequence] for sequence in sorted(named) if locked[sequence].state != Message.State.DELETED]
        if ended:
            _delete.count(cursor, ids=[message.id for message in ended])
            dead_letters.unblock(cursor, feed.id, [message.key for message in ended])
            feed_rows.change_counts(
                cursor,
                feed.id,
                messages=-len(ended),
                size=-sum(message.size for message in ended),
                dead=-sum(message.state == Message.State.DEAD for message in ended),
                deleted=len(ended),
            )
    feed_metrics.ended.labels("deleted").inc(len(ended))
    for message in ended:
        feed_metrics.handled.observe(message.seconds or 0.0)
    return found


def extend(organizer_id: int, name: str, handle: str, visibility_seconds: int) -> datetime:
    """Hide the message for `visibility_seconds` from now on, 0: make it receivable at once; return when that ends.
    Raises FeedNotFound, MessageGone, and ReceiptOutdated, also for a message that is deleted or a dead letter."""
    parsed = _parse(handle)
    feed_id = feed_rows.find_feed_id(organizer_id, name)
    with transactions.write(), connection.cursor() as cursor:
        rows = _lock_messages.rows(cursor, feed=feed_id, sequences=[parsed[0]]) if parsed is not None else ()
        locked = {message.sequence: message for message in map(_Locked._make, rows)}
        refusal = _refusal(parsed, locked)
        if refusal is not None:
            raise refusal
        (message,) = locked.values()
        if message.state != Message.State.READY:
            raise ReceiptOutdated
        ((visible_at,),) = _extend.rows(cursor, id=message.id, visibility_seconds=visibility_seconds)
    return visible_at


def _parse(handle: str) -> tuple[int, UUID] | None:
    """Return the handle's sequence number and receipt; None if it is none of ours."""
    found = _HANDLE.fullmatch(handle)
    return None if found is None else (int(found[1]), UUID(found[2]))


def _refusal(parsed: tuple[int, UUID] | None, locked: Mapping[int, _Locked]) -> MessageGone | ReceiptOutdated | None:
    """Return why the handle's message cannot be changed by it: there is none, or this is not its latest receipt."""
    message = None if parsed is None else locked.get(parsed[0])
    if parsed is None or message is None:
        return MessageGone()
    return None if message.receipt == parsed[1] else ReceiptOutdated()
