"""This app's part of the audit: money, tickets and reservations agree (I4), and money counted only in time (I8).

Orders and reservations are read in pieces of id order, one statement and one snapshot each: no long read stays open.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from apps.events import facade as events
from ticketing.kernel import audit, sql

_PACKAGE = "apps.orders"
_piece_end = sql.load(_PACKAGE, "piece_end")
_reservations_piece_end = sql.load(_PACKAGE, "reservations_piece_end")
_money = sql.load(_PACKAGE, "audit_money")
_refunds = sql.load(_PACKAGE, "audit_refunds")
_tickets = sql.load(_PACKAGE, "audit_tickets")
_reservations = sql.load(_PACKAGE, "audit_reservations")
_orphans = sql.load(_PACKAGE, "audit_orphans")
_times = sql.load(_PACKAGE, "audit_times")
_deadlines = sql.load(_PACKAGE, "audit_deadlines")


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
    audit.register(
        "I8",
        "a payment counts until the reservation's deadline and its grace",
        _in_pieces(_deadlines, "order {}, attempt {}: counts until {}, the deadline was {}"),
    )


def _in_pieces(statement: sql.Statement, text: str) -> audit.Find:
    def check(survey: audit.Survey) -> Iterator[str]:
        found: list[str] = []
        event_id = events.get_event(survey.only).id if survey.only else None

        def look(cursor: Any, after: UUID, until: UUID) -> None:
            rows = statement.rows(cursor, after=after, until=until, event_id=event_id)
            found.extend(text.format(*row) for row in rows)

        audit.walk(_piece_end, UUID(int=0), look)
        yield from found

    return check


def _check_orphans(survey: audit.Survey) -> Iterator[str]:
    views = [events.get_event(survey.only)] if survey.only else events.list_events()
    slugs = {view.id: view.slug for view in views}
    event_id = views[0].id if survey.only else None
    found: list[str] = []

    def look(cursor: Any, after: UUID, until: UUID) -> None:
        for event, reservation_id, number, status in _orphans.rows(cursor, after=after, until=until, event_id=event_id):
            name = slugs.get(event, f"event {event}")
            found.append(f"{name}: reservation {reservation_id} is confirmed; its order: {number} {status}".rstrip())

    audit.walk(_reservations_piece_end, UUID(int=0), look)
    yield from found
