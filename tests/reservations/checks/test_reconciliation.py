"""The reconciler finds each planted difference, reports it in one line, and repairs it if no buyer loses anything by
that; a healthy system under load has none."""

import dataclasses
import threading
from collections.abc import Callable
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command

from apps.kernel import clock
from apps.kernel.checks import reconciler
from apps.kernel.models import ReconcileRun
from apps.queue.models import QueueEntry
from apps.reservations import facade as reservations
from apps.reservations.checks import reconciliation as checks
from apps.reservations.models import (
    BlockedFor,
    GeneralAdmissionInventory,
    InventoryChange,
    Reservation,
    ReservationLine,
    ReservationTransition,
    SeatInventory,
)
from tests.support.factories import (
    assert_audit_clean,
    audit_breaches,
    backdate_deadline,
    hold,
    join,
    make_event,
    make_hold_request,
)
from tests.support.races import rival_at, storm, values
from tests.support.reservations.buyers import (
    begin_payment,
    confirm,
    get_general_admission,
    is_held,
    run_sql,
    seat,
    submit_hold,
)


def reconcile(*, repair: bool = False) -> list[reconciler.Outcome]:
    """Return every difference found, with its outcome; no check failed."""
    findings = reconciler.run(repair_by="test" if repair else "")
    assert not [finding.failure for finding in findings if finding.failure]
    return [outcome for finding in findings for outcome in finding.outcomes]


def kinds(outcomes: list[reconciler.Outcome]) -> set[str]:
    return {outcome.difference.kind for outcome in outcomes}


def owner_of(guid: str) -> Reservation:
    return Reservation.objects.get(pk=seat(guid).reservation_id)


def end_without_releasing(reservation: Reservation) -> None:
    """Cancel it by hand: header and ledger record that, its lines, seats and tickets do not."""
    Reservation.objects.filter(pk=reservation.pk).update(status="canceled", ended_at=clock.now())
    ReservationTransition.objects.create(
        reservation=reservation, from_status=reservation.status, to_status="canceled", who="hand", at=clock.now()
    )


@pytest.fixture
def sale(db: None) -> None:
    """A live reservation of hall-A-1 and two tickets, another of hall-B-1, and a sale of hall-C-1 and one ticket."""
    event = make_event(general_admission=10)
    hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    hold(event, seats=["hall-B-1"])
    bought = hold(event, seats=["hall-C-1"], ga_section="floor", ga_quantity=1)
    confirm(begin_payment(bought.id).id, clock.now())
    assert reconcile() == []


# --- planted in a test's transaction and rolled back with it -------------------------------------------------------


def a_free_seat_with_a_buyer() -> None:
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(status=0, reservation_id=None)


def a_blocked_seat_with_a_buyer() -> None:
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(
        status=3, reservation_id=None, blocked_for=BlockedFor.OUT_OF_USE
    )


def a_seat_that_names_another_reservation() -> None:
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(reservation_id=owner_of("hall-B-1").pk)


def a_sold_seat_with_status_held() -> None:
    SeatInventory.objects.filter(seat__guid="hall-C-1").update(status=1)


def a_seat_held_for_a_missing_reservation() -> None:
    SeatInventory.objects.filter(seat__guid="hall-D-1").update(status=1, reservation_id=uuid4())


def a_seat_without_a_line() -> None:
    SeatInventory.objects.filter(seat__guid="hall-D-1").update(status=1, reservation_id=owner_of("hall-B-1").pk)


def an_ended_reservation_that_still_holds() -> None:
    end_without_releasing(owner_of("hall-A-1"))


def an_ended_reservation_whose_tickets_were_released() -> None:
    end_without_releasing(owner_of("hall-A-1"))
    GeneralAdmissionInventory.objects.update(taken=1)


def lines_that_hold_nothing() -> None:
    ReservationLine.objects.filter(reservation=owner_of("hall-C-1")).update(live=False)


def a_live_reservation_that_lost_everything() -> None:
    ReservationLine.objects.filter(reservation=owner_of("hall-C-1")).update(live=False)
    SeatInventory.objects.filter(seat__guid="hall-C-1").update(status=0, reservation_id=None)
    GeneralAdmissionInventory.objects.update(taken=2)


def too_few_taken() -> None:
    GeneralAdmissionInventory.objects.update(taken=1)


def too_many_taken() -> None:
    GeneralAdmissionInventory.objects.update(taken=9)


def a_seat_without_its_row() -> None:
    SeatInventory.objects.filter(seat__guid="hall-E-9").delete()


def a_held_seat_without_its_row() -> None:
    # By SQL, since Django knows that a line refers to it; the database has no foreign key there.
    run_sql("DELETE FROM reservations_seatinventory WHERE seat_id = %s", [seat("hall-A-1").pk])


def a_hold_that_is_not_swept() -> None:
    backdate_deadline(owner_of("hall-A-1").pk, seconds=120)


def a_hold_that_cannot_be_swept() -> None:
    backdate_deadline(owner_of("hall-A-1").pk, seconds=120)
    a_seat_that_names_another_reservation()
    GeneralAdmissionInventory.objects.update(taken=0)


@pytest.mark.parametrize(
    ("plant", "kind", "words"),
    [
        (a_free_seat_with_a_buyer, "hold_without_seat", "concert/hall: seat hall-A-1 is available, and"),
        (a_blocked_seat_with_a_buyer, "hold_without_seat", "concert/hall: seat hall-A-1 is blocked, and"),
        (a_seat_that_names_another_reservation, "hold_without_seat", "(pending_payment) holds it"),
        (a_sold_seat_with_status_held, "seat_status", "hall-C-1 is held, and its reservation"),
        (a_seat_held_for_a_missing_reservation, "seat_without_hold", "(which does not exist), and no line holds it"),
        (a_seat_without_a_line, "seat_without_hold", "seat hall-D-1 is held for reservation"),
        (an_ended_reservation_that_still_holds, "hold_of_ended", "is canceled, and 2 of its 2 lines are still live"),
        (an_ended_reservation_whose_tickets_were_released, "hold_of_ended", "2 of its 2 lines are still live"),
        (lines_that_hold_nothing, "holds_nothing", "is confirmed, and 2 of its 2 lines are not live"),
        (a_live_reservation_that_lost_everything, "holds_nothing", "2 of its 2 lines are not live"),
        (too_few_taken, "places", "concert/floor: 1 of 10 tickets are counted as taken, the lines have 3"),
        (too_many_taken, "places", "9 of 10 tickets are counted as taken, the lines have 3"),
        (a_seat_without_its_row, "inventory_missing", "concert/hall: 1 of 50 seats have no inventory row"),
        (a_held_seat_without_its_row, "inventory_missing", "1 of 50 seats have no inventory row"),
        (a_hold_that_is_not_swept, "overdue", "(pending_payment) still holds 3 tickets"),
        (a_hold_that_cannot_be_swept, "overdue", "s after its deadline"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_planted_difference_is_found_reported_and_repaired(
    sale: None, plant: Callable[[], None], kind: str, words: str
) -> None:
    plant()
    first = [outcome for outcome in reconcile() if outcome.difference.kind == kind]
    assert [outcome.state for outcome in first] == ["reported"]
    assert words in first[0].line
    assert "\n" not in first[0].line
    assert kinds(reconcile()) >= {kind}, "a report alone changes nothing"
    live_before = {line.pk: line.live for line in ReservationLine.objects.filter(reservation__status="confirmed")}
    repaired = reconcile(repair=True)
    assert {outcome.state for outcome in repaired} <= {"repaired", "gone"}, [outcome.line for outcome in repaired]
    assert reconcile() == []
    assert_audit_clean(without_money=True)
    # The buyer who has paid has lost nothing.
    assert set(live_before) == set(
        ReservationLine.objects.filter(reservation__status="confirmed", live=True).values_list("pk", flat=True)
    )
    assert seat("hall-C-1").status == 2
    if kind != "overdue":
        change = InventoryChange.objects.filter(kind="repaired").first()
        assert change is not None
        assert change.who == "test"


def test_a_repair_takes_nothing_from_a_buyer_and_reports_the_manual_steps(sale: None) -> None:
    """The sale's lines are dead and its seat is another buyer's by now; a header counts more than its lines; the lines
    promise more tickets than there are."""
    run_sql("SET CONSTRAINTS ALL IMMEDIATE")
    run_sql("ALTER TABLE reservations_generaladmissioninventory DROP CONSTRAINT general_admission_never_oversold")
    sold, other = owner_of("hall-C-1"), owner_of("hall-B-1")
    ReservationLine.objects.filter(reservation=sold, seat__isnull=False).update(live=False)
    SeatInventory.objects.filter(seat__guid="hall-C-1").update(status=1, reservation_id=other.pk)
    ReservationLine.objects.filter(reservation=other).update(seat=seat("hall-C-1"))
    SeatInventory.objects.filter(seat__guid="hall-B-1").update(status=0, reservation_id=None)
    Reservation.objects.filter(pk=other.pk).update(seat_count=5)
    GeneralAdmissionInventory.objects.update(blocked=8, taken=1)
    states = {outcome.difference.kind: outcome for outcome in reconcile(repair=True)}
    assert {outcome.state for outcome in states.values()} == {"needs manual repair"}
    assert "is no longer free" in states["holds_nothing"].line
    assert "ask its buyer" in states["header"].line
    assert "manage.py compensate" in states["places"].line
    assert "manage.py compensate concert" in states["oversold_places"].line
    assert not InventoryChange.objects.exists()
    assert seat("hall-C-1").reservation_id == other.pk


def test_a_header_with_another_price_than_its_lines_is_reported_as_such(sale: None) -> None:
    Reservation.objects.filter(pk=owner_of("hall-C-1").pk).update(total_minor=1)
    (outcome,) = reconcile(repair=True)
    assert outcome.difference.kind == "price"
    assert "its header says 1; needs manual repair" in outcome.line
    assert Reservation.objects.get(pk=owner_of("hall-C-1").pk).total_minor == 1


def test_paid_tickets_whose_line_cannot_hold_again_stay_taken(sale: None) -> None:
    """The lines of a paid reservation are dead, and its seat is another's by now: a person must decide, and until then
    its ticket on the floor is not sold again."""
    bought, other = owner_of("hall-C-1"), owner_of("hall-B-1")
    ReservationLine.objects.filter(reservation=bought).update(live=False)
    SeatInventory.objects.filter(seat__guid="hall-C-1").update(status=1, reservation_id=other.pk)
    ReservationLine.objects.filter(reservation=other).update(seat=seat("hall-C-1"))
    SeatInventory.objects.filter(seat__guid="hall-B-1").update(status=0, reservation_id=None)
    taken = get_general_admission().taken
    lines = [outcome.line for outcome in reconcile(repair=True)]
    assert get_general_admission().taken == taken
    assert any(f"needs manual repair: reservation {bought.pk} may have lost its line" in line for line in lines), lines


def test_a_seat_blocked_after_its_repair_is_not_put_on_sale(sale: None) -> None:
    a_seat_held_for_a_missing_reservation()
    stale = [outcome.difference for outcome in reconcile() if outcome.difference.kind == "seat_without_hold"]
    reconcile(repair=True)
    blocked = SeatInventory.objects.get(pk=stale[0].about)
    SeatInventory.objects.filter(pk=blocked.pk).update(status=3, blocked_for=BlockedFor.HOUSE, reservation_id=None)
    assert checks._repair_seat(stale[0], "test") == reconciler.GONE
    assert SeatInventory.objects.get(pk=blocked.pk).blocked_for == BlockedFor.HOUSE


def test_a_live_hold_of_an_ended_admission_is_reported_and_not_changed(sale: None) -> None:
    QueueEntry.objects.filter(pk=owner_of("hall-B-1").entry_id).update(status="expired", ended_at=clock.now())
    QueueEntry.objects.filter(pk=owner_of("hall-A-1").entry_id).update(status="left", ended_at=clock.now())
    (outcome,) = reconcile(repair=True)
    assert outcome.difference.kind == "entries"
    assert str(owner_of("hall-B-1").pk) in outcome.line
    assert outcome.state == "needs manual repair"


def test_lines_without_a_reservation_hold_nothing_after_a_repair(sale: None) -> None:
    run_sql("DELETE FROM reservations_reservation WHERE id = %s", [owner_of("hall-A-1").pk])
    assert "hold_of_ended" in kinds(reconcile())
    assert {outcome.state for outcome in reconcile(repair=True)} <= {"repaired", "gone"}
    assert (seat("hall-A-1").status, get_general_admission().taken) == (0, 1)
    assert reconcile() == []


# --- under races ---------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_difference_that_is_gone_under_the_lock_is_not_repaired_again() -> None:
    """we: found "hall-A-1 is free, and R holds it" | rival: repairs it, R is paid | we: lock, read again: nothing to
    do. The repair as first planned would have made a sold seat a held one."""
    event = make_event()
    view = hold(event, seats=["hall-A-1"])
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(status=0, reservation_id=None)

    def rival() -> None:
        reconcile(repair=True)
        confirm(begin_payment(view.id).id, clock.now())

    with rival_at("reconcile_seat", "before", rival) as has_run:
        (outcome,) = reconcile(repair=True)
    assert has_run.has_run
    assert outcome.state == reconciler.GONE
    assert seat("hall-A-1").status == 2
    assert InventoryChange.objects.count() == 1
    assert_audit_clean(without_money=True)


@pytest.mark.django_db(transaction=True)
def test_a_new_holder_of_the_seat_is_locked_before_the_repair_decides() -> None:
    """we: read that hall-A-1 is held for a missing reservation | rival: frees it, and a buyer holds it | we: the
    buyer's reservation is not among the locked ones: start again, and find no difference."""
    event = make_event()
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(status=1, reservation_id=uuid4())
    held: list[reservations.ReservationView] = []

    def rival() -> None:
        reconcile(repair=True)
        held.append(hold(event, seats=["hall-A-1"]))

    with rival_at("reconcile_seat", "after", rival):
        (outcome,) = reconcile(repair=True)
    assert outcome.state == reconciler.GONE
    assert seat("hall-A-1").reservation_id == held[0].id
    assert_audit_clean()


@pytest.mark.django_db(transaction=True)
def test_control_two_reads_would_report_a_concurrent_hold_and_one_statement_does_not() -> None:
    """The control: the naive check reads the count, then the lines, and a hold commits between the two."""
    event = make_event(general_admission=10)
    hold(event, ga_section="floor", ga_quantity=1)
    ((taken,),) = run_sql("SELECT taken FROM reservations_generaladmissioninventory")
    with rival_at("reconcile_general_admission", "before", lambda: hold(event, ga_section="floor", ga_quantity=2)):
        assert reconcile() == []
    ((by_lines,),) = run_sql("SELECT sum(quantity) FROM reservations_reservationline WHERE live")
    assert (taken, by_lines) == (1, 3), "the naive check would have reported a difference"


@pytest.mark.django_db(transaction=True)
def test_a_healthy_system_has_no_differences_while_buyers_hold_release_pay_and_lapse() -> None:
    """Five buyers hold, release, pay and lapse against a sweep and against each other; the reconciler, with repairs,
    runs in a loop beside them and never finds anything."""
    event = make_event(rows=2, seats_per_row=5, general_admission=12)
    entries = [[join(event) for _ in range(4)] for _ in range(5)]
    over = threading.Event()
    found: list[str] = []

    def take_part(number: int) -> None:
        if number == 5:
            for _ in range(3):
                found.extend(outcome.line for outcome in reconcile(repair=True))
            while not over.is_set():
                found.extend(outcome.line for outcome in reconcile(repair=True))
            return
        try:
            for turn, entry in enumerate(entries[number]):
                _act(event, entry, number, turn)
        finally:
            if number == 0:
                over.set()

    values(storm(6, take_part))
    assert found == []
    assert reconcile() == []
    assert not InventoryChange.objects.exists()
    assert_audit_clean(without_money=True)


def _act(event: Any, entry: Any, number: int, turn: int) -> None:
    guid = f"hall-A-{1 + (number + turn) % 5}"
    outcome = submit_hold(make_hold_request(event, entry, seats=[guid], ga_section="floor", ga_quantity=2))
    if not is_held(outcome):
        return
    reservation_id: UUID = outcome.reservation_id  # type: ignore[union-attr]
    match turn % 3:
        case 0:
            reservations.release(reservation_id, who="test")
        case 1:
            backdate_deadline(reservation_id)
            reservations.sweep(by="test")
        case 2 if number == 0 and turn == 2:
            confirm(begin_payment(reservation_id).id, clock.now())
        case _:
            reservations.release(reservation_id, who="test")


# --- the command ---------------------------------------------------------------------------------------------------


def test_the_command_reports_that_there_is_no_difference(sale: None) -> None:
    out = StringIO()
    call_command("reconcile", stdout=out)
    assert "reconcile: no difference" in out.getvalue()
    assert ReconcileRun.objects.get().left_count == 0


def test_the_command_reports_a_check_that_failed(sale: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(part: int | None) -> Any:
        raise RuntimeError("out of order")

    check = reconciler._checks["places"]
    monkeypatch.setitem(reconciler._checks, "places", dataclasses.replace(check, find=fail))
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("reconcile", stdout=out)
    assert "places     FAILED" in out.getvalue()
    assert "the check failed: out of order" in out.getvalue()
    assert "reconcile: 1 check FAILED, no difference found by the others" in out.getvalue()


def test_the_command_exits_1_for_a_difference_repaired_or_not_and_then_0(sale: None) -> None:
    too_many_taken()
    for arguments, words in (
        (["concert"], "1 difference ("),
        (["--repair"], "1 difference, 1 repaired, 0 left"),
    ):
        out = StringIO()
        with pytest.raises(SystemExit) as ended:
            call_command("reconcile", *arguments, stdout=out)
        assert ended.value.code == 1
        assert "concert/floor: 9 of 10 tickets are counted as taken, the lines have 3" in out.getvalue()
        assert words in out.getvalue()
    call_command("reconcile", stdout=StringIO())
    assert not [line for line in audit_breaches() if not line.startswith("I4")]


@pytest.mark.django_db
def test_the_command_refuses_an_unknown_event() -> None:
    with pytest.raises(CommandError, match="no published event"):
        call_command("reconcile", "nowhere\x00")
