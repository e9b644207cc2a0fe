"""The pull feed: an organizer's program receives messages, and deletes each by its receipt handle once it has dealt
with it. What is not deleted is given out again after ten minutes; after seven days it is gone."""

import hashlib
import secrets
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.http import HttpRequest

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.http import problems
from apps.orders.errors import MessageNotFound
from apps.orders.models import FeedKey, OrganizerMessage

MESSAGES_MAX = 100
MESSAGES_DEFAULT = 10
VISIBILITY = timedelta(minutes=10)
RETENTION_DAYS = 7
_PREFIX = "fgf_"

_receive = sql.load("apps.orders", "receive_feed")
_delete = sql.load("apps.orders", "delete_from_feed")
_forget = sql.load("apps.orders", "forget_announcements")


def new_key() -> str:
    return _PREFIX + secrets.token_urlsafe(32)


def key_digest(key: str) -> str:
    """What is stored of a key. The key has 256 random bits, so that nothing slower is needed."""
    return hashlib.sha256(key.encode()).hexdigest()


def key_prefix(key: str) -> str:
    return key[: len(_PREFIX) + 4]


def authenticate_feed_key(request: HttpRequest) -> FeedKey:
    """Whose feed the request speaks for. Raises TokenMissing, TokenInvalid."""
    kind, _, key = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not key.strip():
        raise problems.TokenMissing("Send the feed key as Authorization: Bearer.")
    found = FeedKey.objects.filter(digest=key_digest(key.strip()), revoked_at=None).first()
    if found is None:
        raise problems.TokenInvalid("This feed key was not issued here, or was revoked.")
    return found


def read_count(asked: str | None) -> int:
    """How many messages were asked for. Raises Invalid."""
    if asked is None:
        return MESSAGES_DEFAULT
    if not (asked.isascii() and asked.isdigit() and len(asked) <= 3 and 1 <= int(asked) <= MESSAGES_MAX):
        raise problems.Invalid({"n": f"a number from 1 to {MESSAGES_MAX}"})
    return int(asked)


def receive(key: FeedKey, count: int) -> list[dict[str, Any]]:
    """Up to `count` messages, oldest first, are this caller's for ten minutes, each with the handle to delete it by.

    Two callers with one key share the work: no message is given to both, and neither waits for the other.
    """
    with transactions.write(), connection.cursor() as cursor:
        rows = _receive.rows(cursor, key=key.pk, limit=count, visibility=VISIBILITY)
    bodies = dict(OrganizerMessage.objects.filter(pk__in=[one for _, one, _ in rows]).values_list("pk", "body"))
    # One that a clean-up took between the two statements is seven days old and gone.
    return [
        {"receipt_handle": str(receipt), **bodies[message_id]}
        for _, message_id, receipt in sorted(rows)
        if message_id in bodies
    ]


def delete(key: FeedKey, receipt: UUID) -> None:
    """The message is not given out again; asked again, it is so already. Only the latest handle of a message counts,
    and only with its own key. Raises MessageNotFound."""
    with transactions.write(), connection.cursor() as cursor:
        if _delete.count(cursor, key=key.pk, receipt=receipt) == 0:
            raise MessageNotFound


def delete_old_messages(limit: int = 10_000) -> int:
    """Messages older than KEPT_DAYS are gone, read or not, at most `limit` of them; how many went."""
    with transactions.write(), connection.cursor() as cursor:
        return _forget.count(cursor, before=clock.now() - timedelta(days=RETENTION_DAYS), limit=limit)
