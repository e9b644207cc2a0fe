"""Idempotency: the same key gets the same response.

The client chooses the key; the scope is the operation and the buyer.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection
from django.http import HttpRequest, HttpResponse

from apps.kernel import clock
from apps.kernel.db import arrays, sql
from apps.kernel.db.transactions import require_transaction
from apps.kernel.http import problems
from apps.kernel.http.request_types import AnyRequest
from apps.kernel.models import IdempotentAnswer

REMEMBERED_HOURS = 24
KEY_LENGTH_MAX = 200
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)

_find_answer = sql.load("apps.kernel", "recall_answer")
_find_answers = sql.load("apps.kernel", "recall_answers", prepared=True)
_store_answers = sql.load("apps.kernel", "store_answers")
_store_all_answers = sql.load("apps.kernel", "store_answers", prepared=True, exactly=True)


class Answer(NamedTuple):
    status: int
    body: str


class StoredAnswer(NamedTuple):
    """An answer to store, and the key and the request that it belongs to."""

    scope: str
    key: str
    fingerprint: str
    answer: Answer


def response_of(answer: Answer) -> HttpResponse:
    """Return the stored answer as an HTTP response, byte for byte the same each time."""
    headers = {"Cache-Control": "no-store"}
    return HttpResponse(answer.body, status=answer.status, content_type="application/json", headers=headers)


def canonical(value: Any) -> str:
    """Return the canonical JSON text of a value, independent of the order of its keys."""
    return _CANONICAL.encode(value)


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of the canonical text, which identifies a request."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()


def key_of(request: AnyRequest) -> str:
    """Return the request's Idempotency-Key. Raises IdempotencyKeyRequired and Invalid."""
    key = request.headers.get("Idempotency-Key", "").strip()
    if not key:
        raise problems.IdempotencyKeyRequired
    return check_key(key)


def key_of_form(request: HttpRequest) -> str:
    """Return the idempotency key of a page's form. Raises IdempotencyKeyRequired and Invalid."""
    key = request.POST.get("idempotency_key", "")
    if not key:
        raise problems.IdempotencyKeyRequired
    return check_key(key)


def check_key(key: str) -> str:
    if len(key) > KEY_LENGTH_MAX or not key.isascii() or not key.isprintable():
        raise problems.Invalid({"Idempotency-Key": f"at most {KEY_LENGTH_MAX} printable ASCII characters"})
    return key


def find_answer(scope: str, key: str, request_fingerprint: str, now: datetime | None = None) -> Answer | None:
    """Return the stored answer to this key that is valid at `now` (default: the database's time), or None. Raises
    IdempotencyMismatch if the key was used for another request."""
    with connection.cursor() as cursor:
        rows = _find_answer.rows(cursor, scope=scope, key=key, now=now, hours=REMEMBERED_HOURS)
    if not rows:
        return None
    ((known_fingerprint, status, answer),) = rows
    if known_fingerprint != request_fingerprint:
        raise problems.IdempotencyMismatch
    return Answer(status, answer)


def store_answer(scope: str, key: str, request_fingerprint: str, answer: Answer, now: datetime | None = None) -> None:
    """Store the answer in the caller's transaction, together with the change. It must be the transaction's last
    statement: the unique key makes a concurrent request with the same key wait for our commit.

    Raises IdempotencyInProgress if a concurrent request committed its answer to this key first: the caller's
    transaction must then be rolled back, and a retry returns the other answer.
    """
    require_transaction()
    with connection.cursor() as cursor:
        is_stored = _store_answers.count(
            cursor,
            scopes=[scope],
            keys=[key],
            fingerprints=[request_fingerprint],
            statuses=[answer.status],
            answers=[answer.body],
            now=now,
            hours=REMEMBERED_HOURS,
        )
    if not is_stored:
        raise problems.IdempotencyInProgress


def find_answers_call(scopes: arrays.Array, keys: arrays.Array) -> sql.Call:
    """Return the statement that reads the stored answers of any of these scopes to any of these keys, as rows of scope,
    key, fingerprint, status and body. The caller selects the pairs that belong together."""
    return _find_answers.call(scopes=scopes, keys=keys, remembered_hours=REMEMBERED_HOURS)


def store_answers_call(answers: Sequence[StoredAnswer]) -> sql.Call:
    """Return the statement that stores these answers, each with a key of its own, as the last of a transaction on any
    connection. It fails with `transactions.ROWCOUNT_MISMATCH`, and so does the transaction, if a concurrent request
    committed its answer to one of the keys first."""
    return _store_all_answers.call(
        scopes=arrays.texts([one.scope for one in answers]),
        keys=arrays.texts([one.key for one in answers]),
        fingerprints=arrays.texts([one.fingerprint for one in answers]),
        statuses=arrays.numbers(one.answer.status for one in answers),
        answers=arrays.texts([one.answer.body for one in answers]),
        now=None,
        hours=REMEMBERED_HOURS,
        rows=len(answers),
    )


def run_once(scope: str, key: str, request_fingerprint: str, act: Callable[[], Answer]) -> Answer:
    """Return the stored answer to this key, or else call `act` and store its answer with its change.

    Joins the caller's transaction, which has locked the row that `act` changes. So the second of two requests with one
    key waits for the first to commit and then finds its answer here. Errors of `act` are not stored. Raises
    IdempotencyMismatch, and IdempotencyInProgress if a concurrent request used the key for another row.
    """
    require_transaction()
    known = find_answer(scope, key, request_fingerprint)
    if known is not None:
        return known
    answer = act()
    store_answer(scope, key, request_fingerprint, answer)
    return answer


def forget_scopes(scopes: Sequence[str]) -> None:
    """Delete all answers of these scopes. Joins the caller's transaction."""
    IdempotentAnswer.objects.filter(scope__in=scopes).delete()


def forget_old(now: datetime | None = None, limit: int = 10_000) -> int:
    """Delete up to `limit` answers that have expired by `now` (default: the database's time); return how many."""
    expired_before = (now or clock.now()) - timedelta(hours=REMEMBERED_HOURS)
    old = IdempotentAnswer.objects.filter(created_at__lt=expired_before)
    deleted_count, _ = IdempotentAnswer.objects.filter(pk__in=old.values("pk")[:limit]).delete()
    return deleted_count
