"""One lock order for every operation (rules 2 and 3): what each operation locks, by shape; and each lock statement
without its order, which deadlocks."""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from types import ModuleType
from typing import Any

import pytest
from django.db import connection
from psycopg import errors

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.checks import auditor, reconciler
from apps.kernel.db import sql, transactions
from apps.queue import facade as queue
from apps.reservations import facade as reservations
from apps.reservations.checks import oversell_compensation, oversell_plan
from apps.reservations.gate import rebuild
from apps.reservations.holds import inventory_locks, replacement, statements, transaction
from apps.reservations.lifecycle import expiry_jobs, queue_slots, release
from apps.reservations.models import GeneralAdmissionInventory, PurchaseCap, Reservation, ReservationLine, SeatInventory
from apps.reservations.staff import stock, tiers
from apps.reservations.staff.selection import Selection
from apps.reservations.staff.stock_summary import read_section_stock
from tests.reservations.checks.test_oversell_compensation import oversold_by_one, without_constraints
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, join, make_event, make_hold_request
from tests.support.races import ConcurrentCall, rival_connection
from tests.support.reservations.buyers import begin_payment, cancel, confirm, run_sql

pytestmark = pytest.mark.django_db(transaction=True)

create_caps = sql.load("apps.reservations", "create_caps")

BY: dict[str, Any] = {"who": "ann", "why": ""}
PATIENT_MS = 60_000
"""Longer than PostgreSQL's deadlock timeout: a shorter lock timeout would hide every deadlock."""

# --- by shape ---------------------------------------------------------------------------------------------------------

ORDER = {
    "queue_waitingroom": "room", "queue_queueentry": "entries", "orders_order": "order",
    "reservations_reservation": "reservations", "reservations_purchasecap": "caps",
    "reservations_seatinventory": "seats", "reservations_generaladmissioninventory": "tickets",
}  # fmt: skip
RANK = {kind: rank for rank, kind in enumerate(ORDER.values())}
BEGINS = "set_config('lock_timeout'"
"""The first statement of every writing transaction."""


@dataclass(frozen=True)
class Lock:
    kind: str
    is_written: bool
    """By an UPDATE, and not only locked."""


@contextmanager
def locks() -> Iterator[list[list[Lock]]]:
    """Yield what each transaction of this thread's connection locks in the block, in order, derived from its SQL."""
    seen: list[list[Lock]] = [[]]

    def watch(execute: Callable[..., Any], text: str, params: Any, many: bool, context: Any) -> Any:
        text = re.sub(r"--.*", "", text)
        if BEGINS in text:
            seen.append([])
        tables = re.findall(r'UPDATE "?(\w+)', re.sub(r"FOR (NO KEY )?UPDATE", "", text))
        seen[-1].extend(Lock(ORDER[table], True) for table in tables if table in ORDER)
        if "UPDATE" in text and re.search(r"FOR (NO KEY )?UPDATE", text):
            found = dict.fromkeys(re.findall(r'FROM "?(\w+)', text))
            seen[-1].extend(Lock(ORDER[table], False) for table in found if table in ORDER)
        return execute(text, params, many, context)

    with connection.execute_wrapper(watch):
        yield seen


def locked_by(act: Callable[[], Any]) -> list[str]:
    """Return what the transactions of this act lock, in order, each as one line. Raises AssertionError if one of them
    violates the lock order, or writes rows that it has not locked before."""
    with locks() as seen:
        act()
    lines = []
    for one in filter(None, seen):
        kinds = list(dict.fromkeys(lock.kind for lock in one))
        assert kinds == sorted(kinds, key=RANK.__getitem__), one
        for kind in kinds:
            first = next(lock for lock in one if lock.kind == kind)
            assert not first.is_written, f"{kind} written before they were locked: {one}"
        lines.append(" ".join(kinds))
    return lines


def test_every_operation_locks_in_the_global_order_and_before_it_writes() -> None:
    """Rules 2 and 3: no two operations can wait for each other in a cycle. Each line below is one transaction: an
    entry's slot is updated in a transaction of its own, after the commit."""
    event = make_event(general_admission=30, per_buyer_max=6)
    tiers.add_price(event, "Better", 9_000, **BY)
    free = iter(f"hall-{row}-{number}" for row in "BCDE" for number in range(1, 11))
    slot, released = "entries", ["reservations seats tickets", "entries"]

    def mixed() -> dict[str, Any]:
        return {"seats": [next(free)], "ga_section": "floor", "ga_quantity": 1}

    def paying() -> reservations.ReservationView:
        reservations.prepare_payment(event.id, "buyer@example.org")
        return begin_payment(hold(event, **mixed()).id)

    best = {"best_available": {"section": "hall", "quantity": 2}, "ga_section": "floor", "ga_quantity": 1}
    one, other, third = (
        make_hold_request(event, **mixed()),
        make_hold_request(event, **best),
        make_hold_request(event, **mixed()),
    )
    prepare_caps(one, other, third)
    assert locked_by(lambda: decide([one], statements.LockWait.GENERAL_ADMISSION_ONLY)) == [
        "entries caps seats tickets"
    ]
    assert locked_by(lambda: decide([other], statements.LockWait.NONE)) == ["entries caps seats tickets"]
    assert locked_by(lambda: decide([third])) == ["entries caps seats tickets"]
    entry = join(event)
    change = make_hold_request(event, entry, replace=str(hold(event, entry, **mixed()).id), **mixed())
    prepare_caps(change)
    assert locked_by(lambda: decide([change])) == ["entries reservations caps seats tickets"]

    view = hold(event, **mixed())
    assert locked_by(lambda: reservations.release(view.id, who="test")) == released
    for sweep in (
        reservations.sweep,
        lambda: reservations.sweep(event_id=event.id),
        lambda: reservations.sweep(event_id=event.id, waiting=True),
        lambda: release.sweep_these(list(Reservation.objects.values_list("id", flat=True)), "deadline"),
        reservations.sweep_all,
        expiry_jobs.sweep_unswept,
    ):
        backdate_deadline(hold(event, **mixed()).id, seconds=10)
        assert locked_by(sweep) == released, sweep

    view = hold(event, **mixed())
    reservations.prepare_payment(event.id, "buyer@example.org")
    assert locked_by(lambda: begin_payment(view.id)) == ["reservations caps", slot]
    assert locked_by(lambda: confirm(view.id, clock.now())) == ["reservations caps seats", slot]
    assert locked_by(lambda: cancel(view.id)) == released
    late, paid_at = paying(), clock.now()
    backdate_deadline(late.id)
    reservations.sweep()
    assert locked_by(lambda: confirm(late.id, paid_at)) == ["reservations caps seats tickets", slot]

    chosen = Selection(seats=(next(free), next(free)))
    assert locked_by(lambda: stock.block_seats(event, chosen, "house", **BY)) == ["seats"]
    assert locked_by(lambda: stock.unblock_seats(event, chosen, **BY)) == ["seats"]
    assert locked_by(lambda: stock.block_general_admission(event, "floor", 2, "house", **BY)) == ["tickets"]
    assert locked_by(lambda: stock.unblock_general_admission(event, "floor", 1, "house", **BY)) == ["tickets"]
    assert locked_by(lambda: stock.resize(event, "floor", 31, **BY)) == ["tickets"]
    assert locked_by(lambda: tiers.move_seats(event, chosen, "Better", **BY)) == ["seats"]
    assert locked_by(lambda: tiers.reprice(event, "Better", 8_000, **BY)) == []

    SeatInventory.objects.filter(reservation_id=late.id).update(status=0, reservation_id=None)
    GeneralAdmissionInventory.objects.update(taken=0)
    assert locked_by(lambda: reconciler.run(repair_by="test")) == ["reservations seats", "tickets"]
    SeatInventory.objects.filter(reservation_id=late.id).update(status=0, reservation_id=None)
    ReservationLine.objects.filter(reservation_id=late.id).update(live=False)
    assert locked_by(lambda: reconciler.run(repair_by="test"))[0] == "reservations seats tickets"
    for read in (
        reconciler.run,
        auditor.run,
        lambda: rebuild.reset(event.id),
        lambda: read_section_stock(event.id),
    ):
        assert locked_by(read) == [], read
    assert_audit_clean(without_money=True)


def test_a_compensation_locks_in_the_global_order_and_before_it_writes() -> None:
    with without_constraints():
        event, _ = oversold_by_one()
        plan = oversell_plan.plan(event)
        locked = locked_by(lambda: list(oversell_compensation.apply(plan, by="test", approved_by="Ada")))
        assert locked == ["order reservations tickets", "entries"]
        assert_audit_clean()


# --- statements without their order -----------------------------------------------------------------------------------


class UnorderedStatement:
    """A lock statement without its ORDER BY: it locks in ascending order in one session and in descending order in the
    thread that sets `is_backwards`."""

    def __init__(self, statement: sql.Statement) -> None:
        head, _, rest = statement.text.rpartition("ORDER BY ")
        descending = re.sub(r"^[\w.]+", r"\g<0> DESC", rest)
        self._forwards, self._backwards = statement, sql.Statement(statement.name, f"{head}ORDER BY {descending}")
        self.thread = threading.local()

    def rows(self, cursor: sql.Cursor, **params: Any) -> Sequence[tuple[Any, ...]]:
        return self._of_this_thread().rows(cursor, **params)

    def call(self, **params: Any) -> sql.Call:
        return self._of_this_thread().call(**params)

    def _of_this_thread(self) -> sql.Statement:
        return self._backwards if getattr(self.thread, "is_backwards", False) else self._forwards


@dataclass(frozen=True)
class Conflict:
    """Two acts that lock the same three rows by one statement, and the statement that locks the middle row: a third
    session keeps it locked until each act had the time to lock the rows before it."""

    first: Callable[[], Any]
    second: Callable[[], Any]
    keep: str
    middle_row: Any


_numbers = count()


def show(rows: int = 1, **options: Any) -> events.EventView:
    number = next(_numbers)
    return make_event(f"show-{number}", venue=f"venue {number}", rows=rows, seats_per_row=6, **options)


def decide(
    requests: Sequence[reservations.HoldRequest], wait: statements.LockWait = statements.LockWait.WAITING
) -> None:
    transaction.decide_once(requests, wait=wait, write=transactions.write_on_django)


def prepare_caps(*requests: reservations.HoldRequest) -> None:
    create_caps.count(
        connection.cursor(),
        event_ids=[one.event.id for one in requests],
        buyers=[one.buyer for one in requests],
    )


def batch_conflict(first: list[reservations.HoldRequest], second: list[reservations.HoldRequest], keep: str,
               middle_row: Any) -> Conflict:  # fmt: skip
    return Conflict(lambda: decide(first), lambda: decide(second), keep, middle_row)


def locking(table: str, column: str = "id") -> str:
    return f"SELECT 1 FROM {table} WHERE {column} = %s FOR NO KEY UPDATE"


def batches_for_the_same_seats() -> Conflict:
    event = show()
    first, second = (
        [make_hold_request(event, seats=[f"hall-A-{n}"]) for n in numbers] for numbers in ((1, 2, 3), (3, 2, 1))
    )
    middle_row = SeatInventory.objects.get(event_id=event.id, seat__guid="hall-A-2").pk
    return batch_conflict(first, second, locking("reservations_seatinventory", "seat_id"), middle_row)


def batches_for_the_same_tickets() -> Conflict:
    shows = [show(rows=0, general_admission=5) for _ in range(3)]
    first, second = ([make_hold_request(one, ga_section="floor", ga_quantity=1) for one in shows] for _ in range(2))
    (middle_row,) = (section.id for section in events.list_sections(shows[1].id))
    return batch_conflict(first, second, locking("reservations_generaladmissioninventory", "section_id"), middle_row)


def batches_of_the_same_buyers() -> Conflict:
    """In two tabs each."""
    event = show(per_buyer_max=4)
    first, others = (
        [make_hold_request(event, seats=[f"hall-A-{n}"]) for n in numbers] for numbers in ((1, 2, 3), (4, 5, 6))
    )
    second = [replace(other, buyer=one.buyer) for one, other in zip(first, others, strict=True)]
    prepare_caps(*first)
    middle_row = sorted(PurchaseCap.objects.filter(event_id=event.id).values_list("id", flat=True))[1]
    return batch_conflict(first, second, locking("reservations_purchasecap"), middle_row)


def batches_of_the_same_admissions() -> Conflict:
    """Every buyer has clicked twice."""
    event = show()
    entries = sorted((join(event) for _ in range(3)), key=lambda entry: entry.id)
    first, second = (
        [make_hold_request(event, entry, seats=[f"hall-A-{n}"]) for n, entry in enumerate(entries, first)]
        for first in (1, 4)
    )
    keep = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
    return batch_conflict(first, second, keep, str(entries[1].id))


def batches_that_replace_the_same() -> Conflict:
    """Buyers name other buyers' reservations: they are locked before the ownership is checked."""
    event = show()
    held = sorted(hold(event, seats=[f"hall-A-{n}"]).id for n in (1, 2, 3))
    first, second = ([make_hold_request(event, seats=["hall-A-4"], replace=str(one)) for one in held] for _ in range(2))
    return batch_conflict(first, second, locking("reservations_reservation"), held[1])


def lapsed(event: events.EventView) -> list[Any]:
    held = sorted(hold(event, seats=[f"hall-A-{n}"]).id for n in (1, 2, 3))
    for one in held:
        backdate_deadline(one)
    return held


def sweeps_of_the_same() -> Conflict:
    held = lapsed(event := show())

    def sweep() -> None:
        reservations.sweep(event_id=event.id, waiting=True, lock_ms=PATIENT_MS)

    return Conflict(sweep, sweep, locking("reservations_reservation"), held[1])


def sweeps_of_these() -> Conflict:
    held = lapsed(show())

    def sweep() -> None:
        release.sweep_these(held, "hold", waiting=True, lock_ms=PATIENT_MS)

    return Conflict(sweep, sweep, locking("reservations_reservation"), held[1])


def slots_of_the_same_entries() -> Conflict:
    event = show()
    entries = sorted(join(event).id for _ in range(3))

    def refresh() -> None:
        queue_slots.refresh_slots(entries, lock_ms=PATIENT_MS)

    return Conflict(refresh, refresh, locking("queue_queueentry"), entries[1])


def staff_at_the_same_row() -> Conflict:
    event = show()
    chosen = Selection(seats=("hall-A-1", "hall-A-2", "hall-A-3"))
    middle_row = SeatInventory.objects.get(event_id=event.id, seat__guid="hall-A-2").pk
    return Conflict(
        lambda: stock.block_seats(event, chosen, "house", **BY),
        lambda: stock.block_seats(event, chosen, "out_of_use", **BY),
        locking("reservations_seatinventory", "seat_id"),
        middle_row,
    )


def run_conflict(conflict: Conflict, thread: threading.local) -> list[BaseException | None]:
    """Return how the two conflicting acts end."""

    def second() -> None:
        thread.is_backwards = True
        conflict.second()

    with rival_connection() as keeper:
        run_sql("BEGIN", using=keeper)
        run_sql(conflict.keep, [conflict.middle_row], using=keeper)
        rivals = [ConcurrentCall(conflict.first).wait_until_blocked()]
        rivals += [ConcurrentCall(second).wait_until_blocked()]
        run_sql("ROLLBACK", using=keeper)
    return [rival.outcome().error for rival in rivals]


def is_deadlock(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, errors.DeadlockDetected):
        error = error.__cause__
    return error is not None


@pytest.mark.parametrize(
    ("make_conflict", "module", "name"),
    [
        (batches_for_the_same_seats, inventory_locks, "_lock_seats_waiting"),
        (batches_for_the_same_tickets, statements, "_lock_general_admission"),
        (batches_of_the_same_buyers, statements, "_lock_caps"),
        (batches_of_the_same_admissions, statements, "_lock_admissions"),
        (batches_that_replace_the_same, replacement, "_lock_replaced_waiting"),
        (sweeps_of_the_same, release, "_lock_lapsed_of_event_waiting"),
        (sweeps_of_these, release, "_lock_reservations_waiting"),
        (slots_of_the_same_entries, queue, "_lock_entries"),
        (staff_at_the_same_row, stock, "_lock_stock_seats"),
    ],
    ids=lambda one: one.__name__ if callable(one) else "",
)
def test_a_lock_statement_deadlocks_without_its_order_and_never_with_it(
    make_conflict: Callable[[], Conflict], module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K: keeps row 2 locked
    A: locks 1, 2, 3     has 1, waits for 2

    without the order:
    B: locks 3, 2, 1     has 3, waits for 2
    K releases row 2: the session that gets it waits for the other's row, and the other waits for row 2. PostgreSQL ends
    one of them, and with it every request of its batch.

    with it:
    B: locks 1, 2, 3, in whichever order they were named     waits for 1, holding no lock
    K releases row 2: A gets all three, and then B.
    """
    for patched in (transaction, stock):
        monkeypatch.setattr(patched, "LOCK_WAIT_MS", PATIENT_MS)
        monkeypatch.setattr(patched, "STATEMENT_MS", PATIENT_MS)
    with monkeypatch.context() as broken:
        without_order = UnorderedStatement(getattr(module, name))
        broken.setattr(module, name, without_order)
        ended = [error for error in run_conflict(make_conflict(), without_order.thread) if error is not None]
    assert len(ended) == 1
    assert is_deadlock(ended[0]), ended
    assert run_conflict(make_conflict(), threading.local()) == [None, None]
    assert_audit_clean()
