"""Lists of checkouts against each other and against what else changes a reservation. Each ends with a clean audit."""

import random
import threading
import uuid
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from apps.kernel import clock
from apps.kernel.db import sql
from apps.orders.checkout.checkout import check_out
from apps.orders.models import Order, Payment
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation
from tests.orders.checkout.test_checkout_lists import decided, plain
from tests.support.batches import connect
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import checkout_body, place_order
from tests.support.races import in_another_connection, storm, values

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _audit() -> Iterator[None]:
    yield
    assert_audit_clean()


def test_lists_of_the_same_reservations_in_any_order_place_each_once() -> None:
    event = make_event()
    held = [hold(event, seats=[f"hall-A-{number}"]) for number in range(1, 9)]
    alone = held[0]

    def act(number: int) -> int:
        if number == 0:
            check_out(alone, checkout_body(), "alone")
            return 0
        shuffled = random.Random(number).sample(held, len(held))
        return sum(answer is not None for answer in decided([plain(view) for view in shuffled]))

    placed = sum(values(storm(6, act)))
    assert Order.objects.count() == Payment.objects.count() == len(held)
    assert placed in (len(held) - 1, len(held))


def test_control_orders_inserted_unsorted_deadlock() -> None:
    """Two transactions that insert the orders of two reservations in opposite order wait for each other."""
    event = make_event()
    orders = [place_order(hold(event, seats=[f"hall-A-{number}"])) for number in (1, 2)]
    spare = [hold(event, seats=[f"hall-B-{number}"]) for number in (1, 2)]
    inserted = threading.Barrier(2)
    copied = [
        field.column for field in Order._meta.concrete_fields if field.column not in ("id", "number", "reservation_id")
    ]
    columns = ", ".join(copied)

    def naive(number: int) -> None:
        with connect() as own, own.transaction():
            for step, view in enumerate(spare if number == 0 else reversed(spare)):
                own.execute(
                    f"INSERT INTO orders_order (id, number, reservation_id, {columns}) "
                    f"SELECT %s, %s, %s, {columns} FROM orders_order WHERE id = %s ON CONFLICT DO NOTHING",
                    (uuid.uuid4(), uuid.uuid4().hex[:11], view.id, orders[0].pk),
                )
                if step == 0:
                    inserted.wait(timeout=10)
            raise psycopg.Rollback

    errors = [outcome.error for outcome in storm(2, naive)]
    assert any(isinstance(error, psycopg.errors.DeadlockDetected) for error in errors), errors


def test_a_hold_that_is_released_before_the_lock_is_not_sold() -> None:
    """The order is inserted, then the buyer's other tab releases the hold: the list reads that under the lock, and
    withdraws the order. The unlocked view would have sold a free seat."""
    event = make_event()
    gone, kept = (hold(event, seats=[f"hall-A-{number}"]) for number in (1, 2))
    checkouts = [plain(gone), plain(kept)]
    assert all(one.reservation.is_pending for one in checkouts)

    def release(name: str, phase: str) -> None:
        if (name, phase) == ("lock_reservation_rows_skipping", "before"):
            in_another_connection(lambda: reservations.release(gone.id, "buyer"))

    with sql.observe(release):
        answers = decided(checkouts)
    assert [answer is not None for answer in answers] == [False, True]
    assert Order.objects.get().reservation_id == kept.id


def test_a_locked_hold_is_left_to_the_single_path_and_delays_no_other() -> None:
    event = make_event()
    locked, free = (hold(event, seats=[f"hall-A-{number}"]) for number in (1, 2))
    with connect() as own, own.transaction():
        own.execute("SELECT 1 FROM reservations_reservation WHERE id = %s FOR NO KEY UPDATE", (locked.id,))
        answers = decided([plain(locked), plain(free)])
    assert [answer is not None for answer in answers] == [False, True]
    assert check_out(locked, checkout_body(), "key").status == 202


def test_a_hold_that_ends_while_a_cap_row_is_locked_is_not_sold() -> None:
    """The list waits for the address's cap row, and reads the clock afterwards. With the clock of its first lock it
    would begin a payment after the hold's end."""
    event = make_event(per_buyer_max=4)
    view = hold(event, seats=["hall-A-1"])
    Reservation.objects.filter(pk=view.id).update(expires_at=clock.now() + timedelta(seconds=1))
    view = reservations.get_reservation(view.id)
    read_at = []

    def wait_for_its_end(name: str, phase: str) -> None:
        if (name, phase) == ("lock_caps", "before"):
            with connect() as own:
                read_at.extend(own.execute("SELECT clock_timestamp()").fetchone() or ())
                own.execute("SELECT pg_sleep_until(%s)", (view.expires_at,))

    with sql.observe(wait_for_its_end):
        answers = decided([plain(view)])
    assert read_at[0] < view.expires_at, "the hold had ended before the first lock: nothing was shown"
    assert answers == [None]
    assert not Order.objects.exists()


def test_a_sweep_and_a_list_never_sell_what_was_swept() -> None:
    event = make_event()
    held = [hold(event, seats=[f"hall-A-{number}"]) for number in range(1, 7)]
    checkouts = [plain(view) for view in held]
    Reservation.objects.filter(pk__in=[view.id for view in held[::2]]).update(expires_at=clock.now())

    def act(number: int) -> list[bool]:
        if number == 0:
            return [answer is not None for answer in decided(checkouts)]
        reservations.sweep(event_id=event.id, by="test")
        return []

    placed, *_ = values(storm(3, act))
    assert placed == [False, True] * 3
    assert set(Order.objects.values_list("reservation_id", flat=True)) == {view.id for view in held[1::2]}
