"""The audit of every minute checks what has changed; the audit of everything alone finds raw edits."""

import uuid
from collections.abc import Callable

import pytest

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.kernel.models import AuditRun
from apps.reservations import facade as reservations
from apps.reservations.checks import invariants
from apps.reservations.models import (
    GeneralAdmissionInventory,
    Reservation,
    ReservationLine,
    ReservationTransition,
    SeatInventory,
)
from tests.support.batches import wait_until
from tests.support.factories import backdate_deadline, hold, join, make_event
from tests.support.races import rival_at

pytestmark = pytest.mark.django_db(transaction=True)

SALE = {"seats": ["hall-A-1"], "ga_section": "floor", "ga_quantity": 2}


@pytest.fixture
def event() -> events.EventView:
    return make_event(general_admission=100, per_buyer_max=5)


def audit_changes() -> list[str]:
    """Run the audit of every minute; return its breaches."""
    return breaches_of(auditor.run_on_changes_and_record())


def audit_everything() -> list[str]:
    return breaches_of(auditor.run_and_record())


def breaches_of(run: AuditRun) -> list[str]:
    assert run.unchecked_count == 0, run.report
    return [f"{found['invariant']}: {breach}" for found in run.report for breach in found["breaches"]]


def raise_quantity() -> None:
    ReservationLine.objects.filter(seat=None).update(quantity=3)


FAULTS: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "the seat of a hold is free": (
        lambda: SeatInventory.objects.filter(seat__guid="hall-A-1").update(status=0, reservation_id=None),
        ("I2",),
    ),
    "the seat of a hold is sold": (
        lambda: SeatInventory.objects.filter(seat__guid="hall-A-1").update(status=2),
        ("I2",),
    ),
    "tickets are taken without lines": (lambda: GeneralAdmissionInventory.objects.update(taken=7), ("I3", "I10")),
    "a line has more than its header": (raise_quantity, ("I1", "I3")),
    "a buyer is above the cap": (lambda: Reservation.objects.update(seat_count=6), ("I5",)),
    "a status lacks its ledger entry": (
        lambda: Reservation.objects.update(status="confirmed", confirmed_at=clock.now()),
        ("I8",),
    ),
    "a live reservation has a dead line": (lambda: ReservationLine.objects.update(live=False), ("I1", "I10", "I2")),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_comes_with_a_change_is_found_within_the_minute(event: events.EventView, name: str) -> None:
    """The fault is in the rows that a hold has just written. It stays a finding until it is repaired, though nothing
    changes any more."""
    plant, says = FAULTS[name]
    assert audit_changes() == []
    hold(event, **SALE)
    plant()
    found = audit_changes()
    assert any(line.startswith(says) for line in found), found
    assert audit_changes() == found


@pytest.mark.parametrize("name", FAULTS)
def test_a_raw_edit_is_found_by_the_audit_of_everything_alone(event: events.EventView, name: str) -> None:
    plant, says = FAULTS[name]
    hold(event, **SALE)
    audit_until_all_is_checked()
    assert audit_everything() == []
    plant()
    assert audit_changes() == []
    found = audit_everything()
    assert any(line.startswith(says) for line in found), found
    assert auditor.get_status().color == "red"


def audit_until_all_is_checked() -> None:
    """Audit the changes until the horizon lies after the last one. (Transactions of other tests may hold it back.)"""
    audit_changes()
    last = ReservationTransition.objects.latest("id").transaction_id

    def is_past() -> bool:
        assert audit_changes() == []
        return horizon_of_latest() > last

    wait_until(is_past, "the horizon lies after the last change")


def horizon_of_latest() -> int:
    horizon = AuditRun.objects.filter(scope=AuditRun.Scope.CHANGES).latest("started_at").horizon
    assert horizon is not None
    return horizon


def test_a_transaction_that_commits_late_is_not_missed(event: events.EventView) -> None:
    """A hold has its transaction's id and its ledger entry; another hold commits, and an audit runs; then the first one
    commits, with an earlier id and an earlier time than what the audit has seen."""

    def rival() -> None:
        hold(event, seats=["hall-B-1"])
        assert audit_changes() == []

    audit_changes()
    with rival_at("insert_transitions", "after", rival):
        late = hold(event, **SALE)
    entries = ReservationTransition.objects.order_by("id")
    assert [entry.reservation_id == late.id for entry in entries] == [True, False], "the late one has the lower id"
    ReservationLine.objects.filter(reservation_id=late.id).update(live=False)
    assert any(str(late.id) in line for line in audit_changes())


def test_control_a_watermark_by_id_misses_a_transaction_that_commits_late(event: events.EventView) -> None:
    seen: list[int] = []

    def rival() -> None:
        hold(event, seats=["hall-B-1"])
        seen.append(ReservationTransition.objects.latest("id").pk)

    with rival_at("insert_transitions", "after", rival):
        late = hold(event, **SALE)
    assert not ReservationTransition.objects.filter(id__gt=seen[0], reservation_id=late.id).exists()


def test_a_deadline_that_passes_is_found_though_it_writes_nothing(event: events.EventView) -> None:
    held = hold(event, **SALE)
    audit_until_all_is_checked()
    backdate_deadline(held.id, seconds=60)
    assert any("overdue" in line for line in audit_changes())


def test_a_restored_database_begins_anew(event: events.EventView) -> None:
    """Its transactions are counted by another cluster: the stored horizon says nothing about them."""
    audit_changes()
    AuditRun.objects.update(cluster=1, horizon=2**60)
    hold(event, **SALE)
    assert audit_changes() == []
    assert horizon_of_latest() < 2**60
    hold(event, seats=["hall-B-1"])
    ReservationLine.objects.filter(seat__seat__guid="hall-B-1").update(live=False)
    assert audit_changes() != []


def test_a_large_section_is_summed_by_the_audit_of_everything_alone(
    event: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invariants, "LINES_MAX", 2)
    audit_changes()
    hold(event, ga_section="floor", ga_quantity=1)
    GeneralAdmissionInventory.objects.update(taken=7)
    assert audit_changes() != []
    hold(event, ga_section="floor", ga_quantity=1)
    assert audit_changes() == []
    assert any(line.startswith("I3") for line in audit_everything())


def test_more_changes_than_one_audit_reads_are_left_for_the_next_ones(
    event: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(event, seats=["hall-A-1"])
    audit_until_all_is_checked()
    monkeypatch.setattr(auditor, "CHANGES_MAX", 2)
    for _ in range(5):
        hold(event, ga_section="floor", ga_quantity=1)
    last = hold(event, seats=["hall-B-1"])
    ReservationLine.objects.filter(reservation_id=last.id).update(live=False)
    first = auditor.run_on_changes_and_record()
    assert (first.breach_count, first.unchecked_count) == (0, 1), "the last hold was not read"
    assert auditor.get_status().color == "amber"

    def is_found() -> bool:
        return any(str(last.id) in line for found in auditor.catch_up().report for line in found["breaches"])

    wait_until(is_found, "the breach is found")


def test_a_breach_that_stands_does_not_hide_later_changes(
    event: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(event, seats=["hall-A-1"])
    audit_until_all_is_checked()
    first = hold(event, seats=["hall-B-1"])
    ReservationLine.objects.filter(reservation_id=first.id).update(live=False)
    monkeypatch.setattr(auditor, "CHANGES_MAX", 3)
    for _ in range(4):
        hold(event, ga_section="floor", ga_quantity=1)
    last = hold(event, seats=["hall-B-2"])
    ReservationLine.objects.filter(reservation_id=last.id).update(live=False)

    def are_found() -> bool:
        lines = str([found["breaches"] for found in auditor.catch_up().report])
        return str(first.id) in lines and str(last.id) in lines

    wait_until(are_found, "both breaches are found")


def test_an_audit_reads_a_transaction_whole_however_many_changes_it_has(
    event: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(event, seats=["hall-A-1"])
    audit_until_all_is_checked()
    monkeypatch.setattr(auditor, "CHANGES_MAX", 2)
    wanted = {"ga_section": "floor", "ga_quantity": 1}
    reservations.hold([reservations.resolve(event, join(event), wanted, uuid.uuid4().hex) for _ in range(6)])
    entries = ReservationTransition.objects.order_by("-id")[:6]
    assert len({entry.transaction_id for entry in entries}) == 1
    audit_until_all_is_checked_in_parts()


def audit_until_all_is_checked_in_parts() -> None:
    last = ReservationTransition.objects.latest("id").transaction_id

    def is_past() -> bool:
        run = auditor.catch_up()
        assert run.breach_count == 0, run.report
        return run.is_clean and horizon_of_latest() > last

    wait_until(is_past, "the horizon lies after the last change")
