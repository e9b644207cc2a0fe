"""The rows of the sandbox's books, for tests: `SandboxCharge.objects` and `SandboxRefund.objects` have those methods of
Django's managers that tests need. Times are those of the books."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from django.conf import settings

from apps.orders.payments.providers.sandbox import books, rows, store

Row = TypeVar("Row", rows.Charge, rows.Refund)


@dataclass(frozen=True)
class Rows(Generic[Row]):
    """The rows of a table that have these values."""

    table: str
    row: type[Row]
    values: dict[str, Any] = field(default_factory=dict)

    def all(self) -> "Rows[Row]":
        return self

    def filter(self, **values: Any) -> "Rows[Row]":
        return Rows(self.table, self.row, {**self.values, **values})

    def get(self, **values: Any) -> Row:
        (found,) = self.filter(**values)
        return found

    def __iter__(self) -> Iterator[Row]:
        build: Any = books._charge_of if self.row is rows.Charge else books._refund_of
        columns = books._CHARGE if self.row is rows.Charge else books._REFUND
        return iter([build(row) for row in self._execute(f"SELECT {columns} FROM {self.table}", " ORDER BY rowid")])

    def count(self) -> int:
        return int(self._execute(f"SELECT count(*) FROM {self.table}")[0][0])

    def exists(self) -> bool:
        return self.count() > 0

    def total_minor(self) -> int:
        return int(self._execute(f"SELECT coalesce(sum(amount_minor), 0) FROM {self.table}")[0][0])

    def statuses(self) -> list[str]:
        return [row.status for row in self]

    def update(self, **changes: Any) -> None:
        named = ", ".join(f"{name} = ?" for name in changes)
        self._execute(f"UPDATE {self.table} SET {named}", before=list(changes.values()))

    def delete(self) -> None:
        self._execute(f"DELETE FROM {self.table}")

    def _execute(self, statement: str, order: str = "", before: list[Any] | None = None) -> list[Any]:
        where = " AND ".join(f"{name} = ?" for name in self.values)
        given = [*(before or []), *self.values.values()]
        with store.transaction() as on:
            return on.execute(
                statement + (f" WHERE {where}" if where else "") + order,
                [books._text(value) if isinstance(value, datetime) else value for value in given],
            ).fetchall()


class SandboxCharge:
    objects = Rows("charge", rows.Charge)


class SandboxRefund:
    objects = Rows("refund", rows.Refund)


def add_charge(**values: Any) -> rows.Charge:
    """Write a charge into the books."""
    row = rows.Charge(pk=books.new_pk(), **values)
    with store.transaction() as on:
        books._insert(on, row)
    return row


def add_refund(charge: rows.Charge, *, key: str, amount_minor: int, occurred_at: datetime) -> rows.Refund:
    """Write a refund of this charge, which succeeded at that time, into the books."""
    row = rows.Refund(books.new_pk(), key, charge.pk, amount_minor, "succeeded", "", occurred_at)
    with store.transaction() as on:
        books.insert_refund(on, row)
    return row


def empty_books() -> None:
    """Delete what the books contain, if there are any."""
    if not Path(settings.SANDBOX_BOOKS).exists():
        return
    with closing(sqlite3.connect(settings.SANDBOX_BOOKS, timeout=10)) as on:
        if on.execute("SELECT 1 FROM charge LIMIT 1").fetchone():
            on.executescript("DELETE FROM refund; DELETE FROM charge;")
