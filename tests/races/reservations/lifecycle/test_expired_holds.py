"""Seats past their deadline: the sweep, a payment and a new buyer may all compete for them at once (rule 9)."""

from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from apps.kernel import clock
from apps.kernel.db import sql
from apps.reservations import facade as reservations
from apps.reservations.holds import service
from apps.reservations.models import CleanupLog, Reservation, ReservationTransition
from tests.support.factories import (
    assert_audit_clean,
    audit_breaches,
    backdate_deadline,
    hold,
    join,
    make_event,
    make_hold_request,
)
from tests.support.races import (
    in_another_connection,
    rival_at,
    rival_connection,
    rival_waiting_at,
    run_at,
    statements,
    storm,
    values,
)
from tests.support.reservations.buyers import (
    begin_payment,
    confirm,
    get_general_admission,
    hold_with_retries,
    is_held,
    is_retryable,
    outcome_types,
    problem_of,
    run_sql,
    seat,
    submit_hold,
)

pytestmark = pytest.mark.django_db(transaction=True)

lock_seats_waiting = sql.load("apps.reservations", "lock_seats_waiting")
lock_reservation = sql.load("apps.reservations", "lock_reservation")


def lapsed_while_paying(event: object, **payload: object) -> reservations.ReservationView:
    """Create a reservation that is being paid and whose deadline passed a moment ago, within the grace period."""
    view = begin_payment(hold(event, **payload).id)  # type: ignore[arg-type]
    backdate_deadline(view.id)
    return view


TAKE_FROM_LAPSED = """
UPDATE reservations_seatinventory AS seat SET reservation_id = %s
FROM reservations_reservation AS owner
WHERE owner.id = seat.reservation_id AND owner.status = 'paying' AND owner.pay_deadline <= clock_timestamp()
  AND seat.seat_id = %s
"""


def test_control_taking_a_lapsed_seat_inside_the_hold_sells_it_twice() -> None:
    """The naive way: find a lapsed reservation in the batch, and take its seat there.

    C: a payment in time; locks the reservation, and sets it to confirmed
    H: UPDATE seat … FROM reservation … WHERE paying and past its deadline
       it reads the reservation's old row version: H waits for no lock, takes the seat, and commits
    C: COMMIT. One seat, two owners; the auditor names it.
    """
    event = make_event()
    view = lapsed_while_paying(event, seats=["hall-A-1"])
    other = hold(event, seats=["hall-A-2"])
    with transaction.atomic():
        lock_reservation.rows(connection.cursor(), reservation_id=view.id)
        run_sql(
            "UPDATE reservations_reservation SET status = 'confirmed', confirmed_at = now() WHERE id = %s", [view.id]
        )
        in_another_connection(lambda: run_sql(TAKE_FROM_LAPSED, [other.id, seat("hall-A-1").pk]))
    assert Reservation.objects.get(pk=view.id).status == "confirmed"
    assert seat("hall-A-1").reservation_id == other.id
    assert any(breach.startswith("I2") for breach in audit_breaches())


@pytest.mark.parametrize("line", ["all_lines", "lock_seats_waiting", "sell_seats", "insert_transitions"])
def test_a_new_buyer_never_gets_the_seat_of_a_payment_that_is_being_confirmed(line: str) -> None:
    """C: a payment in time locks the lapsed reservation, and proceeds to the named line
    H: wants the seat: held, by a reservation past its deadline; its sweep skips it, then waits for it until its lock
       timeout: the payment may yet be refused, so no final answer: try again
    C: COMMIT: confirmed, and the only owner
    H: again: the seat is sold
    """
    event = make_event()
    view = lapsed_while_paying(event, seats=["hall-A-1"])
    request = make_hold_request(event, seats=["hall-A-1"])
    with rival_at(line, "before", lambda: submit_hold(request)) as rival:
        assert confirm(view.id, clock.now()).status == "confirmed"
    assert problem_of(rival.result).type == "busy"
    assert problem_of(submit_hold(request)).extra == {"unavailable": ["hall-A-1"]}
    assert seat("hall-A-1").reservation_id == view.id
    assert_audit_clean(without_money=True)


@pytest.mark.parametrize("line", ["live_lines", "lock_seats_waiting", "end_reservations", "insert_cleanup_log"])
def test_a_payment_that_waited_for_the_sweep_takes_its_seat_again(line: str) -> None:
    """S: the sweep locks the lapsed reservation, and proceeds to the named line
    C: a payment in time wants to confirm it, and waits
    S: COMMIT: expired, the seat free
    C: reads expired, and the seat as free: confirmed
    """
    event = make_event(general_admission=3)
    view = lapsed_while_paying(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    occurred_at = clock.now()
    with rival_waiting_at(line, "before", lambda: confirm(view.id, occurred_at)) as rival:
        assert reservations.sweep().reservations == 1
    assert rival.result().status == "confirmed"
    assert (seat("hall-A-1").status, get_general_admission().taken) == (2, 2)
    assert_audit_clean(without_money=True)


@pytest.mark.parametrize("line", ["live_lines", "lock_seats_waiting", "end_reservations", "insert_cleanup_log"])
def test_a_hold_that_meets_the_sweep_is_not_refused(line: str, long_lock_wait: None) -> None:
    """S: the sweep locks the lapsed reservation, and proceeds to the named line
    H: wants the seat: held, by a reservation past its deadline; its own sweep skips what S has locked; decides again:
       still held; its next sweep waits for S
    S: COMMIT: expired, the seat free
    H: decides again: held
    """
    event = make_event()
    backdate_deadline(hold(event, seats=["hall-A-1"]).id)
    request = make_hold_request(event, seats=["hall-A-1"])
    with rival_waiting_at(line, "before", lambda: submit_hold(request)) as rival:
        assert reservations.sweep().reservations == 1
    assert is_held(rival.result())
    assert_audit_clean()


def test_a_sweep_that_commits_between_two_reads_of_a_hold_does_not_refuse_it() -> None:
    """H: reads the seat: held
    S: sweeps the reservation that held it; COMMIT
    H: reads what has lapsed: nothing any more. So it reads the seat again: free; held
    """
    event = make_event()
    backdate_deadline(hold(event, seats=["hall-A-1"]).id)
    request = make_hold_request(event, seats=["hall-A-1"])
    with rival_at("read_seats", "after", reservations.sweep) as rival:
        assert is_held(submit_hold(request))
    assert rival.result.seats == 1
    assert_audit_clean()


def test_a_sweep_that_commits_between_two_reads_does_not_refuse_best_available() -> None:
    event = make_event(rows=1, seats_per_row=2)
    backdate_deadline(hold(event, seats=["hall-A-1", "hall-A-2"]).id)
    request = make_hold_request(event, best_available={"section": "hall", "quantity": 2})
    with rival_at("free_seats", "after", reservations.sweep) as rival:
        assert is_held(submit_hold(request))
    assert rival.result.seats == 2
    assert_audit_clean()


def test_a_late_payment_whose_seat_a_new_buyer_holds_is_refused() -> None:
    """C: a payment in time locks the reservation: expired, its seat free
    H: wants the seat: free; held; COMMIT
    C: locks the seat: held by another buyer. The payment is refunded; the seat stays with the new buyer
    """
    event = make_event()
    view = lapsed_while_paying(event, seats=["hall-A-1"])
    occurred_at = clock.now()
    assert reservations.sweep().reservations == 1
    request = make_hold_request(event, seats=["hall-A-1"])
    with (
        rival_at("all_lines", "before", lambda: submit_hold(request)) as rival,
        pytest.raises(reservations.ReservationExpired),
    ):
        confirm(view.id, occurred_at)
    assert is_held(rival.result)
    assert seat("hall-A-1").reservation_id == rival.result.reservation_id
    assert_audit_clean()


def test_a_late_payment_takes_all_of_its_inventory_again_or_none() -> None:
    """The seat of the expired reservation is free, but one of its two tickets is taken: nothing is taken again."""
    event = make_event(general_admission=2)
    view = lapsed_while_paying(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    occurred_at = clock.now()
    reservations.sweep()
    hold(event, ga_section="floor", ga_quantity=1)
    with pytest.raises(reservations.ReservationExpired):
        confirm(view.id, occurred_at)
    assert (seat("hall-A-1").status, get_general_admission().taken) == (0, 1)
    assert_audit_clean()


def test_the_sweep_skips_a_reservation_whose_payment_began_in_the_last_moment() -> None:
    """P: begins to pay, in time; the hold's deadline passes before it commits
    S: skips the reservation
    P: COMMIT: the payment's deadline is in force
    S: nothing has lapsed
    """
    view = hold(make_event(), seats=["hall-A-1"])
    swept: list[reservations.SweepResult] = []

    def pass_deadline_and_sweep() -> None:
        run_sql("UPDATE reservations_reservation SET expires_at = clock_timestamp() WHERE id = %s", [view.id])
        swept.append(in_another_connection(reservations.sweep))

    with run_at("insert_transitions", "before", pass_deadline_and_sweep):
        begin_payment(view.id)
    swept.append(reservations.sweep())
    assert [result.reservations for result in swept] == [0, 0]
    assert reservations.get_reservation(view.id).status == "paying"
    assert_audit_clean()


def test_two_concurrent_sweeps_end_each_reservation_once() -> None:
    """A: locks what has lapsed, and proceeds to free its seats
    B: skips all of it without waiting: nothing to do
    """
    event = make_event(general_admission=4)
    for number in range(1, 5):
        backdate_deadline(hold(event, seats=[f"hall-A-{number}"], ga_section="floor", ga_quantity=1).id)
    with rival_at("free_taken_seats", "before", reservations.sweep) as rival:
        assert reservations.sweep() == reservations.SweepResult(4, 4, 4)
    assert rival.result == reservations.SweepResult(0, 0, 0)
    assert_audit_clean()


def test_concurrent_sweeps_release_everything_once() -> None:
    """Eight sweeps of three reservations at a time, until nothing is left: forty ended, each by exactly one sweep."""
    event = make_event(rows=4, seats_per_row=10, general_admission=40)
    ended = [
        hold(event, seats=[f"hall-{row}-{number}"], ga_section="floor", ga_quantity=1).id
        for row in "ABCD"
        for number in range(1, 11)
    ]
    Reservation.objects.update(expires_at=clock.now())

    def sweep(_: int) -> int:
        total = 0
        while count := reservations.sweep(limit=3).reservations:
            total += count
        return total

    # A sweep that finds everything left locked by others stops: together they end everything, nothing twice.
    assert sum(values(storm(8, sweep))) == len(ended)
    assert set(Reservation.objects.values_list("status", flat=True)) == {"expired"}
    assert ReservationTransition.objects.filter(to_status="expired").count() == len(ended)
    logged = CleanupLog.objects.values_list("seats_released", "general_admission_released")
    assert [sum(column) for column in zip(*logged, strict=True)] == [40, 40]
    assert get_general_admission().taken == 0
    assert_audit_clean()


def test_a_storm_over_lapsed_seats_leaves_each_with_one_owner() -> None:
    """Ten seats and ten tickets past their deadline, within the grace period: for each a payment, a release, a new
    buyer and a sweep, all at once. Each has exactly one winner; no deadlock, and no thread hangs."""
    event = make_event(rows=1, seats_per_row=10, general_admission=10)
    views = [
        lapsed_while_paying(event, seats=[f"hall-A-{number}"], ga_section="floor", ga_quantity=1)
        for number in range(1, 11)
    ]
    occurred_at = clock.now()
    requests = [
        make_hold_request(event, seats=[f"hall-A-{number}"], ga_section="floor", ga_quantity=1)
        for number in range(1, 11)
    ]

    def compete(number: int) -> str:
        kind, index = divmod(number, 10)
        match kind:
            case 0:
                return outcome_of_payment(views[index].id, occurred_at)
            case 1:
                (kind_of,) = outcome_types([hold_with_retries(requests[index])])
                return kind_of
            case 2:
                reservations.sweep(limit=2)
                return "swept"
            case _:
                try:
                    return reservations.release(views[index].id, who="test").status
                except reservations.PaymentInProgress:
                    return "in progress"

    outcomes = values(storm(40, compete))
    for index in range(10):
        assert not (outcomes[index] == "confirmed" and outcomes[10 + index] == "held"), index
        owner = seat(f"hall-A-{index + 1}").reservation_id
        assert (owner == views[index].id) == (outcomes[index] == "confirmed")
        assert (owner == requests[index].reservation_id) == (outcomes[10 + index] == "held")
    assert_audit_clean(without_money=True)


def outcome_of_payment(reservation_id: UUID, occurred_at: object) -> str:
    try:
        return str(confirm(reservation_id, occurred_at).status)
    except reservations.ReservationExpired:
        return "refunded"


def test_a_sweep_without_its_locks_does_not_affect_the_winners_of_the_hold() -> None:
    """K: keeps the lock of a lapsed reservation's seat
    H: two requests; the first wins and is committed; the second wants the lapsed seat: the sweep waits for K until its
       lock timeout
    H: the winner gets its hold; the other is asked to try again
    """
    event = make_event()
    backdate_deadline(hold(event, seats=["hall-A-1"]).id)
    winner, loser = make_hold_request(event, seats=["hall-A-2"]), make_hold_request(event, seats=["hall-A-1"])
    with rival_connection() as keeper:
        keeper.set_autocommit(False)
        run_sql(lock_seats_waiting.text, {"seat_ids": [seat("hall-A-1").pk]}, using=keeper)
        won, lost = reservations.hold([winner, loser])
        keeper.rollback()
    assert is_held(won)
    assert problem_of(lost).type == "busy"
    assert is_held(submit_hold(make_hold_request(event, seats=["hall-A-1"])))
    assert_audit_clean()


def test_a_hold_sweeps_only_after_its_own_transaction() -> None:
    """No statement of the sweep runs before the winners' answers are written."""
    event = make_event()
    backdate_deadline(hold(event, seats=["hall-A-1"]).id)
    requests = [make_hold_request(event, seats=["hall-A-2"]), make_hold_request(event, seats=["hall-A-1"])]
    with statements() as names:
        outcomes = reservations.hold(requests)
    assert outcome_types(outcomes) == ["held", "held"]
    assert names.index("remember_answers") < names.index("lock_reservations_skipping")
    assert names.count("remember_answers") == 2
    assert_audit_clean()


def test_a_buyer_whose_lapsed_reservation_is_being_confirmed_cannot_hold_a_second_one() -> None:
    """C: a payment in time locks the buyer's lapsed reservation
    H: the same admission wants other seats: its live reservation is past its deadline; the sweep cannot lock it
    H: one live reservation per admission, and this one is being decided: try again
    C: COMMIT: confirmed; the admission is completed
    """
    event = make_event()
    entry = join(event)
    view = lapsed_while_paying(event, entry=entry, seats=["hall-A-1"])
    request = make_hold_request(event, entry, seats=["hall-B-1"])
    with rival_at("sell_seats", "before", lambda: submit_hold(request)) as rival:
        confirm(view.id, clock.now())
    assert problem_of(rival.result).type == "busy"
    assert problem_of(submit_hold(request)).type == "admission-expired"
    assert_audit_clean(without_money=True)


def test_a_hold_short_of_tickets_that_a_rival_is_sweeping_is_asked_to_try_again() -> None:
    """H: wants a ticket that only lapsed reservations hold; sweeps some, which a rival has ended just before
    H: still short at the end; asked to try again, since the next sweep frees the others
    """
    event = make_event(general_admission=9)
    for age in range(9):
        backdate_deadline(hold(event, ga_section="floor", ga_quantity=1).id, seconds=100 - age)

    def rival_sweeps_first(*, event_id: int, **_: Any) -> reservations.SweepResult:
        return reservations.SweepResult(0, 0, 0, found=1)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(service, "sweep", rival_sweeps_first)
        outcome = submit_hold(make_hold_request(event, ga_section="floor", ga_quantity=1))
    assert is_retryable(outcome), outcome
    assert is_held(submit_hold(make_hold_request(event, seats=["hall-A-9"])))
    assert_audit_clean()


def test_a_sweep_does_not_wait_long_for_a_locked_queue_entry() -> None:
    """S: has ended a lapsed reservation whose queue entry is locked: its slot is not freed now, but at its own
    deadline"""
    event = make_event()
    entry = join(event)
    backdate_deadline(hold(event, entry, seats=["hall-A-1"]).id)
    with rival_connection() as keeper:
        run_sql("BEGIN", using=keeper)
        run_sql("SELECT 1 FROM queue_queueentry WHERE id = %s FOR NO KEY UPDATE", [entry.id], using=keeper)
        assert reservations.sweep(lock_ms=50).reservations == 1
    assert seat("hall-A-1").status == 0
