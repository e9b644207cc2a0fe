"""This app's part of the audit: money, tickets and reservations agree (I4), and money counted only in time (I8).

Orders are read in pieces of id order, one statement and one snapshot each, so that no long read stays open.
"""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from django.db import connection

from apps.events import facade as events
from ticketing.kernel import audit, sql

PIECE_ORDERS = 2_000
_PACKAGE = "apps.orders"
_piece_end = sql.load(_PACKAGE, "piece_end")
_money = sql.load(_PACKAGE, "audit_money")
_refunds = sql.load(_PACKAGE, "audit_refunds")
_tickets = sql.load(_PACKAGE, "audit_tickets")
_reservations = sql.load(_PACKAGE, "audit_reservations")
_orphans = sql.load(_PACKAGE, "audit_orphans")
_times = sql.load(_PACKAGE, "audit_times")

Check = Callable[[], Iterator[str]]


def register() -> None:
    """The auditor includes these checks."""
    audit.register(
        "I4",
        "captured less refunded is what each order is owed",
        _in_pieces(_money, "order {} is {}: owed of {}, kept {}"),
    )
    audit.register(
        "I4",
        "what a payment gave back is the sum of its refunds",
        _in_pieces(_refunds, "order {}, attempt {}: refunded {} against {} by refunds"),
    )
    audit.register(
        "I4",
        "no ticket without a standing order, none missing",
        _in_pieces(_tickets, "order {} is {}: {} places, {} valid tickets"),
    )
    audit.register(
        "I4",
        "a standing order has exactly one confirmed reservation",
        _in_pieces(_reservations, "order {} is {}, its reservation {} is {}"),
    )
    audit.register("I4", "every confirmed reservation has a standing order", _check_orphans)
    audit.register(
        "I8",
        "money an order stands on occurred by its deadline and grace",
        _in_pieces(_times, "order {}, attempt {}: occurred at {}, counted until {}"),
    )


def _in_pieces(statement: sql.Statement, text: str) -> Check:
    def check() -> Iterator[str]:
        after: Any = UUID(int=0)
        while True:
            with connection.cursor() as cursor:
                ends = _piece_end.rows(cursor, after=after, limit=PIECE_ORDERS)
                if not ends:
                    return
                rows = statement.rows(cursor, after=after, until=ends[0][0])
            yield from (text.format(*row) for row in rows)
            after = ends[0][0]

    return check


def _check_orphans() -> Iterator[str]:
    for event in events.list_events():
        with connection.cursor() as cursor:
            rows = _orphans.rows(cursor, event_id=event.id)
        for reservation_id, number, status in rows:
            yield f"{event.slug}: reservation {reservation_id} is confirmed; its order: {number} {status}".rstrip()
