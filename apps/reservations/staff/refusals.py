"""Records changes of the stock that staff asked for and that were refused, beside those that were made."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError
from django.db import connection

from apps.kernel import admin_actions
from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.reservations.inventory.log import Change, plain_line, record
from apps.reservations.models import InventoryChange


@contextmanager
def recording_refusals(event_id: int, kind: InventoryChange.Kind, wanted: str, *, who: str, why: str) -> Iterator[None]:
    """Record a change of staff that is refused within the block, in a transaction of its own, and raise the refusal
    again. `wanted` says what was asked for.

    A timeout (503) is not recorded: it refuses nothing, and the change may be repeated.
    """
    try:
        yield
    except (problems.Problem, CommandError) as refused:
        if not isinstance(refused, problems.Problem) or refused.status < 500:
            with transactions.write(), connection.cursor() as cursor:
                change = Change(None, None, 0, None, plain_line(wanted)[:200])
                refusal = admin_actions.describe_problem(refused) if isinstance(refused, problems.Problem) else refused
                record(cursor, event_id, kind, [change], who=who, why=why, refusal=str(refusal) or "refused")
        raise
