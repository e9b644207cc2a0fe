"""Audit checks of idempotency: stored responses stay true (I6), and each provider message is applied once, however
often it arrived (I7). Rows are read in batches by id, as in the whole audit."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from apps.events import facade as events
from apps.kernel.checks import auditor
from apps.kernel.db import sql
from apps.kernel.http import idempotency
from apps.orders import topics
from apps.orders.payments import settlement

UNPROCESSED_MINUTES_MAX = 15
"""A message that waits longer is stuck: temporary obstacles pass sooner."""

_PACKAGE = "apps.orders"
_piece_end = sql.load(_PACKAGE, "piece_end")
_messages = sql.load(_PACKAGE, "audit_messages")
_unanswered = sql.load(_PACKAGE, "audit_unanswered")
_answers_piece_end = sql.load(_PACKAGE, "answers_piece_end")
_answers = sql.load(_PACKAGE, "audit_answers")
_messages_piece_end = sql.load(_PACKAGE, "messages_piece_end")
_inbox = sql.load(_PACKAGE, "audit_inbox")

Rows = list[Sequence[Any]]


def register() -> None:
    """Register these checks with the auditor."""
    auditor.register(
        "I6",
        "every order's checkout response is stored unchanged",
        _make_check(_unanswered, "order {}: {} stored responses, {} of them with another total"),
    )
    auditor.register("I6", "each key has one stored response, which is still true", _check_answers)
    auditor.register(
        "I7",
        "provider messages changed each payment once",
        _make_check(
            _messages, "order {}, attempt {} is {} with {}: {} messages captured it, {} of them fit; {} declined it"
        ),
    )
    auditor.register("I7", "every stored message is processed or queued", _check_inbox)


def _make_check(statement: sql.Statement, text: str) -> auditor.Find:
    def check(context: auditor.AuditContext) -> Iterator[str]:
        for row in context.once(_walk_orders)[statement.name]:
            yield text.format(*row)

    return check


def _check_answers(context: auditor.AuditContext) -> Iterator[str]:
    for scope, key, wrong in _walk(context, _answers_piece_end, 0, _answers)[_answers.name]:
        yield f"{scope}, key {key}: {wrong}"


def _check_inbox(context: auditor.AuditContext) -> Iterator[str]:
    params = {"topic": topics.PROVIDER_MESSAGE, "minutes_max": UNPROCESSED_MINUTES_MAX}
    for provider, message_id, wrong in _walk(context, _messages_piece_end, 0, _inbox, **params)[_inbox.name]:
        yield f"{provider} {message_id}: {wrong}"


def _walk_orders(context: auditor.AuditContext) -> dict[str, Rows]:
    """Return the rows for both checks of orders, from one pass."""
    params = {
        "known": settlement.KNOWN,
        "late": settlement.TOO_LATE,
        "remembered_hours": idempotency.REMEMBERED_HOURS,
    }
    return _walk(context, _piece_end, UUID(int=0), _messages, _unanswered, **params)


def _walk(
    context: auditor.AuditContext, ends: sql.Statement, first: Any, *statements: sql.Statement, **params: Any
) -> dict[str, Rows]:
    """Return the rows of each statement, by its name."""
    event_id, seen = context.once(_event_id), defaultdict[str, Rows](list)

    def scan(cursor: Any, after: Any, until: Any) -> None:
        for statement in statements:
            seen[statement.name] += statement.rows(cursor, after=after, until=until, event_id=event_id, **params)

    auditor.scan_in_batches(ends, first, scan)
    return seen


def _event_id(context: auditor.AuditContext) -> int | None:
    return events.get_event(context.only).id if context.only else None
