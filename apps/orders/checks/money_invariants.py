"""This app's part of the audit: money, tickets and reservations agree (I4), and money counted only in time (I8).

Orders and reservations are read in pieces of id order, one statement and one snapshot each: no long read stays open.
One walk over the orders serves all checks that judge them.
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
    """The auditor includes these checks."""
    auditor.register(
        "I4",
        "captured less refunded is what each order is owed",
        _make_check(_money, "order {} is {}: owed {}, kept {}"),
    )
    auditor.register(
        "I4",
        "an order's total is the sum of its lines, a line for each place",
        _make_check(_lines, "order {}: total {}, its lines {}; {} places held, {} sold"),
    )
    auditor.register(
        "I4",
        "what a payment gave back is the sum of its refunds",
        _make_check(_refunds, "order {}, attempt {}: refunded {} against {} by refunds"),
    )
    auditor.register(
        "I4",
        "no ticket without a standing order, none missing",
        _make_check(_tickets, "order {} is {}: {} standing places, {} valid tickets"),
    )
    auditor.register(
        "I4",
        "a standing order has exactly one confirmed reservation",
        _make_check(_reservations, "order {} is {}, its reservation {} is {}"),
    )
    auditor.register("I4", "numbers of invoices have no gap", _check_invoices)
    auditor.register(
        "I4",
        "an invoice is over its order's total, and no more is credited",
        _make_check(_credit, "order {}: total {}, invoice over {}, credited {}"),
    )
    auditor.register("I4", "every confirmed reservation has a standing order", _check_orphans)
    once_invariants.register()
    auditor.register(
        "I4",
        "a discount is what the order's promo code took off, counted while the order has not ended",
        _make_check(_code_uses, "order {} is {}: {} off its places, {} by its code, counted: {}"),
    )
    auditor.register("I5", "no promo code is used by more orders than may", _check_code_limits)
    auditor.register("I8", "money an order stands on occurred by its deadline and grace", _check_times)


def _event_id(survey: auditor.AuditContext) -> int | None:
    return events.get_event(survey.only).id if survey.only else None


def _walk_orders(survey: auditor.AuditContext) -> dict[str, Rows]:
    """What each statement found, by its name."""
    return _walk(_ORDER_STATEMENTS, survey.once(_event_id))


def _walk(statements: Iterable[sql.Statement], event_id: int | None) -> dict[str, Rows]:
    seen = defaultdict[str, Rows](list)

    def scan(cursor: Any, after: UUID, until: UUID) -> None:
        for statement in statements:
            seen[statement.name] += statement.rows(cursor, after=after, until=until, event_id=event_id)

    auditor.scan_in_batches(_piece_end, UUID(int=0), scan)
    return seen


def find_order_mismatches(event_id: int | None) -> tuple[Rows, Rows]:
    """Orders that keep other money than they are owed: number, status, owed, kept; and those that stand without a
    confirmed reservation, or do not stand with one: number, status, reservation, its status."""
    seen = _walk((_money, _reservations), event_id)
    return seen[_money.name], seen[_reservations.name]


def _make_check(statement: sql.Statement, text: str) -> auditor.Find:
    def check(survey: auditor.AuditContext) -> Iterator[str]:
        for row in survey.once(_walk_orders)[statement.name]:
            yield text.format(*row)

    return check


def _check_times(survey: auditor.AuditContext) -> Iterator[str]:
    for number, attempt, occurred_at, counts_until, deadline, is_right in survey.once(_walk_orders)[_times.name]:
        if is_right:
            yield f"order {number}, attempt {attempt}: occurred at {occurred_at}, counted until {counts_until}"
        else:
            yield f"order {number}, attempt {attempt}: counts until {counts_until}, the deadline was {deadline}"


def _check_code_limits(survey: auditor.AuditContext) -> Iterator[str]:
    event_id, found = survey.once(_event_id), list[Sequence[Any]]()

    def scan(cursor: Any, after: int, until: int) -> None:
        found.extend(_code_limits.rows(cursor, after=after, until=until, event_id=event_id))

    auditor.scan_in_batches(_codes_piece_end, 0, scan)
    for code, uses_max, count in found:
        yield f"code {code}: used by {count} orders, at most {uses_max} may"


def _check_orphans(survey: auditor.AuditContext) -> Iterator[str]:
    slugs = {view.id: view.slug for view in events.list_events()}
    for event, reservation_id, number, status in find_orphaned_reservations(survey.once(_event_id)):
        name = slugs.get(event, f"event {event}")
        yield f"{name}: reservation {reservation_id} is confirmed; its order: {number} {status}".rstrip()


def find_orphaned_reservations(event_id: int | None) -> Rows:
    """Confirmed reservations that no order stands for: event, reservation, number or "no order", status or nothing."""
    found: Rows = []

    def scan(cursor: Any, after: UUID, until: UUID) -> None:
        found.extend(_orphans.rows(cursor, after=after, until=until, event_id=event_id))

    auditor.scan_in_batches(_reservations_piece_end, UUID(int=0), scan)
    return found


def _check_invoices(survey: auditor.AuditContext) -> Iterator[str]:
    # Of the whole house: numbers know no event. The statement reads one index in one snapshot.
    with auditor.read_cursor() as cursor:
        rows = _invoices.rows(cursor)
    for kind, series, year, last, count, highest in rows:
        yield f"{kind} {series} {year}: counted to {last}, {count} papers, the highest is {highest}"
