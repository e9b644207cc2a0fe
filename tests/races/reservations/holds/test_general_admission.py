"""General admission: one row, one change per transaction (rule 7), never touched by a sale (rule 12)."""

import pytest
from django.db import IntegrityError, connection, transaction

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.reservations import facade as reservations
from apps.reservations.holds import writes
from apps.reservations.lifecycle import release
from apps.reservations.models import GeneralAdmissionInventory, Reservation
from apps.reservations.staff.stock_summary import read_section_stock
from tests.support.factories import (
    assert_audit_clean,
    audit_breaches,
    backdate_deadline,
    hold,
    make_event,
    make_hold_request,
)
from tests.support.races import in_another_connection, rival_connection, statements
from tests.support.reservations.buyers import (
    begin_payment,
    cancel,
    confirm,
    get_general_admission,
    is_held,
    problem_of,
    run_sql,
    submit_hold,
)

pytestmark = pytest.mark.django_db(transaction=True)

take_general_admission = sql.load("apps.reservations", "take_general_admission")
lock_general_admission = sql.load("apps.reservations", "lock_general_admission")


def test_control_an_update_from_a_list_applies_one_of_several_changes_to_a_row() -> None:
    """Rule 7, the naive way: UPDATE … FROM unnest(…) with a line per request.

    Three requests for one row, of 3, 4 and 5 tickets: the row changes once, by one of them. No error and no constraint
    reports it; the auditor does.
    """
    event = make_event(general_admission=100)
    section = get_general_admission().pk
    touched = take_general_admission.count(
        connection.cursor(), section_ids=[section, section, section], quantities=[3, 4, 5]
    )
    assert touched == 1
    assert get_general_admission().taken in (3, 4, 5)
    assert any(breach.startswith("I3") for breach in audit_breaches())
    assert reservations.free_by_event(events.section_slugs([event.id]))[event.id][section] > 100 - 12


def test_three_requests_for_one_row_change_it_by_their_sum_in_one_statement() -> None:
    event = make_event(general_admission=100)
    requests = [make_hold_request(event, ga_section="floor", ga_quantity=quantity) for quantity in (3, 4, 5)]
    with statements() as names:
        outcomes = reservations.hold(requests)
    assert [is_held(outcome) for outcome in outcomes] == [True, True, True]
    assert names.count("take_general_admission") == 1
    assert get_general_admission().taken == 12
    assert_audit_clean()


def test_a_sweep_releases_the_tickets_of_several_reservations_by_their_sum_in_one_statement() -> None:
    event = make_event(general_admission=100)
    for quantity in (3, 4, 5):
        backdate_deadline(hold(event, ga_section="floor", ga_quantity=quantity).id)
    with statements() as names:
        assert reservations.sweep() == reservations.SweepResult(3, 0, 12)
    assert names.count("release_general_admission") == 1
    assert names.index("lock_general_admission") > names.index("end_reservations")
    assert get_general_admission().taken == 0
    assert_audit_clean()


def test_a_write_that_misses_a_row_rolls_back_the_whole_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a lock ever failed, the number of rows written would reveal it: everything is rolled back and the error is
    raised."""
    event = make_event(general_admission=2)
    requests = [
        make_hold_request(event, ga_section="floor", ga_quantity=2),
        make_hold_request(event, seats=["hall-A-1"]),
    ]
    text = sql.check_rowcount("take_general_admission", take_general_admission.text + " AND false")
    without_stock = sql.Statement("take_general_admission", text)
    monkeypatch.setattr(writes, "_take_general_admission", without_stock)
    with pytest.raises(writes.RowCountMismatch):
        reservations.hold(requests)
    assert Reservation.objects.count() == 0
    assert_audit_clean()


def test_the_database_refuses_what_the_code_would_get_wrong() -> None:
    """The named constraints refuse wrong counts."""
    make_event(general_admission=5)
    for change, name in (
        ("taken = capacity + 1", "general_admission_never_oversold"),
        ("blocked = 6", "general_admission_never_oversold"),
        ("taken = -1", None),  # The column itself accepts no negative number.
    ):
        with pytest.raises(IntegrityError) as refused, transaction.atomic():
            run_sql(f"UPDATE reservations_generaladmissioninventory SET {change}")
        if name is not None:
            assert transactions.violated_constraint(refused.value) == name
    assert_audit_clean()


def test_a_sale_is_confirmed_while_the_general_admission_row_is_locked() -> None:
    """Rule 12, no conflict.

    H: a hold locks the section's row, and keeps it locked
    C: a payment confirms tickets of that section: touches no such row, waits for no lock
    """
    event = make_event(general_admission=10)
    view = begin_payment(hold(event, ga_section="floor", ga_quantity=4).id)
    with rival_connection() as keeper:
        keeper.set_autocommit(False)
        run_sql(lock_general_admission.text, {"section_ids": [get_general_admission().pk]}, using=keeper)
        with statements() as names, transactions.write(lock_ms=1):
            reservations.confirm(view.id, occurred_at=clock.now(), who="provider:test", why="test")
        keeper.rollback()
    assert not [name for name in names if "general_admission" in name]
    (floor,) = [one for one in read_section_stock(event.id) if one.section.is_general_admission]
    assert (floor.free, floor.held, floor.sold) == (6, 0, 4)
    assert_audit_clean(without_money=True)


def test_a_canceled_sale_releases_its_tickets_once_however_often_it_is_canceled() -> None:
    event = make_event(general_admission=10)
    view = begin_payment(hold(event, ga_section="floor", ga_quantity=4).id)
    confirm(view.id, clock.now())
    assert cancel(view.id).status == "canceled"
    assert cancel(view.id).status == "canceled"
    assert get_general_admission().taken == 0
    assert_audit_clean()


def test_a_sweep_is_bounded() -> None:
    event = make_event(general_admission=10)
    for _ in range(5):
        backdate_deadline(hold(event, ga_section="floor", ga_quantity=1).id)
    assert [reservations.sweep(limit=2).reservations for _ in range(4)] == [2, 2, 1, 0]
    assert release.SWEEP_MAX == 500
    assert_audit_clean()


def test_a_hold_sweeps_lapsed_tickets_that_it_needs() -> None:
    event = make_event(general_admission=4)
    backdate_deadline(hold(event, ga_section="floor", ga_quantity=4).id)
    assert problem_of(submit_hold(make_hold_request(event, ga_section="floor", ga_quantity=5))).extra == {
        "available": 4
    }
    assert is_held(submit_hold(make_hold_request(event, ga_section="floor", ga_quantity=4)))
    assert_audit_clean()


def test_of_two_holds_for_the_last_ticket_one_wins() -> None:
    """P: locks the row, reads 1 left, wants it
    Q: waits for the row
    P: takes it; COMMIT
    Q: has the lock, reads under it that none is left: sold out
    """
    from tests.support.races import rival_waiting_at

    event = make_event(general_admission=1)
    first, second = (make_hold_request(event, ga_section="floor", ga_quantity=1) for _ in range(2))
    with rival_waiting_at("take_general_admission", "before", lambda: submit_hold(second)) as rival:
        assert is_held(submit_hold(first))
    assert problem_of(rival.result()).type == "sold-out"
    assert GeneralAdmissionInventory.objects.get().taken == 1
    assert_audit_clean()


def test_control_a_count_checked_without_its_lock_is_oversold() -> None:
    """The naive way: read what is left, then write the new count.

    P: reads 0 taken of 1
    Q: reads 0 taken of 1; writes 1; COMMIT
    P: writes 1; COMMIT. Two buyers, one ticket, and a plausible count: the auditor, which sums the lines, reports it.
    """
    event = make_event(general_admission=1)
    other = hold(event, ga_section="floor", ga_quantity=1)  # Q's whole sale …
    run_sql("UPDATE reservations_generaladmissioninventory SET taken = 0")  # … which came after P's read.
    mine = make_hold_request(event, ga_section="floor", ga_quantity=1)
    assert is_held(in_another_connection(lambda: submit_hold(mine)))
    assert other.seat_count + 1 > get_general_admission().capacity
    assert any(breach.startswith("I3") for breach in audit_breaches())
