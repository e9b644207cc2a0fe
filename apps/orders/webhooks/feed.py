"""The pull feed: an organizer's program receives messages and deletes each by its receipt handle after processing it.
A message that is not deleted is returned again after ten minutes. Messages are deleted after seven days."""

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
from apps.orders.errors import MessageNotFound, ScopeMissing
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
    """Return the digest that is stored for a key. A key has 256 random bits, so a fast hash is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


def key_prefix(key: str) -> str:
    return key[: len(_PREFIX) + 4]


def authenticate_feed_key(request: HttpRequest, *scopes: FeedKey.Scope) -> FeedKey:
    """Return the request's feed key, which has one of these scopes. Raises TokenMissing, TokenInvalid, ScopeMissing."""
    kind, _, key = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not key.strip():
        raise problems.TokenMissing("Send the feed key in the header `Authorization: Bearer KEY`.")
    found = FeedKey.objects.filter(digest=key_digest(key.strip()), revoked_at=None).first()
    if found is None:
        raise problems.TokenInvalid("This feed key is unknown or was revoked.")
    if not any(map(found.has_scope, scopes)):
        raise ScopeMissing(scopes=[str(scope) for scope in scopes])
    return found


def read_count(value: str | None) -> int:
    """Return the requested number of messages. Raises Invalid."""
    if value is None:
        return MESSAGES_DEFAULT
    if not (value.isascii() and value.isdigit() and len(value) <= 3 and 1 <= int(value) <= MESSAGES_MAX):
        raise problems.Invalid({"n": f"must be a number from 1 to {MESSAGES_MAX}"})
    return int(value)


def receive(key: FeedKey, count: int) -> list[dict[str, Any]]:
    """Return up to `count` messages, oldest first, each with its receipt handle, and hide them for ten minutes.

    Two callers with one key share the work: each message goes to one of them, and neither waits for the other.
    """
    with transactions.write(), connection.cursor() as cursor:
        rows = _receive.rows(cursor, key=key.pk, limit=count, visibility=VISIBILITY)
    bodies = dict(OrganizerMessage.objects.filter(pk__in=[row[1] for row in rows]).values_list("pk", "body"))
    # A message may be missing if the clean-up deleted it between the two statements, after seven days.
    return [
        {"receipt_handle": str(receipt), **bodies[message_id]}
        for _, message_id, receipt in sorted(rows)
        if message_id in bodies
    ]


def delete(key: FeedKey, receipt: UUID) -> None:
    """Delete the message, so that it is not returned again. Idempotent. Only a message's latest receipt handle is
    valid, and only with the feed key that received it. Raises MessageNotFound."""
    with transactions.write(), connection.cursor() as cursor:
        if _delete.count(cursor, key=key.pk, receipt=receipt) == 0:
            raise MessageNotFound


def delete_old_messages(limit: int = 10_000) -> int:
    """Delete up to `limit` messages older than RETENTION_DAYS, read or not. Return how many."""
    with transactions.write(), connection.cursor() as cursor:
        return _forget.count(cursor, before=clock.now() - timedelta(days=RETENTION_DAYS), limit=limit)
