"""This app's part of the audit: I1, I2, I3, I5 and the ledger behind I8, one event at a time in short reads."""

from collections.abc import Iterator

from django.db import connection

from apps.events import facade as events
from ticketing.kernel import audit, sql

_PACKAGE = "apps.reservations"
_i1_reserved = sql.load(_PACKAGE, "audit_i1_reserved")
_i2_shared = sql.load(_PACKAGE, "audit_i2_shared")
_i2_owner = sql.load(_PACKAGE, "audit_i2_owner")
_i3 = sql.load(_PACKAGE, "audit_i3")
_lines = sql.load(_PACKAGE, "audit_lines")
_i5_admissions = sql.load(_PACKAGE, "audit_i5_admissions")
_i5_caps = sql.load(_PACKAGE, "audit_i5_caps")
_ledger = sql.load(_PACKAGE, "audit_ledger")


def register() -> None:
    """The auditor includes these checks."""
    audit.register("I1", "available + held + sold + blocked = capacity in every section", _check_i1)
    audit.register("I2", "a seat belongs to at most one live reservation", _check_i2)
    audit.register("I3", "a general-admission count is what its lines say, within 0 and capacity", _check_i3)
    audit.register("I5", "one live reservation per admission; purchase caps hold", _check_i5)
    audit.register("I8", "the ledger ends where every reservation stands", _check_ledger)


def _each(statement: sql.Statement) -> Iterator[tuple[str, tuple[object, ...]]]:
    for event in events.list_events():
        with connection.cursor() as cursor:
            rows = statement.rows(cursor, event_id=event.id)
        for row in rows:
            yield event.slug, row


def _check_i1() -> Iterator[str]:
    for slug, (_, section, capacity, total, held, sold, line_held, line_sold) in _each(_i1_reserved):
        yield (
            f"{slug}/{section}: capacity {capacity}, {total} inventory rows; held {held} against {line_held} by lines, "
            f"sold {sold} against {line_sold}"
        )
    for slug, (reservation, status, live, count, seats, quantity) in _each(_lines):
        yield (
            f"{slug}: reservation {reservation} is {status} with {live} of {count} lines holding, "
            f"{quantity} places against {seats} in its header"
        )


def _check_i2() -> Iterator[str]:
    for slug, (seat, count) in _each(_i2_shared):
        yield f"{slug}: seat {seat} is on {count} live lines"
    for slug, (seat, status, owner, by_line, state) in _each(_i2_owner):
        yield f"{slug}: seat {seat} (status {status}) belongs to {owner} ({state}), its live line to {by_line}"


def _check_i3() -> Iterator[str]:
    for slug, (section, capacity, blocked, taken, by_lines) in _each(_i3):
        yield (
            f"{slug}: general admission {section}: taken {taken} against {by_lines} by lines, "
            f"blocked {blocked}, capacity {capacity}"
        )


def _check_i5() -> Iterator[str]:
    for slug, (entry, count) in _each(_i5_admissions):
        yield f"{slug}: admission {entry} has {count} live reservations"
    for event in events.list_events():
        if event.policy.per_buyer_max is None:
            continue
        with connection.cursor() as cursor:
            rows = _i5_caps.rows(cursor, event_id=event.id, per_buyer_max=event.policy.per_buyer_max)
        for kind, who, count in rows:
            yield f"{event.slug}: {kind} {who} has {count} of at most {event.policy.per_buyer_max}"


def _check_ledger() -> Iterator[str]:
    for slug, (reservation, status, last, before) in _each(_ledger):
        yield f"{slug}: reservation {reservation} is {status}, the ledger says {before} → {last}"
