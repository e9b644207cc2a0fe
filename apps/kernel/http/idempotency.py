"""Same key, same answer. The key is the client's; the scope says what was done and for which buyer."""

import hashlib
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection
from django.http import HttpRequest, HttpResponse

from apps.kernel import clock
from apps.kernel.db import sql
from apps.kernel.db.transactions import require_transaction
from apps.kernel.http import problems
from apps.kernel.http.request_types import AnyRequest
from apps.kernel.models import IdempotentAnswer

REMEMBERED_HOURS = 24
KEY_LENGTH_MAX = 200
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


_find_answer = sql.load("apps.kernel", "recall_answer")
_store_answer = sql.load("apps.kernel", "remember_answer")


class Answer(NamedTuple):
    status: int
    body: str


def response_of(answer: Answer) -> HttpResponse:
    """The answer as a response: the same key gets the same bytes again."""
    headers = {"Cache-Control": "no-store"}
    return HttpResponse(answer.body, status=answer.status, content_type="application/json", headers=headers)


def canonical(value: Any) -> str:
    """One text for one value, whatever the order of its keys."""
    return _CANONICAL.encode(value)


def fingerprint(value: Any) -> str:
    """What tells two requests apart: the SHA-256 of the canonical text."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()


def key_of(request: AnyRequest) -> str:
    """The request's Idempotency-Key. Raises IdempotencyKeyRequired when absent, Invalid when unusable."""
    key = request.headers.get("Idempotency-Key", "").strip()
    if not key:
        raise problems.IdempotencyKeyRequired
    return check_key(key)


def key_of_form(request: HttpRequest) -> str:
    """The key that the page put into its form. Raises IdempotencyKeyRequired, Invalid."""
    key = request.POST.get("idempotency_key", "")
    if not key:
        raise problems.IdempotencyKeyRequired("Open the page again.")
    return check_key(key)


def check_key(key: str) -> str:
    if len(key) > KEY_LENGTH_MAX or not key.isascii() or not key.isprintable():
        raise problems.Invalid({"Idempotency-Key": f"at most {KEY_LENGTH_MAX} printable ASCII characters"})
    return key


def find_answer(scope: str, key: str, request_fingerprint: str, now: datetime | None = None) -> Answer | None:
    """The answer that is remembered now, by the database's clock unless given, or None. Raises IdempotencyMismatch when
    the key was used for another request."""
    with connection.cursor() as cursor:
        rows = _find_answer.rows(cursor, scope=scope, key=key, now=now, hours=REMEMBERED_HOURS)
    if not rows:
        return None
    ((known_fingerprint, status, answer),) = rows
    if known_fingerprint != request_fingerprint:
        raise problems.IdempotencyMismatch
    return Answer(status, answer)


def store_answer(scope: str, key: str, request_fingerprint: str, answer: Answer, now: datetime | None = None) -> None:
    """The answer is remembered with the caller's change, in the caller's transaction. Last statement of it: the
    unique key makes a rival wait for our commit.

    Raises IdempotencyInProgress when a rival's answer to this key was committed first: the caller's transaction must
    then be undone, change and all, and who asks again is given the rival's answer.
    """
    require_transaction()
    with connection.cursor() as cursor:
        is_remembered = _store_answer.count(
            cursor,
            scope=scope,
            key=key,
            fingerprint=request_fingerprint,
            status=answer.status,
            answer=answer.body,
            now=now,
            hours=REMEMBERED_HOURS,
        )
    if not is_remembered:
        raise problems.IdempotencyInProgress


def run_once(scope: str, key: str, request_fingerprint: str, act: Callable[[], Answer]) -> Answer:
    """What this key was answered before, or else what `act` answers now, remembered with its change.

    Joins the caller's transaction, which has the row locked that `act` changes: of two with one key the second waits
    for the first one's commit and then finds its answer here. What `act` raises is not remembered. Raises
    IdempotencyMismatch, and IdempotencyInProgress where the key's other request is about another row.
    """
    require_transaction()
    known = find_answer(scope, key, request_fingerprint)
    if known is not None:
        return known
    answer = act()
    store_answer(scope, key, request_fingerprint, answer)
    return answer


def forget_old(now: datetime, limit: int = 10_000) -> int:
    """Answers past their time are gone, at most `limit` of them; how many went."""
    old = IdempotentAnswer.objects.filter(created_at__lt=now - timedelta(hours=REMEMBERED_HOURS))
    gone, _ = IdempotentAnswer.objects.filter(pk__in=old.values("pk")[:limit]).delete()
    return gone


def forget_old_now() -> int:
    """The same at this moment: what the maintenance loop calls."""
    return forget_old(clock.now())
