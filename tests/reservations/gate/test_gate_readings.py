"""A reading of the ledger and the changes around it: the gate counts each change exactly once, so it refuses no free
ticket, whenever the change commits and whenever it is reported."""

from collections.abc import Callable
from typing import Any

import pytest

from apps.events import facade as events
from apps.kernel import redis
from apps.reservations import facade as reservations
from apps.reservations.gate import rebuild
from apps.reservations.gate.gate_reconciliation import differences
from apps.reservations.lifecycle import after_commit, gate_counts
from apps.reservations.lifecycle.changes import Ended, Hold, StockChange
from apps.reservations.models import Reservation
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, make_event
from tests.support.races import rival_at
from tests.support.reservations.gates import (
    count_left,
    disable_expiry,
    is_refused,
    open_gate,
    read_gate_field,
    section_of,
)

pytestmark = pytest.mark.django_db(transaction=True)

PAIR = {"ga_section": "floor", "ga_quantity": 2}
LATER_THAN_ANY = 2**52
"""A transaction that no snapshot includes: the gate adds its change to every count, as it once added all of them."""


@pytest.fixture(autouse=True)
def _no_count_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    disable_expiry(monkeypatch)


@pytest.fixture
def floor() -> events.EventView:
    """Four tickets and nothing else."""
    return make_event(rows=0, general_admission=4)


def report_late(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], Any]) -> list[Any]:
    """Commit what `act` does; return the changes that would have been reported at once."""
    late: list[Any] = []
    with monkeypatch.context() as delayed:
        delayed.setattr(after_commit, name, late.extend)
        act()
    assert late
    return late


def release_oldest() -> None:
    reservations.release(Reservation.objects.filter(status="pending_payment").earliest("created_at").pk, "test")


# --- committed before the reading, reported after it ------------------------------------------------------------------


def commit_a_hold_before_the_reading(floor: events.EventView, monkeypatch: pytest.MonkeyPatch) -> Hold:
    """A buyer holds two of four tickets; the gate is reset and counts two; only now the hold is about to be
    reported."""
    open_gate(floor)
    (late,) = report_late(monkeypatch, "notify_held", lambda: hold(floor, **PAIR))
    open_gate(floor)
    assert count_left(floor) == 2
    return late


def test_a_hold_that_the_reading_includes_is_not_counted_again(
    floor: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = commit_a_hold_before_the_reading(floor, monkeypatch)
    after_commit.notify_held([late])
    assert count_left(floor) == 2
    assert not is_refused(floor, **PAIR)
    assert differences(floor.id) == []


def test_control_a_hold_counted_twice_refuses_free_tickets(
    floor: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = commit_a_hold_before_the_reading(floor, monkeypatch)
    after_commit.notify_held([late._replace(transaction_id=LATER_THAN_ANY)])
    assert is_refused(floor, **PAIR)
    assert differences(floor.id) == ["floor: the gate has 0 left, the ledger 2"]


def test_a_release_that_the_reading_includes_is_not_counted_again(
    floor: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(floor, **PAIR)
    open_gate(floor)
    late = report_late(monkeypatch, "notify_ended", release_oldest)
    open_gate(floor)
    after_commit.notify_ended(late)
    assert count_left(floor) == 4


def test_a_late_report_of_a_sweep_does_not_hide_another_overdue_reservation(
    floor: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two reservations are overdue. One is swept, and its tickets are held again; the gate is reset; only now the sweep
    is reported. The gate still knows that the other one may free tickets."""
    overdue = [hold(floor, **PAIR).id for _ in range(2)]
    for reservation_id in overdue:
        backdate_deadline(reservation_id)
    open_gate(floor)
    late = report_late(monkeypatch, "notify_ended", lambda: reservations.sweep(limit=1))
    hold(floor, **PAIR)
    open_gate(floor)
    after_commit.notify_ended(late)
    assert count_left(floor) == 0
    assert not is_refused(floor, **PAIR)


# --- reported between the reading and the opening ---------------------------------------------------------------------


def test_a_release_between_the_reading_and_the_opening_is_not_lost(floor: events.EventView) -> None:
    for _ in range(2):
        hold(floor, **PAIR)
    open_gate(floor)
    assert is_refused(floor, **PAIR)
    with rival_at("gate_free", "after", release_oldest):
        open_gate(floor)
    assert count_left(floor) == 2
    assert not is_refused(floor, **PAIR)
    assert differences(floor.id) == []


def test_control_a_reading_that_forgets_what_was_reported_meanwhile_refuses_free_tickets(
    floor: events.EventView,
) -> None:
    for _ in range(2):
        hold(floor, **PAIR)
    open_gate(floor)
    before = int(read_gate_field(floor, "change_count") or 0)

    def release_and_forget() -> None:
        release_oldest()
        redis.client().hset(gate_counts.keys(floor.id)[0], "change_count", before)

    with rival_at("gate_free", "after", release_and_forget):
        open_gate(floor)
    assert is_refused(floor, **PAIR)


def test_a_hold_between_the_reading_and_the_opening_is_counted(floor: events.EventView) -> None:
    hold(floor, **PAIR)
    open_gate(floor)
    with rival_at("gate_free", "after", lambda: hold(floor, **PAIR)):
        open_gate(floor)
    assert count_left(floor) == 0
    assert is_refused(floor, **PAIR)
    assert read_gate_field(floor, "wanted") == "1"


def test_a_change_before_the_reading_that_is_reported_during_it_is_counted_once(
    floor: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_gate(floor)
    late = report_late(monkeypatch, "notify_held", lambda: hold(floor, **PAIR))
    with rival_at("gate_free", "after", lambda: after_commit.notify_held(late)):
        open_gate(floor)
    assert count_left(floor) == 2


def test_a_hold_that_commits_after_the_reading_but_began_before_it_is_counted(floor: events.EventView) -> None:
    """The hold's transaction has its id and is running when the counts are read; a later one has committed already."""

    open_gate(floor)
    event = make_event("another", rows=0, general_admission=4)

    def read_while_it_runs() -> None:
        hold(event, ga_section="floor", ga_quantity=1)  # Its id is above the running one's.
        open_gate(floor)
        assert count_left(floor) == 4

    with rival_at("insert_lines", "after", read_while_it_runs):
        hold(floor, **PAIR)
    assert count_left(floor) == 2


def test_a_release_while_the_gate_begins_anew_is_not_lost(floor: events.EventView) -> None:
    """The gate is gone and begins with this reading. It exists before its counts are read, so the release reaches
    it."""
    for _ in range(2):
        hold(floor, **PAIR)
    with rival_at("gate_free", "after", release_oldest):
        open_gate(floor)
    assert count_left(floor) == 2
    assert not is_refused(floor, **PAIR)


def test_a_reading_during_which_more_changes_than_the_gate_keeps_does_not_come_into_force(
    floor: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        hold(floor, **PAIR)
    monkeypatch.setattr(gate_counts, "CHANGES_KEPT_MAX", 1)

    def release_both() -> None:
        release_oldest()
        release_oldest()

    with rival_at("gate_free", "after", release_both):
        assert rebuild.reset(floor.id) == "late"
    assert not is_refused(floor, **PAIR)
    assert rebuild.reset(floor.id) == "open"
    assert count_left(floor) == 4
    assert redis.client().llen(gate_counts.all_keys(floor.id)[2]) == 1


# --- changes of an unknown transaction --------------------------------------------------------------------------------


def test_of_an_unknown_transaction_only_what_was_freed_is_counted(floor: events.EventView) -> None:
    """Too high a count costs a query; too low a one would refuse free tickets. The gate asks for a reading."""
    taken = hold(floor, **PAIR)
    open_gate(floor)
    section = section_of(floor, "floor")
    after_commit.notify_stock_changed([StockChange(floor.id, {section: -2})])
    assert count_left(floor) == 2
    assert read_gate_field(floor, "wanted") == "1"
    after_commit.notify_ended([Ended(floor.id, taken.id, {section: 2})])
    assert count_left(floor) == 4
    open_gate(floor)
    assert count_left(floor) == 2
    assert_audit_clean()
