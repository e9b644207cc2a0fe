"""This app's part of the audit that things happened once: what was answered to a key stays true (I6), and a provider's
words change state once, however often they came (I7). Read in pieces of id order, like all of the audit."""

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
"""A message that waits for longer is stuck: what hinders its processing passes sooner, or never."""

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
    """The auditor includes these checks."""
    auditor.register(
        "I6",
        "every order's checkout is remembered as it was answered",
        _make_check(_unanswered, "order {}: {} remembered answers, {} of them of another sum"),
    )
    auditor.register("I6", "one key has one answer, and what it told its buyer is still so", _check_answers)
    auditor.register(
        "I7",
        "a provider's words changed each payment once",
        _make_check(
            _messages, "order {}, attempt {} is {} with {}: {} messages took money, {} that sum; {} declined it"
        ),
    )
    auditor.register("I7", "every stored message was processed, or is about to be", _check_inbox)


def _make_check(statement: sql.Statement, text: str) -> auditor.Find:
    def check(survey: auditor.AuditContext) -> Iterator[str]:
        for row in survey.once(_walk_orders)[statement.name]:
            yield text.format(*row)

    return check


def _check_answers(survey: auditor.AuditContext) -> Iterator[str]:
    for scope, key, wrong in _walk(survey, _answers_piece_end, 0, _answers)[_answers.name]:
        yield f"{scope}, key {key}: {wrong}"


def _check_inbox(survey: auditor.AuditContext) -> Iterator[str]:
    params = {"topic": topics.PROVIDER_MESSAGE, "minutes_max": UNPROCESSED_MINUTES_MAX}
    for provider, message_id, wrong in _walk(survey, _messages_piece_end, 0, _inbox, **params)[_inbox.name]:
        yield f"{provider} {message_id}: {wrong}"


def _walk_orders(survey: auditor.AuditContext) -> dict[str, Rows]:
    """One walk serves both checks that judge orders."""
    params = {
        "known": settlement.KNOWN,
        "late": settlement.TOO_LATE,
        "remembered_hours": idempotency.REMEMBERED_HOURS,
    }
    return _walk(survey, _piece_end, UUID(int=0), _messages, _unanswered, **params)


def _walk(
    survey: auditor.AuditContext, ends: sql.Statement, first: Any, *statements: sql.Statement, **params: Any
) -> dict[str, Rows]:
    """What each statement found, by its name."""
    event_id, seen = survey.once(_event_id), defaultdict[str, Rows](list)

    def scan(cursor: Any, after: Any, until: Any) -> None:
        for statement in statements:
            seen[statement.name] += statement.rows(cursor, after=after, until=until, event_id=event_id, **params)

    auditor.scan_in_batches(ends, first, scan)
    return seen


def _event_id(survey: auditor.AuditContext) -> int | None:
    return events.get_event(survey.only).id if survey.only else None
