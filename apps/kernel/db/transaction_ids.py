"""The id of the current transaction as a column's default: which transaction has written a row.

A snapshot's xmin separates rows whose transactions have ended from others (`apps/kernel/checks/auditor.py`).
"""

from django.db.models import BigIntegerField, Func


class CurrentTransactionId(Func):
    """The id of the transaction that inserts the row. 64 bits: it never wraps around."""

    template = "(pg_current_xact_id()::text::bigint)"
    output_field = BigIntegerField()
