"""Audit checks of this app.

Money, tickets and reservations agree (I4), a promo code is used up to its limit (I5), stored responses stay true (I6),
each provider message is applied once, however often it arrived (I7), and only payments in time count (I8).
Rows are read in batches by id, each batch with one statement and one snapshot per check, so that no long read stays
open.

An audit of changes checks the orders that a transaction since its horizon has written, or whose reservation it has. The
database records them itself: triggers on the tables of an order insert its id into `orders_changedorder`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

from apps.events import facade as events
from apps.kernel.checks import auditor
from apps.kernel.db import sql
from apps.kernel.http import idempotency
from apps.kernel.models import IdempotentAnswer
from apps.orders import topics
from apps.orders.models import ChangedOrder, CodeUse, Order, PromoCode, ProviderMessage
from apps.orders.payments import settlement

UNPROCESSED_MINUTES_MAX = 15
"""A message that waits longer is stuck: temporary faults end sooner."""

_PACKAGE = "apps.orders"
_money = sql.load(_PACKAGE, "audit_money")
_invoices = sql.load(_PACKAGE, "audit_invoices")
_credit = sql.load(_PACKAGE, "audit_credit")
_lines = sql.load(_PACKAGE, "audit_lines")
_refunds = sql.load(_PACKAGE, "audit_refunds")
_tickets = sql.load(_PACKAGE, "audit_tickets")
_transfers = sql.load(_PACKAGE, "audit_transfers")
_reservations = sql.load(_PACKAGE, "audit_reservations")
_orphans = sql.load(_PACKAGE, "audit_orphans")
_times = sql.load(_PACKAGE, "audit_times")
_code_uses = sql.load(_PACKAGE, "audit_code_uses")
_code_limits = sql.load(_PACKAGE, "audit_code_limits")
_messages = sql.load(_PACKAGE, "audit_messages")
_unanswered = sql.load(_PACKAGE, "audit_unanswered")
_answers = sql.load(_PACKAGE, "audit_answers")
_inbox = sql.load(_PACKAGE, "audit_inbox")
_changed_orders = sql.load(_PACKAGE, "audit_changed_orders")
_changes_end = sql.load(_PACKAGE, "audit_changes_end")

_ORDER_STATEMENTS = (_money, _lines, _refunds, _tickets, _transfers, _reservations, _times, _code_uses, _credit)
_ONCE_STATEMENTS = (_messages, _unanswered)
Rows = list[Sequence[Any]]


def register() -> None:
    """Register these checks with the auditor."""
    auditor.register_changes(_find_end)
    auditor.register_forget(forget_changes)
    auditor.register(
        "I4",
        "captured less refunded is what each order is owed",
        _make_check(_money, "order {} is {}: owed {}, kept {}"),
    )
    auditor.register(
        "I4",
        "an order's total is the sum of its lines, with one line per ticket",
        _make_check(_lines, "order {}: total {}, its lines {}; {} tickets held, {} sold"),
    )
    auditor.register(
        "I4",
        "a payment's refunded amount is the sum of its refunds",
        _make_check(_refunds, "order {}, attempt {}: refunded {}, sum of its refunds {}"),
    )
    auditor.register(
        "I4",
        "each standing order has exactly its valid tickets, other orders have none",
        _make_check(_tickets, "order {} is {}: {} uncanceled ticket lines, {} valid tickets"),
    )
    auditor.register(
        "I4",
        "an accepted transfer, and no other, passed its ticket on",
        _make_check(_transfers, "order {}, transfer {}: {}, {}"),
    )
    auditor.register(
        "I4",
        "a standing order has exactly one confirmed reservation",
        _make_check(_reservations, "order {} is {}, its reservation {} is {}"),
    )
    auditor.register("I4", "invoice numbers have no gap", _check_invoices, needs_everything=True)
    auditor.register(
        "I4",
        "an invoice has its order's total, and credit notes do not exceed it",
        _make_check(_credit, "order {}: total {}, invoice over {}, credited {}"),
    )
    auditor.register("I4", "every confirmed reservation has a standing order", _check_orphans)
    auditor.register(
        "I4",
        "an order's discount is that of its promo code use, which is counted until the order ends",
        _make_check(_code_uses, "order {} is {}: discount {}, by its promo code {}, use counted: {}"),
    )
    auditor.register("I5", "no promo code is used by more orders than its limit", _check_code_limits)
    auditor.register(
        "I6",
        "every order's checkout response is stored unchanged",
        _make_check(_unanswered, "order {}: {} stored responses, {} of them with another total", _walk_once),
    )
    auditor.register(
        "I6", "each key has one stored response, which is still true", _check_answers, needs_everything=True
    )
    auditor.register(
        "I7",
        "provider messages changed each payment once",
        _make_check(
            _messages,
            "order {}, attempt {} is {} with {}: {} messages captured it, {} with its amount and time; {} declined it",
            _walk_once,
        ),
    )
    auditor.register("I7", "every stored message is processed or queued", _check_inbox)
    auditor.register("I8", "the payments of standing orders occurred within deadline and grace", _check_times)


def _event_id(context: auditor.AuditContext) -> int | None:
    return events.get_event(context.only).id if context.only else None


def _changes(context: auditor.AuditContext) -> list[Sequence[Any]]:
    """Return the changed orders and reservations: the order's id (None: there is none) and the reservation's."""
    with auditor.read_cursor() as cursor:
        return list(_changed_orders.rows(cursor, **context.changes))


def _changed_ids(context: auditor.AuditContext) -> list[UUID]:
    return [order_id for order_id, _ in context.once(_changes) if order_id is not None]


def _changed_reservations(context: auditor.AuditContext) -> list[UUID]:
    return [reservation_id for _, reservation_id in context.once(_changes)]


def _changed_codes(context: auditor.AuditContext) -> list[int]:
    used = CodeUse.objects.filter(order_id__in=_changed_ids(context))
    return list(used.values_list("code_id", flat=True).distinct())


def _unprocessed_messages() -> list[int]:
    return list(ProviderMessage.objects.filter(processed_at__isnull=True).values_list("pk", flat=True))


def _find_end(since: int, limit: int) -> int:
    return auditor.read_end(_changes_end, since, limit)


def forget_changes(horizon: int) -> None:
    """Delete the records of changes of earlier transactions."""
    ChangedOrder.objects.filter(transaction_id__lt=horizon).delete()


def _walk_orders(context: auditor.AuditContext) -> dict[sql.Statement, Rows]:
    """Return what each statement about orders finds."""
    event_id = context.once(_event_id)
    found = auditor.find(
        context,
        Order.objects.all(),
        UUID(int=0),
        _ORDER_STATEMENTS,
        changed=lambda: _changed_ids(context),
        event_id=event_id,
    )
    return dict(zip(_ORDER_STATEMENTS, found, strict=True))


def _walk_once(context: auditor.AuditContext) -> dict[sql.Statement, Rows]:
    """Return what the statements about responses and messages of orders find."""
    found = auditor.find(
        context,
        Order.objects.all(),
        UUID(int=0),
        _ONCE_STATEMENTS,
        changed=lambda: _changed_ids(context),
        event_id=context.once(_event_id),
        without_effect=list(settlement.WITHOUT_EFFECT),
        remembered_hours=idempotency.REMEMBERED_HOURS,
    )
    return dict(zip(_ONCE_STATEMENTS, found, strict=True))


def find_order_mismatches(event_id: int | None) -> tuple[Rows, Rows]:
    """Return two lists: orders that do not keep exactly what they are owed (number, status, owed, kept), and orders
    whose status contradicts their reservation's (number, status, reservation, reservation's status)."""
    money, statuses = auditor.collect(Order.objects.all(), UUID(int=0), [_money, _reservations], event_id=event_id)
    return money, statuses


def _make_check(
    statement: sql.Statement,
    text: str,
    walk: Callable[[auditor.AuditContext], dict[sql.Statement, Rows]] = _walk_orders,
) -> auditor.Find:
    def check(context: auditor.AuditContext) -> Iterator[str]:
        for row in context.once(walk)[statement]:
            yield text.format(*row)

    return check


def _check_times(context: auditor.AuditContext) -> Iterator[str]:
    for number, attempt, occurred_at, counts_until, deadline, is_right in context.once(_walk_orders)[_times]:
        if is_right:
            yield f"order {number}, attempt {attempt}: occurred at {occurred_at}, counted until {counts_until}"
        else:
            yield f"order {number}, attempt {attempt}: counts until {counts_until}, the deadline was {deadline}"


def _check_code_limits(context: auditor.AuditContext) -> Iterator[str]:
    (found,) = auditor.find(
        context,
        PromoCode.objects.all(),
        0,
        [_code_limits],
        changed=lambda: _changed_codes(context),
        event_id=context.once(_event_id),
    )
    for code, uses_max, count in found:
        yield f"code {code}: used by {count} orders, its limit is {uses_max}"


def _check_orphans(context: auditor.AuditContext) -> Iterator[str]:
    slugs = {view.id: view.slug for view in events.list_events()}
    orphaned = find_orphaned_reservations(context.once(_event_id), context)
    for event, reservation_id, number, status in orphaned:
        name = slugs.get(event, f"event {event}")
        yield f"{name}: reservation {reservation_id} is confirmed; its order: {number} {status}".rstrip()


def find_orphaned_reservations(event_id: int | None, context: auditor.AuditContext | None = None) -> Rows:
    """Return confirmed reservations without a standing order: event, reservation, order number and status. Without an
    order the number is "no order" and the status empty."""
    reservations = Order.reservation.field.related_model._default_manager.all()
    scope = context or auditor.AuditContext()
    changed = lambda: _changed_reservations(scope)  # noqa: E731
    (found,) = auditor.find(scope, reservations, UUID(int=0), [_orphans], changed=changed, event_id=event_id)
    return found


def _check_invoices(context: auditor.AuditContext) -> Iterator[str]:
    # Invoice numbers are not per event, so this checks all events. The statement reads one index in one snapshot.
    with auditor.read_cursor() as cursor:
        rows = _invoices.rows(cursor)
    for kind, series, year, last, count, highest in rows:
        yield f"{kind} {series} {year}: the counter is at {last}, {count} documents exist, the highest is {highest}"


def _check_answers(context: auditor.AuditContext) -> Iterator[str]:
    rows, event_id = IdempotentAnswer.objects.all(), context.once(_event_id)
    (found,) = auditor.find(context, rows, 0, [_answers], changed=list, event_id=event_id)
    for scope, key, wrong in found:
        yield f"{scope}, key {key}: {wrong}"


def _check_inbox(context: auditor.AuditContext) -> Iterator[str]:
    (found,) = auditor.find(
        context,
        ProviderMessage.objects.all(),
        0,
        [_inbox],
        changed=_unprocessed_messages,
        event_id=context.once(_event_id),
        topics=[topics.PROVIDER_MESSAGE, topics.PROVIDER_MESSAGE_LARGE],
        minutes_max=UNPROCESSED_MINUTES_MAX,
    )
    for provider, message_id, wrong in found:
        yield f"{provider} {message_id}: {wrong}"
