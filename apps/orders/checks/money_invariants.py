"""Audit checks of this app: money, tickets and reservations agree (I4), and only payments in time count (I8).

Orders and reservations are read in batches by id, with one statement and one snapshot each, so that no long read stays
open. All checks of orders share one pass.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from apps.events import facade as events
from apps.kernel.checks import auditor
from apps.kernel.db import sql
from apps.orders.checks import once_invariants

_PACKAGE = "apps.orders"
_piece_end = sql.load(_PACKAGE, "piece_end")
_reservations_piece_end = sql.load(_PACKAGE, "reservations_piece_end")
_money = sql.load(_PACKAGE, "audit_money")
_invoices = sql.load(_PACKAGE, "audit_invoices")
_credit = sql.load(_PACKAGE, "audit_credit")
_lines = sql.load(_PACKAGE, "audit_lines")
_refunds = sql.load(_PACKAGE, "audit_refunds")
_tickets = sql.load(_PACKAGE, "audit_tickets")
_reservations = sql.load(_PACKAGE, "audit_reservations")
_orphans = sql.load(_PACKAGE, "audit_orphans")
_times = sql.load(_PACKAGE, "audit_times")
_code_uses = sql.load(_PACKAGE, "audit_code_uses")
_code_limits = sql.load(_PACKAGE, "audit_code_limits")
_codes_piece_end = sql.load(_PACKAGE, "codes_piece_end")

_ORDER_STATEMENTS = (_money, _lines, _refunds, _tickets, _reservations, _times, _code_uses, _credit)
Rows = list[Sequence[Any]]


def register() -> None:
    """Register these checks with the auditor."""
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
        "a standing order has exactly one confirmed reservation",
        _make_check(_reservations, "order {} is {}, its reservation {} is {}"),
    )
    auditor.register("I4", "invoice numbers have no gap", _check_invoices)
    auditor.register(
        "I4",
        "an invoice is over its order's total, and credit notes do not exceed it",
        _make_check(_credit, "order {}: total {}, invoice over {}, credited {}"),
    )
    auditor.register("I4", "every confirmed reservation has a standing order", _check_orphans)
    once_invariants.register()
    auditor.register(
        "I4",
        "an order's discount is that of its promo code, whose use counts until the order ends",
        _make_check(_code_uses, "order {} is {}: {} off its tickets, {} by its code, counted: {}"),
    )
    auditor.register("I5", "no promo code is used by more orders than its limit", _check_code_limits)
    auditor.register("I8", "the payments of standing orders occurred within deadline and grace", _check_times)


def _event_id(context: auditor.AuditContext) -> int | None:
    return events.get_event(context.only).id if context.only else None


def _walk_orders(context: auditor.AuditContext) -> dict[str, Rows]:
    """Return the rows of each statement, by its name."""
    return _walk(_ORDER_STATEMENTS, context.once(_event_id))


def _walk(statements: Iterable[sql.Statement], event_id: int | None) -> dict[str, Rows]:
    seen = defaultdict[str, Rows](list)

    def scan(cursor: Any, after: UUID, until: UUID) -> None:
        for statement in statements:
            seen[statement.name] += statement.rows(cursor, after=after, until=until, event_id=event_id)

    auditor.scan_in_batches(_piece_end, UUID(int=0), scan)
    return seen


def find_order_mismatches(event_id: int | None) -> tuple[Rows, Rows]:
    """Return two lists: orders that keep another amount than they are owed (number, status, owed, kept), and orders
    whose status contradicts their reservation's (number, status, reservation, its status)."""
    seen = _walk((_money, _reservations), event_id)
    return seen[_money.name], seen[_reservations.name]


def _make_check(statement: sql.Statement, text: str) -> auditor.Find:
    def check(context: auditor.AuditContext) -> Iterator[str]:
        for row in context.once(_walk_orders)[statement.name]:
            yield text.format(*row)

    return check


def _check_times(context: auditor.AuditContext) -> Iterator[str]:
    for number, attempt, occurred_at, counts_until, deadline, is_right in context.once(_walk_orders)[_times.name]:
        if is_right:
            yield f"order {number}, attempt {attempt}: occurred at {occurred_at}, counted until {counts_until}"
        else:
            yield f"order {number}, attempt {attempt}: counts until {counts_until}, the deadline was {deadline}"


def _check_code_limits(context: auditor.AuditContext) -> Iterator[str]:
    event_id, found = context.once(_event_id), list[Sequence[Any]]()

    def scan(cursor: Any, after: int, until: int) -> None:
        found.extend(_code_limits.rows(cursor, after=after, until=until, event_id=event_id))

    auditor.scan_in_batches(_codes_piece_end, 0, scan)
    for code, uses_max, count in found:
        yield f"code {code}: used by {count} orders, its limit is {uses_max}"


def _check_orphans(context: auditor.AuditContext) -> Iterator[str]:
    slugs = {view.id: view.slug for view in events.list_events()}
    for event, reservation_id, number, status in find_orphaned_reservations(context.once(_event_id)):
        name = slugs.get(event, f"event {event}")
        yield f"{name}: reservation {reservation_id} is confirmed; its order: {number} {status}".rstrip()


def find_orphaned_reservations(event_id: int | None) -> Rows:
    """Return confirmed reservations without a standing order: event, reservation, order number or "no order", status or
    empty."""
    found: Rows = []

    def scan(cursor: Any, after: UUID, until: UUID) -> None:
        found.extend(_orphans.rows(cursor, after=after, until=until, event_id=event_id))

    auditor.scan_in_batches(_reservations_piece_end, UUID(int=0), scan)
    return found


def _check_invoices(context: auditor.AuditContext) -> Iterator[str]:
    # Across all events: a series of numbers is not per event. The statement reads one index in one snapshot.
    with auditor.read_cursor() as cursor:
        rows = _invoices.rows(cursor)
    for kind, series, year, last, count, highest in rows:
        yield f"{kind} {series} {year}: the counter is at {last}, {count} documents exist, the highest is {highest}"
