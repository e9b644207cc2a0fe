"""The closed loop: a room's rate follows the health of the system, between its floor and the operator's rate."""

import dataclasses
import logging
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connection
from django.db.models import F
from hypothesis import given
from hypothesis import strategies as st

from apps.events.facade import EventView
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.observability import health_signals
from apps.queue import errors
from apps.queue.models import RateChange, RoomAct, WaitingRoom
from apps.queue.room import health, operations, rate_control
from apps.queue.room.gatekeeper import Gatekeeper
from apps.queue.room.health import Health, HealthAssessment, Limits, assess_health
from apps.queue.room.rate_control import RateController, StepSizes, bounds, next_rate
from tests.kernel.observability.test_health_signals import row as signal_row
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean, join
from tests.support.queue.rooms import EPOCH, join_waiting_entries, make_room, open_now
from tests.support.races import ConcurrentCall, rival_at, run_at

LIMITS = Limits(
    hold_seconds_max=0.8,
    payment_fault_share_max=0.2,
    worker_lag_seconds_max=10,
    lock_waits_max=4,
    lock_wait_ms=200,
    measurements_min=5,
    signal_age_seconds_max=5,
)
STEPS = StepSizes(up_share=0.05, down_factor=0.7)
WELL = assess_health(Health(0.1, 0.0, 0.0, 0), LIMITS)
ILL = assess_health(Health(1.8, 0.0, 0.0, 0), LIMITS)
database = pytest.mark.django_db(transaction=True)


# --- the controller, without a database -----------------------------------------------------------------------------

measured = st.builds(
    Health,
    hold_seconds=st.none() | st.floats(0, 60),
    payment_fault_share=st.none() | st.floats(0, 1),
    worker_lag_seconds=st.none() | st.floats(0, 600),
    lock_waits=st.none() | st.integers(0, 200),
)
rates = st.integers(1, operations.RATE_MAX)
floors = st.none() | st.integers(1, operations.RATE_MAX)


def is_over_limit(found: Health) -> bool:
    pairs = (
        (found.hold_seconds, LIMITS.hold_seconds_max),
        (found.payment_fault_share, LIMITS.payment_fault_share_max),
        (found.worker_lag_seconds, LIMITS.worker_lag_seconds_max),
        (found.lock_waits, LIMITS.lock_waits_max),
    )
    return any(value is not None and value > most for value, most in pairs)


@given(st.lists(measured, max_size=60), rates, floors, st.floats(0.01, 200_000))
def test_for_any_measurements_the_rate_stays_within_its_bounds_and_every_change_has_a_reason(
    course: list[Health], rate_per_second: int, rate_floor: int | None, rate: float
) -> None:
    floor, ceiling = bounds(rate_per_second, rate_floor)
    assert 1 <= floor <= ceiling == rate_per_second
    for found in course:
        change = next_rate(rate, floor, ceiling, assess_health(found, LIMITS), STEPS)
        if change is None:
            assert floor <= rate <= ceiling
            continue
        to, reason = change
        assert floor <= to <= ceiling
        assert to != rate
        assert 10 < len(reason) <= 200
        rate = to


@given(measured, rates, floors, st.floats(0, 1))
def test_the_rate_falls_when_any_signal_is_over_its_limit_and_never_rises(
    found: Health, rate_per_second: int, rate_floor: int | None, share: float
) -> None:
    floor, ceiling = bounds(rate_per_second, rate_floor)
    rate = round(floor + (ceiling - floor) * share, 2)
    verdict = assess_health(found, LIMITS)
    change = next_rate(rate, floor, ceiling, verdict, STEPS)
    assert bool(verdict.complaints) == is_over_limit(found)
    if is_over_limit(found):
        assert (change is None) == (rate == floor)
        if change is not None:
            assert change[0] == pytest.approx(max(floor, rate * 0.7), abs=0.01)
            assert all(complaint in change[1] for complaint in verdict.complaints)
    elif not verdict.is_calm:
        assert change is None, "between the two limits it stays where it is"
    else:
        assert (change is None) == (rate == ceiling)
        if change is not None:
            assert change[0] == pytest.approx(min(ceiling, rate + 0.05 * ceiling), abs=0.01)


@given(rates, floors)
def test_the_rate_recovers_from_the_floor_in_equal_steps_and_stops_at_the_ceiling(
    rate_per_second: int, rate_floor: int | None
) -> None:
    floor, ceiling = bounds(rate_per_second, rate_floor)
    course, rate = [floor], floor
    while (change := next_rate(rate, floor, ceiling, WELL, STEPS)) is not None:
        rate = change[0]
        course.append(rate)
        assert len(course) <= 22
    assert rate == ceiling
    ups = [after - before for before, after in pairwise(course)]
    assert all(up == pytest.approx(0.05 * ceiling, abs=0.011) for up in ups[:-1])


def test_a_reason_gives_the_measured_value_and_the_limit() -> None:
    assert ILL.complaints == ("holds take 1.8 s at the 95th percentile, more than 0.8 s",)
    verdict = assess_health(Health(2.25, 0.375, 131.0, 7), LIMITS)
    assert verdict.complaints == (
        "holds take 2.2 s at the 95th percentile, more than 0.8 s",
        "37.5 % of the charges failed, more than 20 %",
        "messages wait 131 s, more than 10 s",
        "7 sessions wait for locks, more than 4",
    )
    assert not verdict.is_calm


def test_a_missing_signal_does_not_lower_the_rate_and_is_reported() -> None:
    verdict = assess_health(Health(worker_lag_seconds=0, lock_waits=0), LIMITS)
    assert verdict == HealthAssessment(
        (), True, "holds not measured, charges not measured, messages wait 0 s, 0 sessions wait for locks"
    )


def test_just_below_a_limit_the_rate_neither_falls_nor_rises() -> None:
    verdict = assess_health(Health(hold_seconds=0.7), LIMITS)
    assert (verdict.complaints, verdict.is_calm) == ((), False)
    assert next_rate(5, 1, 10, verdict, STEPS) is None


@pytest.mark.parametrize(
    ("rate", "floor", "expected"), [(50, None, (5, 50)), (5, None, (1, 5)), (50, 20, (20, 50)), (10, 20, (10, 10))]
)
def test_the_floor_is_the_operators_or_a_tenth_and_at_least_one_a_second(
    rate: int, floor: int | None, expected: tuple[float, float]
) -> None:
    assert bounds(rate, floor) == expected


# --- settings -------------------------------------------------------------------------------------------------------


def test_the_default_settings_are_consistent() -> None:
    assert [error.id for error in run_checks() if error.id and error.id.startswith("queue.")] == []


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PACE_HOLD_SECONDS_MAX", 0, "above 0"),
        ("PACE_HOLD_SECONDS_MAX", 30, "below DATABASE_STATEMENT_TIMEOUT_MS"),
        ("PACE_PAYMENT_FAULT_SHARE_MAX", 20, "below 1"),
        ("PACE_WORKER_LAG_SECONDS_MAX", 0, "above 0"),
        ("PACE_LOCK_WAITS_MAX", 0, "at least 1"),
        ("PACE_LOCK_WAIT_MS", 5_000, "below DATABASE_LOCK_TIMEOUT_MS"),
        ("PACE_MEASUREMENTS_MIN", 10_000, "no process keeps more"),
        ("PACE_SIGNAL_AGE_SECONDS_MAX", 1, "two reports"),
        ("PACE_SIGNAL_AGE_SECONDS_MAX", 10_000, "older rows are removed"),
        ("PACE_STEP_SECONDS", 0.2, "interval"),
        ("PACE_UP_SHARE", 0, "above 0"),
        ("PACE_DOWN_FACTOR", 1, "below 1"),
    ],
)
def test_inconsistent_settings_are_refused_by_the_system_check(
    settings: Any, name: str, value: Any, expected: str
) -> None:
    setattr(settings, name, value)
    (error,) = health.check_limits(None)
    assert name in error.msg
    assert expected in error.msg


# --- the step, under the room's lock --------------------------------------------------------------------------------


@pytest.fixture
def event(transactional_db: None) -> EventView:
    event = make_room(rate=50, active=10)
    open_now(event)
    return event


def room() -> WaitingRoom:
    return WaitingRoom.objects.get()


def changes() -> list[tuple[float, float, str]]:
    return list(RateChange.objects.order_by("id").values_list("from_rate", "to_rate", "reason"))


def let_time_pass(seconds: float = 60) -> None:
    """Let this much time pass since the loop's last change."""
    RateChange.objects.update(at=F("at") - timedelta(seconds=seconds))


def test_a_step_down_and_the_recovery_are_recorded_with_their_reasons(event: EventView) -> None:
    assert rate_control.step_rate(event.id, EPOCH, ILL)
    assert (room().rate_now, room().epoch) == (35, EPOCH)
    let_time_pass()
    assert rate_control.step_rate(event.id, EPOCH, WELL)
    assert room().rate_now == 37.5
    well = (
        "all limits are kept: holds take 0.1 s at the 95th percentile, 0 % of the charges failed, "
        "messages wait 0 s, 0 sessions wait for locks"
    )
    assert changes() == [
        (50, 35, "holds take 1.8 s at the 95th percentile, more than 0.8 s"),
        (35, 37.5, well),
    ]
    for _ in range(5):
        let_time_pass()
        rate_control.step_rate(event.id, EPOCH, WELL)
    assert room().rate_now is None, "recovered: it follows the operator's rate"
    assert changes()[-1][:2] == (47.5, 50)


def test_at_the_ceiling_and_at_the_floor_nothing_is_written(event: EventView) -> None:
    assert not rate_control.step_rate(event.id, EPOCH, WELL)
    assert changes() == []
    WaitingRoom.objects.update(rate_now=5)
    assert not rate_control.step_rate(event.id, EPOCH, ILL)
    assert changes() == []


def test_there_is_one_change_per_step_for_any_leader(event: EventView) -> None:
    assert rate_control.step_rate(event.id, EPOCH, ILL)
    assert not rate_control.step_rate(event.id, EPOCH + 1, ILL), (
        "the next leader waits for the effect of the last one's change"
    )
    assert len(changes()) == 1


def test_elapsed_time_is_counted_at_the_old_rate(event: EventView) -> None:
    WaitingRoom.objects.update(ticked_at=clock.now() - timedelta(seconds=60), budget=0)
    assert rate_control.step_rate(event.id, EPOCH, ILL)
    assert room().budget == 100, "two seconds of the rate before"


@pytest.mark.parametrize("state", ["closed", "paused", "drained", "off", "lobby"])
def test_only_an_open_room_is_slowed_down(event: EventView, state: str) -> None:
    WaitingRoom.objects.update(state=state)
    assert not rate_control.step_rate(event.id, EPOCH, ILL)
    assert (room().rate_now, changes()) == (None, [])


def test_a_former_leader_is_fenced_and_changes_nothing(event: EventView) -> None:
    WaitingRoom.objects.update(epoch=EPOCH + 1)
    with pytest.raises(errors.StaleLeader):
        rate_control.step_rate(event.id, EPOCH, ILL)
    assert (room().rate_now, changes()) == (None, [])


# --- the operator's rate and floor ----------------------------------------------------------------------------------


def test_a_lower_rate_limits_the_current_one_and_a_higher_one_leaves_it_to_the_loop(event: EventView) -> None:
    WaitingRoom.objects.update(rate_now=35)
    operations.set_limits(event.id, rate_per_second=200, active_max=10, who="staff")
    assert room().rate_now == 35
    operations.set_limits(event.id, rate_per_second=20, active_max=10, who="staff")
    assert (room().rate_now, room().rate_per_second) == (None, 20)
    assert changes() == [(35, 20, rate_control.BY_HAND)]


def test_setting_the_floor_is_recorded_and_raises_the_current_rate(event: EventView) -> None:
    WaitingRoom.objects.update(rate_now=7)
    assert rate_control.set_floor(event.id, 20, who="staff", why="the sponsor's hour")
    assert not rate_control.set_floor(event.id, 20, who="staff")
    assert (room().rate_floor, room().rate_now) == (20, 20)
    assert rate_control.set_floor(event.id, 50, who="staff")
    assert room().rate_now is None, "a floor at the rate switches the loop off"
    assert not rate_control.step_rate(event.id, EPOCH, ILL)
    assert rate_control.set_floor(event.id, None, who="staff")
    acts = RoomAct.objects.order_by("id").values_list("who", "what", "detail", "why")
    assert next(iter(acts)) == ("staff", "limits", "floor a tenth → 20/s", "the sponsor's hour")
    assert [detail for _, _, detail, _ in acts][1:] == ["floor 20/s → 50/s", "floor 50/s → a tenth"]
    assert changes() == [(7, 20, rate_control.BY_HAND), (20, 50, rate_control.BY_HAND)]


@pytest.mark.parametrize("floor", [0, -1, 51])
def test_an_invalid_floor_is_refused(event: EventView, floor: int) -> None:
    with pytest.raises(errors.ActRefused):
        rate_control.set_floor(event.id, floor, who="staff")


def test_control_a_step_decided_before_the_lock_overwrites_the_operators_new_rate(event: EventView) -> None:
    """The control: the step, but decided from a row that was read before the lock.

    L: reads the room: 50/s, and decides on 35/s
    O: sets 20/s
    L: locks the room and writes 35/s, which is more than the operator allows
    """
    before = room()

    def step_without_the_lock() -> None:
        to, _ = next_rate(before.rate_per_second, *bounds(before.rate_per_second, None), ILL, STEPS) or (0, "")
        operations.set_limits(event.id, rate_per_second=20, active_max=10, who="staff")
        with transactions.write():
            WaitingRoom.objects.select_for_update(no_key=True).get()
            WaitingRoom.objects.update(rate_now=to)

    with pytest.raises(Exception, match="waiting_room_rate_now_within_rate"):
        step_without_the_lock()


def test_an_operators_change_before_the_lock_is_read_by_the_step(event: EventView) -> None:
    """L: its step begins; O: sets 20/s and commits; L: locks the room, and decides from 20/s."""
    with rival_at(
        "lock_rooms", "before", lambda: operations.set_limits(event.id, rate_per_second=20, active_max=10, who="staff")
    ):
        assert rate_control.step_rate(event.id, EPOCH, ILL)
    assert (room().rate_per_second, room().rate_now) == (20, 14)
    assert [change[:2] for change in changes()] == [(20, 14)]


def test_an_operators_change_during_the_step_waits_and_limits_its_rate(event: EventView) -> None:
    """L: has the room locked and writes 35/s; O: sets 20/s and waits; L: commits; O: writes 20/s and limits the current
    rate to it."""
    beside: list[ConcurrentCall] = []

    def lower_the_rate() -> None:
        act = ConcurrentCall(lambda: operations.set_limits(event.id, rate_per_second=20, active_max=10, who="staff"))
        beside.append(act.wait_until_blocked())

    with run_at("lock_rooms", "after", lower_the_rate):
        assert rate_control.step_rate(event.id, EPOCH, ILL)
    assert beside[0].result()
    assert (room().rate_per_second, room().rate_now) == (20, None)
    assert [change[:2] for change in changes()] == [(50, 35), (35, 20)]
    assert_audit_clean()


# --- the leader -----------------------------------------------------------------------------------------------------


@pytest.fixture
def _each_round_a_step(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call is due and reaches all rooms, no change is too recent for the next one, and nothing measured in this
    test is too old, however slow the machine."""
    settings.PACE_STEP_SECONDS = 0.0
    monkeypatch.setattr(rate_control, "OTHERS_SECONDS", 600.0)
    settings.PACE_SIGNAL_AGE_SECONDS_MAX = 600.0
    monkeypatch.setattr(health.hold_seconds, "_window_seconds", 600.0)
    monkeypatch.setattr(rate_control, "_changed_since", lambda event_id, moment: False)


@pytest.fixture
def pair(transactional_db: None) -> Iterator[tuple[Gatekeeper, Gatekeeper]]:
    first, second = Gatekeeper(database_url()), Gatekeeper(database_url())
    yield first, second
    first.resign()
    second.resign()


@pytest.mark.usefixtures("_each_round_a_step")
def test_slow_holds_lower_the_rate_and_fast_ones_let_it_recover(
    event: EventView, pair: tuple[Gatekeeper, Gatekeeper]
) -> None:
    """End to end: observed in one process, reported to PostgreSQL, read by the leader, written under the lock."""
    join_waiting_entries(event, 2)
    try:
        for _ in range(5):
            health.observe_hold(3, event.id, "")
        health_signals.report()
        pair[0].run_once()
        pair[1].run_once()
        assert (room().rate_now, len(changes())) == (35, 1), "the stand-by changes nothing"
        assert changes()[0][2] == "holds take 3 s at the 95th percentile, more than 0.8 s"
        for _ in range(10):
            pair[0].run_once()
        assert room().rate_now == 5, "it is at the floor"
        health.hold_seconds.forget()
        for _ in range(5):
            health.observe_hold(0.01, event.id, "")
        health_signals.report()
        for _ in range(30):
            pair[0].run_once()
        assert room().rate_now is None
        assert all(reason for _, _, reason in changes())
    finally:
        health.hold_seconds.forget()
        health_signals.end()
    assert_audit_clean()


@database
@pytest.mark.usefixtures("_each_round_a_step")
def test_slow_holds_lower_the_rate_of_their_events_room_only() -> None:
    """A client's holds of the same seats wait for each other, which is no sign of load for other events."""
    slow, fine = make_room("slow", rate=50), make_room("fine", venue="B", rate=50)
    for each in (slow, fine):
        open_now(each)
        join_waiting_entries(each, 1)
    signal_row(f"hold_seconds {slow.id}", 9)
    signal_row(f"hold_seconds {fine.id}", 0.1)
    assert RateController().run_if_due(EPOCH) == 1
    assert RateChange.objects.get().event_id == slow.id


@pytest.mark.parametrize(("networks", "seconds"), [(1, 0.02), (3, 3.0)])
def test_one_clients_slow_holds_are_no_sign_of_load(networks: int, seconds: float) -> None:
    try:
        for number in range(120):
            health.observe_hold(3.0, 7, f"198.51.{number % networks}.{number % 7}")
        for number in range(10):
            health.observe_hold(0.02, 7, f"203.0.{number}.1")
        assert health.hold_seconds.take() == [("hold_seconds 7", seconds, 10 + networks)]
    finally:
        health.hold_seconds.forget()


@pytest.mark.usefixtures("_each_round_a_step")
def test_few_or_old_measurements_are_ignored(event: EventView) -> None:
    join_waiting_entries(event, 1)
    signal_row(f"hold_seconds {event.id}", 9, process="few", count=4)
    signal_row(f"hold_seconds {event.id}", 9, process="gone", age_seconds=3_600)
    assert RateController().run_if_due(EPOCH) == 0
    signal_row("payment_faults", 0.5, count=5)
    assert RateController().run_if_due(EPOCH) == 1
    assert changes()[0][2] == "50 % of the charges failed, more than 20 %"


@database
@pytest.mark.usefixtures("_each_round_a_step")
def test_unused_rooms_are_not_changed() -> None:
    used, unused = make_room("used", rate=50), make_room("unused", venue="B", rate=50)
    lowered = make_room("lowered", venue="C", rate=50)
    for each in (used, unused, lowered):
        open_now(each)
    join(used)
    WaitingRoom.objects.filter(event_id=lowered.id).update(rate_now=20)
    signal_row("payment_faults", 0.5)
    seen: list[str] = []
    assert RateController().run_if_due(EPOCH, before_each=lambda: seen.append("spoke")) == 2
    assert len(seen) == 2
    assert set(RateChange.objects.values_list("event_id", flat=True)) == {used.id, lowered.id}


def test_a_step_runs_when_it_is_due_and_not_before(event: EventView, settings: Any) -> None:
    settings.PACE_STEP_SECONDS = 3_600.0
    settings.PACE_SIGNAL_AGE_SECONDS_MAX = 600.0
    join_waiting_entries(event, 1)
    signal_row(f"hold_seconds {event.id}", 9)
    pacer = RateController()
    assert pacer.run_if_due(EPOCH) == 1
    let_time_pass(7_200)
    assert pacer.run_if_due(EPOCH) == 0
    assert len(changes()) == 1


@pytest.mark.usefixtures("_each_round_a_step")
def test_without_measurements_nothing_changes(
    event: EventView, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    join_waiting_entries(event, 1)
    slow = dataclasses.replace(health_signals._latest, text="SELECT pg_sleep(60)")
    monkeypatch.setattr(health_signals, "_latest", slow)
    monkeypatch.setattr(health, "STATEMENT_MS", 1)
    with caplog.at_level(logging.WARNING):
        assert RateController().run_if_due(EPOCH) == 0
    assert "the rates stay as they are" in caplog.text
    assert changes() == []


@database
@pytest.mark.usefixtures("_each_round_a_step")
def test_one_rooms_lock_delays_no_other_rooms_step(
    second_connection: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, fine = make_room("stuck", rate=50), make_room("fine", venue="B", rate=50)
    for each in (stuck, fine):
        open_now(each)
        join_waiting_entries(each, 1)
    monkeypatch.setattr(rate_control, "LOCK_MS", 1)
    signal_row("payment_faults", 0.5)
    with second_connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("UPDATE queue_waitingroom SET message = 'x' WHERE event_id = %s", [stuck.id])
        assert RateController().run_if_due(EPOCH) == 1
        cursor.execute("ROLLBACK")
    assert "keeps its rate in this step" in caplog.text
    assert RateChange.objects.get().event_id == fine.id


def test_old_changes_are_deleted(event: EventView) -> None:
    for days in (rate_control.KEPT_DAYS + 1, rate_control.KEPT_DAYS - 1):
        at_moment = clock.now() - timedelta(days=days)
        RateChange.objects.create(event_id=event.id, at=at_moment, from_rate=2, to_rate=1, reason="old")
    assert rate_control.delete_old_changes() == 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM queue_ratechange")
        assert cursor.fetchone() == (1,)
