"""How rows are locked (rules 1, 2, 3 and 5): each naive way fails here, ours does not."""

import pytest
from django.db import DatabaseError, connection, transaction
from psycopg import errors

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.orders.models import Order, OrderLine, Ticket
from apps.reservations import facade as reservations
from tests.support.factories import assert_audit_clean, hold, make_event, make_hold_request
from tests.support.races import ConcurrentCall, in_another_connection, rival_connection, statements
from tests.support.reservations.buyers import is_held, problem_of, run_sql, seat, submit_hold

pytestmark = pytest.mark.django_db(transaction=True)

lock_seats_skipping = sql.load("apps.reservations", "lock_seats_skipping")
lock_seats_waiting = sql.load("apps.reservations", "lock_seats_waiting")


def insert_ticket(view: reservations.ReservationView) -> None:
    """Insert a ticket for the first seat of this reservation, with its foreign keys checked now instead of at
    commit."""
    now, (first_seat, *_) = clock.now(), view.seats
    run_sql("SET CONSTRAINTS ALL IMMEDIATE")
    order = Order.objects.create(
        number="RACE", reservation_id=view.id, event_id=view.event_id, entry_id=view.entry_id, buyer=view.buyer,
        email="a@example.org", name="A", status="placed", total_minor=1, currency="USD", pay_deadline=now,
        placed_at=now,
    )  # fmt: skip
    line = OrderLine.objects.create(
        order=order, kind="place", reservation_line_id=first_seat.line_id, place=1, description="x", price_minor=1,
        total_minor=1,
    )  # fmt: skip
    Ticket.objects.create(
        code="RACE", order=order, order_line=line, line_id=first_seat.line_id, seat_id=first_seat.seat_pk, label="x",
        section="x", category="x", price_minor=1, holder="A", issued_at=now, voided_at=now,
    )  # fmt: skip


def test_a_free_seat_stays_visible_while_a_ticket_for_it_is_being_written() -> None:
    """Rule 1.

    T: inserts a ticket for a seat that is free again; its foreign key holds KEY SHARE on the seat's row
    naive hold: SELECT … FOR UPDATE SKIP LOCKED     finds no such seat, and refuses it: this is the control
    our hold:   SELECT … FOR NO KEY UPDATE SKIP LOCKED     locks it at once
    """
    event = make_event()
    view = hold(event, seats=["hall-A-1"])
    reservations.release(view.id, who="test")
    request = make_hold_request(event, seats=["hall-A-1"])
    with transaction.atomic():
        insert_ticket(view)
        naive = lock_seats_skipping.text.replace("FOR NO KEY UPDATE", "FOR UPDATE")
        assert naive != lock_seats_skipping.text
        with rival_connection() as rival:
            assert run_sql(naive, {"seat_ids": [seat("hall-A-1").pk]}, using=rival) == []
        outcome, names = in_another_connection(lambda: hold_and_name_statements(request))
        transaction.set_rollback(True)
    assert is_held(outcome)
    assert "lock_seats_waiting" not in names
    assert_audit_clean()


def hold_and_name_statements(request: reservations.HoldRequest) -> tuple[reservations.HoldOutcome, list[str]]:
    with statements() as names:
        outcome = submit_hold(request)
    return outcome, names


def run_crosswise(text: str) -> list[BaseException | None]:
    """Run the statement in two sessions over the same three seats, one in the order 1, 2, 3, the other in 3, 2, 1; a
    third session keeps seat 2 locked until each has locked the seat before it. Return how the two end."""
    one, two, three = (seat(f"hall-A-{number}").pk for number in (1, 2, 3))

    def session(seat_ids: list[int]) -> None:
        with transaction.atomic():
            # An UPDATE locks in the order of its plan: a nested loop follows the given list.
            run_sql("SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off")
            run_sql(text, {"seat_ids": seat_ids, "blocked": 3})

    with transaction.atomic():
        lock_seats_waiting.rows(connection.cursor(), seat_ids=[two])
        rivals = [ConcurrentCall(lambda: session([one, two, three])).wait_until_blocked()]
        rivals += [ConcurrentCall(lambda: session([three, two, one])).wait_until_blocked()]
    return [rival.outcome().error for rival in rivals]


UPDATE_AS_LISTED = """
UPDATE reservations_seatinventory AS seat SET status = %(blocked)s, blocked_for = 'house'
FROM unnest(%(seat_ids)s::bigint[]) AS given (seat_id) WHERE seat.seat_id = given.seat_id
"""


def test_control_an_update_of_several_rows_without_ordered_locks_deadlocks() -> None:
    """Rule 2, the naive way: nothing but the UPDATE.

    A: UPDATE of 1, 2, 3     has 1, waits for 2
    B: UPDATE of 3, 2, 1     has 3, waits for 2
    Seat 2 is released: the session that gets it waits for the other's seat, and the other waits for seat 2. PostgreSQL
    ends one of them. Locking first, in id order, is tested in test_lock_order.py.
    """
    make_event()
    ended = [error for error in run_crosswise(UPDATE_AS_LISTED) if error is not None]
    assert len(ended) == 1
    assert isinstance(ended[0].__cause__, errors.DeadlockDetected)


def test_a_hold_behind_a_lock_that_stays_times_out_as_busy() -> None:
    """Rule 5, with its control beside it.

    P: locks the seat and keeps it
    naive: SELECT … FOR NO KEY UPDATE without a limit     waits, and would wait forever
    our hold: skips the seat, then waits for it 200 ms at a time     answers Busy; nothing is held
    """
    event = make_event()
    with rival_connection() as keeper, rival_connection() as watcher:
        keeper.set_autocommit(False)
        run_sql(lock_seats_waiting.text, {"seat_ids": [seat("hall-A-1").pk]}, using=keeper)
        naive = ConcurrentCall(
            lambda: run_sql(lock_seats_waiting.text, {"seat_ids": [seat("hall-A-1").pk]})
        ).wait_until_blocked()
        outcome = submit_hold(make_hold_request(event, seats=["hall-A-1", "hall-A-2"]))
        assert problem_of(outcome).type == "busy"
        assert problem_of(outcome).status == 503
        assert run_sql("SELECT count(*) FROM reservations_reservation", using=watcher) == [(0,)]
        naive.wait_until_blocked()
        keeper.rollback()
    naive.result()
    assert is_held(submit_hold(make_hold_request(event, seats=["hall-A-1", "hall-A-2"])))
    assert_audit_clean()


def test_every_writing_transaction_has_all_three_limits() -> None:
    def limits() -> list[str]:
        names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
        return [run_sql("SELECT current_setting(%s)", [name])[0][0] for name in names]

    outside = limits()
    with transactions.write(lock_ms=200, statement_ms=3_000):
        assert limits() == ["200ms", "3s", "15s"]
    with transactions.write():
        assert limits() == ["5s", "30s", "15s"]
    assert limits() == outside


def test_a_statement_that_runs_too_long_is_ended_and_counts_as_transient() -> None:
    with pytest.raises(DatabaseError) as ended, transactions.write(statement_ms=20):
        run_sql("SELECT pg_sleep(5)")
    assert transactions.is_transient(ended.value)
