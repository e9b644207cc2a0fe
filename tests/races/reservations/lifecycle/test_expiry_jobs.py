"""The four mechanisms that release lapsed holds (I10): each alone, all at once, and under faults.

In a test nothing runs unless the test calls it: no beat, no maintenance loop, no watcher. Where a mechanism is tested
without Redis, Redis is unavailable for the hold as well.
"""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.db import transaction
from django_celery_beat.models import PeriodicTask
from django_celery_beat.schedulers import ModelEntry
from redis import Redis

from apps.events.facade import EventView
from apps.kernel import clock, maintenance, redis
from apps.kernel.db import sql
from apps.queue import facade as queue
from apps.reservations import facade as reservations
from apps.reservations import tasks
from apps.reservations.checks import invariants
from apps.reservations.lifecycle import after_commit, deadline_set, expiry_jobs, redis_deadlines, release
from apps.reservations.lifecycle.changes import DeadlineChange
from apps.reservations.models import CleanupLog, Reservation, ReservationTransition, SeatInventory
from tests.queue.room.test_gatekeeper import until
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, make_event, make_hold_request
from tests.support.races import rival_at, rival_connection, storm, values
from tests.support.reservations.buyers import (
    begin_payment,
    get_general_admission,
    hold_with_retries,
    is_held,
    problem_of,
    run_sql,
    seat,
    submit_hold,
)
from tests.support.servers import CHECKOUT, end_processes
from ticketing.celery import app

pytestmark = pytest.mark.django_db(transaction=True)

lock_reservation = sql.load("apps.reservations", "lock_reservation")


@pytest.fixture
def no_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> None:
        raise redis.RedisUnavailable("connection refused")

    monkeypatch.setattr(redis, "client", unavailable)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (release, redis_deadlines):
        monkeypatch.setattr(module, "SWEEP_MAX", 20)


def lapse_and_notify(view: reservations.ReservationView) -> None:
    """Move the deadline to a moment ago and notify the deadline set, as for every deadline that changes."""
    backdate_deadline(view.id)
    row = Reservation.objects.get(pk=view.id)
    after_commit.notify_deadline_changed([DeadlineChange(row.event_id, row.pk, row.pay_deadline or row.expires_at)])


def in_set(client: Redis, event: EventView) -> dict[str, float]:
    return dict(client.zrange(deadline_set.key(event.id), 0, -1, withscores=True))  # type: ignore[arg-type]


def statuses() -> list[str]:
    return list(Reservation.objects.order_by("created_at").values_list("status", flat=True))


def swept_by() -> set[str]:
    return set(CleanupLog.objects.values_list("swept_by", flat=True))


def three_lapsed(event: EventView, lapse_one: Callable[[Any], None]) -> None:
    """Create three lapsed reservations: of a seat, of tickets, and of both while being paid."""
    views = [
        hold(event, seats=["hall-A-1"]),
        hold(event, ga_section="floor", ga_quantity=2),
        begin_payment(hold(event, seats=["hall-A-2"], ga_section="floor", ga_quantity=1).id),
    ]
    for view in views:
        lapse_one(view)


def assert_all_released(by: str) -> None:
    assert statuses() == ["expired"] * 3
    assert not SeatInventory.objects.exclude(status=0).exists()
    assert get_general_admission().taken == 0
    assert swept_by() == {by}
    logged = CleanupLog.objects.values_list("seats_released", "general_admission_released")
    assert [sum(column) for column in zip(*logged, strict=True)] == [2, 3]
    assert_audit_clean()


# --- each alone -------------------------------------------------------------------------------------------------------


def test_the_deadline_set_alone_releases_exactly_what_is_due(redis_client: Redis) -> None:
    event = make_event(general_admission=10)
    three_lapsed(event, lapse_and_notify)
    live = hold(event, seats=["hall-B-1"])
    assert len(in_set(redis_client, event)) == 4
    redis_deadlines.Watcher().run_once()
    reservations.release(live.id, who="test")
    assert in_set(redis_client, event) == {}
    assert sorted(statuses()) == ["canceled", "expired", "expired", "expired"]
    assert get_general_admission().taken == 0
    assert swept_by() == {"deadline"}
    assert_audit_clean()


def test_the_beat_task_alone_releases_everything(no_redis: None) -> None:
    event = make_event(general_admission=10)
    three_lapsed(event, lambda view: backdate_deadline(view.id))
    assert tasks.sweep_expired() == 3
    assert_all_released("beat")


def test_the_maintenance_loop_alone_releases_without_redis_and_celery(no_redis: None) -> None:
    """It leaves recently lapsed holds to the other mechanisms, and releases what they missed, in time for I10."""
    event = make_event(general_admission=10)
    three_lapsed(event, lambda view: backdate_deadline(view.id))
    assert expiry_jobs.sweep_unswept() == 0
    for row in Reservation.objects.all():
        backdate_deadline(row.pk, seconds=expiry_jobs.UNSWEPT_SECONDS)
    assert expiry_jobs.sweep_unswept() == 3
    assert_all_released("maintenance")
    job = maintenance._jobs["sweep expired reservations"]
    assert job.run is expiry_jobs.sweep_unswept
    assert expiry_jobs.UNSWEPT_SECONDS + job.interval_seconds + maintenance.TICK_SECONDS < invariants.STRANDED_SECONDS


@pytest.mark.parametrize(
    "payload",
    [
        {"seats": ["hall-A-1"]},
        {"ga_section": "floor", "ga_quantity": 4},
        {"best_available": {"section": "hall", "quantity": 2}},
        {"seats": ["hall-A-2"], "ga_section": "floor", "ga_quantity": 1},
    ],
    ids=["seats", "general admission", "best available", "both"],
)
def test_a_hold_that_finds_too_little_sweeps_what_has_lapsed(payload: dict[str, Any], no_redis: None) -> None:
    """The count of tickets does not show which have lapsed, and best available reads free seats only: both sweep before
    they refuse."""
    event = make_event(rows=1, seats_per_row=2, general_admission=4)
    backdate_deadline(hold(event, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=4).id)
    assert is_held(submit_hold(make_hold_request(event, **payload)))
    assert swept_by() == {"hold"}
    assert_audit_clean()


def test_lapsed_holds_do_not_count_toward_the_buyer_s_cap(no_redis: None) -> None:
    event = make_event(per_buyer_max=2)
    tabs = [replace(make_hold_request(event, seats=[f"hall-A-{n}"]), buyer="visitor:one-of-many") for n in (1, 2, 3)]
    for request in tabs[:2]:
        outcome = submit_hold(request)
        assert isinstance(outcome, reservations.Held)
        backdate_deadline(outcome.reservation_id)
    assert is_held(submit_hold(tabs[2]))
    assert_audit_clean()


# --- all at once ------------------------------------------------------------------------------------------------------


def make_two_hundred_lapsed(event: EventView) -> list[UUID]:
    """Create a hundred reservations of a seat and a hundred of two tickets, all lapsed four seconds ago."""
    joined = queue.join_many(
        [
            queue.JoinRequest(event, queue.Caller(account_id=None, visitor_id=queue.new_visitor_secret()))
            for _ in range(200)
        ]
    )
    entries = [entry for entry in joined if isinstance(entry, queue.EntryView)]
    seat_template = make_hold_request(event, entries[0], seats=["hall-A-1"])
    ticket_template = make_hold_request(event, entries[0], ga_section="floor", ga_quantity=2)
    guids = dict(SeatInventory.objects.order_by("pk").values_list("pk", "seat__guid"))
    requests = []
    for number, entry in enumerate(entries):
        template = seat_template if number < 100 else ticket_template
        seats = {list(guids)[number]: list(guids.values())[number]} if number < 100 else {}
        requests.append(
            replace(
                template,
                reservation_id=uuid.uuid4(),
                entry_id=entry.id,
                buyer=entry.buyer,
                idempotency_key=uuid.uuid4().hex,
                seats=seats,
            )
        )
    outcomes = reservations.hold(requests)
    assert all(map(is_held, outcomes))
    past = clock.now() - timedelta(seconds=4)
    Reservation.objects.update(expires_at=past)
    return [request.reservation_id for request in requests]


def test_all_four_mechanisms_at_once_release_each_reservation_once(small_batches: None, redis_client: Redis) -> None:
    """Two watchers, two tasks, two maintenance loops and four buyers who find nothing left, all at once over the same
    two hundred reservations, in small batches, so that they contend all the time. The row lock decides: the second to
    reach a reservation reads that it has ended, or skips it."""
    event = make_event(rows=10, seats_per_row=10, general_admission=200)
    ended = make_two_hundred_lapsed(event)
    short_requests = [
        make_hold_request(event, **payload)
        for payload in (
            {"ga_section": "floor", "ga_quantity": 4},
            {"ga_section": "floor", "ga_quantity": 4},
            {"seats": ["hall-A-1", "hall-A-2"]},
            {"seats": ["hall-J-10"]},
        )
    ]
    redis_client.flushall()
    watchers = [redis_deadlines.Watcher(), redis_deadlines.Watcher()]
    for watcher in watchers:
        watcher.run_once()  # The set is filled with the deadlines in PostgreSQL.

    def act(number: int) -> Any:
        if number < 2:
            while watchers[number].run_once():
                pass
        elif number < 4:
            tasks.sweep_expired()
        elif number < 6:
            expiry_jobs.sweep_unswept()
        else:
            return is_held(hold_with_retries(short_requests[number - 6]))
        return True

    assert all(values(storm(10, act, seconds_max=180)))
    while tasks.sweep_expired():
        pass
    assert Reservation.objects.filter(pk__in=ended, status="expired").count() == 200
    transitions = ReservationTransition.objects.filter(to_status="expired").values_list("reservation_id", flat=True)
    assert sorted(transitions) == sorted(ended)
    logged = CleanupLog.objects.values_list("seats_released", "general_admission_released", "reservations_affected")
    assert [sum(column) for column in zip(*logged, strict=True)] == [100, 200, 200]
    assert get_general_admission().taken == 8
    assert SeatInventory.objects.exclude(status=0).count() == 3
    assert_audit_clean()


# --- the deadline set -------------------------------------------------------------------------------------------------


def test_a_flushed_deadline_set_is_filled_again_from_postgresql(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_deadlines, "FILL_PAGE", 2)
    event = make_event(general_admission=10)
    views = [hold(event, ga_section="floor", ga_quantity=1) for _ in range(4)]
    views.append(begin_payment(hold(event, ga_section="floor", ga_quantity=1).id))
    watcher = redis_deadlines.Watcher()
    while watcher.run_once():
        pass
    assert len(in_set(redis_client, event)) == 5
    redis_client.flushall()
    for view in views[:2]:
        backdate_deadline(view.id)
    while watcher.run_once():
        pass
    watcher.run_once()  # What lapsed and was added by the last page.
    assert set(in_set(redis_client, event)) == {str(view.id) for view in views[2:]}
    assert Reservation.objects.filter(status="expired").count() == 2
    assert_audit_clean()


def test_wrong_entries_of_the_deadline_set_are_corrected_under_the_lock(redis_client: Redis) -> None:
    """A deadline that moved without notice, a reservation that has ended, one that never existed, and garbage: nothing
    is released, the live reservation is in the set with its true deadline, and everything else is removed."""
    event = make_event()
    moved, ended = hold(event, seats=["hall-A-1"]), hold(event, seats=["hall-A-2"])
    reservations.release(ended.id, who="test")
    for member in (str(moved.id), str(ended.id), str(uuid.uuid4()), "\xff garbage"):
        redis_client.zadd(deadline_set.key(event.id), {member: 1.0})
    redis_client.zadd(deadline_set.EVENTS_KEY, {"garbage": time.time() + 1_000})
    redis_deadlines.Watcher().run_once()
    row = Reservation.objects.get(pk=moved.id)
    assert in_set(redis_client, event) == {str(moved.id): pytest.approx(row.expires_at.timestamp())}
    assert row.status == "pending_payment"
    assert not CleanupLog.objects.exists()
    assert_audit_clean()


def test_paying_moves_a_reservation_in_the_set_and_its_end_removes_it(redis_client: Redis) -> None:
    event = make_event()
    view = begin_payment(hold(event, seats=["hall-A-1"]).id)
    assert view.pay_deadline is not None
    assert in_set(redis_client, event) == {str(view.id): pytest.approx(view.pay_deadline.timestamp())}
    backdate_deadline(view.id)
    assert reservations.sweep().reservations == 1
    assert in_set(redis_client, event) == {}


def test_the_watcher_skips_a_locked_reservation_and_tries_it_again(redis_client: Redis) -> None:
    """K: a payment has the lapsed reservation locked
    W: skips it; puts it into the set again, due a second later
    K: refused, ROLLBACK
    W: releases it
    """
    event = make_event()
    view = hold(event, seats=["hall-A-1"])
    lapse_and_notify(view)
    watcher = redis_deadlines.Watcher()
    with rival_connection() as keeper:
        keeper.set_autocommit(False)
        run_sql(lock_reservation.text, {"reservation_id": view.id}, using=keeper)
        watcher.run_once()
        keeper.rollback()
    (score,) = in_set(redis_client, event).values()
    assert score > Reservation.objects.get().expires_at.timestamp() + redis_deadlines.RETRY_SECONDS
    assert statuses() == ["pending_payment"]
    redis_client.zadd(deadline_set.key(event.id), {str(view.id): 1.0})
    watcher.run_once()
    assert statuses() == ["expired"]
    assert_audit_clean()


def test_without_redis_the_watcher_pauses_and_afterwards_fills_the_set(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During the outage a reservation is held that the set does not contain."""
    event = make_event()
    watcher = redis_deadlines.Watcher()
    watcher.run_once()
    with monkeypatch.context() as patched:
        patched.setattr(redis, "client", lambda: Redis.from_url("redis://127.0.0.1:1/0", socket_connect_timeout=0.5))
        view = hold(event, seats=["hall-A-1"])
        assert watcher.run_once() is False
    redis.forget_outage()
    backdate_deadline(view.id)
    watcher.run_once()
    watcher.run_once()
    assert statuses() == ["expired"]
    assert_audit_clean()


def test_an_event_is_removed_when_its_last_deadline_is_long_past(redis_client: Redis) -> None:
    event = make_event()
    view = hold(event, seats=["hall-A-1"])
    watcher = redis_deadlines.Watcher()
    watcher.run_once()
    assert redis_client.zrange(deadline_set.EVENTS_KEY, 0, -1) == [str(event.id)]
    reservations.release(view.id, who="test")
    long_past = clock.now().timestamp() - redis_deadlines.EVENT_KEPT_SECONDS - 1
    redis_client.zadd(deadline_set.EVENTS_KEY, {str(event.id): long_past})
    watcher.run_once()
    assert redis_client.keys("deadlines*") == [redis_deadlines.FILLED_KEY]


# --- large backlogs and locked rows -----------------------------------------------------------------------------------


def test_a_second_sweep_continues_with_what_the_first_one_left() -> None:
    """A: has locked the two longest overdue
    B: skips them and takes the next two, instead of stopping
    """
    event = make_event(general_admission=4)
    views = [hold(event, ga_section="floor", ga_quantity=1) for _ in range(4)]
    for number, view in enumerate(views):
        backdate_deadline(view.id, seconds=10 - number)
    with rival_at("live_lines", "before", lambda: reservations.sweep(limit=2)) as rival:
        assert reservations.sweep(limit=2).reservations == 2
    assert rival.result.reservations == 2
    first = (
        ReservationTransition.objects.filter(to_status="expired").order_by("id").values_list("reservation", flat=True)
    )
    assert set(first[:2]) == {views[2].id, views[3].id}
    assert_audit_clean()


@pytest.mark.parametrize("by", ["sweep_all", "the set"])
def test_a_lock_that_is_not_obtained_delays_no_other_reservation(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """K: keeps the lock of one seat among five that have lapsed
    S: waits for it until its lock timeout; ends the other four and skips that one for now
    """
    monkeypatch.setattr(release, "LOCK_WAIT_MS", 50)
    monkeypatch.setattr(release, "_skipped", release._SkipList())
    monkeypatch.setattr(release, "SKIP_SECONDS", 3_600.0)
    event = make_event()
    views = [hold(event, seats=[f"hall-A-{n}"]) for n in range(1, 6)]
    for view in views:
        lapse_and_notify(view)
    with rival_connection() as keeper:
        keeper.set_autocommit(False)
        run_sql("SELECT 1 FROM reservations_seatinventory WHERE seat_id = %s FOR NO KEY UPDATE", [seat("hall-A-3").pk],
            using=keeper)  # fmt: skip
        if by == "the set":
            redis_deadlines.Watcher().run_once()
        else:
            assert release.sweep_all() == 4
        keeper.rollback()
    left = Reservation.objects.get(status="pending_payment")
    assert left.pk == views[2].id
    assert release._skipped.ids() == [left.pk]
    assert release.sweep_all() == 0
    assert release.sweep().reservations == 1  # A minute later, or by a sweep without the skip list.
    assert_audit_clean()


def test_stranded_reservations_at_the_front_do_not_starve_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two longest overdue fill a whole batch and cannot end: their seats belong to another reservation."""
    monkeypatch.setattr(release, "SWEEP_MAX", 2)
    monkeypatch.setattr(release, "_skipped", release._SkipList())
    monkeypatch.setattr(release, "SKIP_SECONDS", 3_600.0)
    event = make_event()
    views = [hold(event, seats=[f"hall-A-{n}"]) for n in range(1, 6)]
    stranger = hold(event, seats=["hall-B-1"])
    SeatInventory.objects.filter(seat__guid__in=["hall-A-1", "hall-A-2"]).update(reservation_id=stranger.id)
    for number, view in enumerate(views):
        backdate_deadline(view.id, seconds=10 - number)
    assert release.sweep_all() == 3
    assert [Reservation.objects.get(pk=view.id).status for view in views] == ["pending_payment"] * 2 + ["expired"] * 3


def test_one_run_of_the_task_is_bounded_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much has lapsed: here the time is up after the first batch, and the next task continues."""
    monkeypatch.setattr(tasks, "BEAT_SECONDS_MAX", 0.0)
    monkeypatch.setattr(release, "SWEEP_MAX", 2)
    event = make_event(general_admission=5)
    for _ in range(5):
        backdate_deadline(hold(event, ga_section="floor", ga_quantity=1).id)
    assert [tasks.sweep_expired() for _ in range(4)] == [2, 2, 1, 0]
    assert_audit_clean()


def test_a_run_that_is_bounded_in_time_skips_a_locked_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    """K: keeps one of eight lapsed seats locked; the task nevertheless ends the other seven, and later that one."""
    monkeypatch.setattr(release, "SKIP_SECONDS", 0.0)
    monkeypatch.setattr(release, "UNTRIED_SKIP_SECONDS", 0.0)
    event = make_event()
    for number in range(1, 9):
        backdate_deadline(hold(event, seats=[f"hall-A-{number}"]).id)
    keep = "SELECT FROM reservations_seatinventory WHERE seat_id = %s FOR NO KEY UPDATE"
    with rival_connection() as keeper:
        run_sql("BEGIN", using=keeper)
        run_sql(keep, [seat("hall-A-3").pk], using=keeper)
        ended, deadline = 0, time.monotonic() + 60
        while ended < 7 and time.monotonic() < deadline:
            ended += tasks.sweep_expired()
        assert ended == 7
        run_sql("ROLLBACK", using=keeper)
    assert tasks.sweep_expired() == 1
    assert_audit_clean()


def test_tasks_without_a_worker_expire_instead_of_piling_up() -> None:
    name = "sweep expired reservations"
    ModelEntry.from_entry(name, app=app, **settings.CELERY_BEAT_SCHEDULE[name])
    assert PeriodicTask.objects.get(name=name).expire_seconds == 10
    assert ModelEntry(PeriodicTask.objects.get(name=name), app=app).options["expires"] == 10


@pytest.mark.parametrize(
    ("name", "of_event"),
    [("lock_lapsed", False), ("lock_lapsed_of_event", True), ("lock_lapsed_of_event_waiting", True),
     ("any_lapsed", True)],
)  # fmt: skip
def test_lapsed_reservations_are_read_from_the_front_of_their_index(name: str, of_event: bool) -> None:
    """A volatile clock in the row's condition cannot bound an index scan: every live reservation would be read to find
    that none has lapsed. And a query for one event does not read another event's lapsed reservations first."""
    statement = sql.load("apps.reservations", name)
    params = {"limit": 500, "lapsed_seconds": 0.0, "apart_from": [], "event_id": 1, "event_ids": [1]}
    with transaction.atomic():
        # An empty table is read sequentially, whichever indexes it has.
        for method in ("seqscan", "bitmapscan", "sort"):
            run_sql(f"SET LOCAL enable_{method} = off")
        if of_event:
            # Which of two suitable indexes it takes depends on the table's statistics from earlier tests.
            for status in ("pending", "paying"):
                run_sql(f"DROP INDEX reservation_{status}_expiry")
        plan = "\n".join(line for (line,) in run_sql(f"EXPLAIN {statement.text}", params))
        transaction.set_rollback(True)
    which, event = ("of_event", "(event_id = ") if of_event else ("expiry", "")
    assert f"using reservation_pending_{which}" in plan
    assert f"using reservation_paying_{which}" in plan
    for deadline in ("expires_at", "pay_deadline"):
        assert re.search(rf"Index Cond: \({re.escape(event)}.*{deadline} <= \(InitPlan", plan), plan


# --- faults -----------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal
import django

django.setup()

from apps.reservations import tasks
from apps.kernel.db import sql


def kill(name, moment):
    if (name, moment) == ({name!r}, {moment!r}):
        os.kill(os.getpid(), signal.SIGKILL)


with sql.observe(kill):
    tasks.sweep_expired()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "moment"), [("free_taken_seats", "after"), ("release_general_admission", "after")])
def test_a_worker_killed_during_a_sweep_loses_nothing(name: str, moment: str) -> None:
    """The process is killed between two statements: its transaction rolls back, and the next sweep does all of it."""
    event = make_event(general_admission=10)
    three_lapsed(event, lambda view: backdate_deadline(view.id))
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", KILLED.format(name=name, moment=moment)],
        cwd=CHECKOUT,
        env=os.environ | {"DATABASE_URL": database_url(), "DATABASE_DIRECT_URL": database_url()},
    )
    try:
        assert process.wait(timeout=120) == -signal.SIGKILL
    finally:
        end_processes([process])
    assert not CleanupLog.objects.exists()
    # Its locks are released when PostgreSQL notices the lost connection.
    until(lambda: tasks.sweep_expired() == 3, "the next sweep ends all three")
    assert_all_released("beat")


@pytest.mark.parametrize("days", [-1, 1], ids=["a day behind", "a day ahead"])
def test_the_process_s_clock_decides_nothing(days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines are set and judged by PostgreSQL's clock: whatever this process's clock shows, no mechanism touches
    live holds, and lapsed ones are released."""

    real_time, real_now = time.time, clock.process_now
    monkeypatch.setattr(time, "time", lambda: real_time() + days * 86_400)
    monkeypatch.setattr(clock, "process_now", lambda: real_now() + timedelta(days=days))
    assert abs(clock.process_now() - clock.now()) > timedelta(hours=23)
    event = make_event()
    live, late = hold(event, seats=["hall-A-1"]), hold(event, seats=["hall-A-2"])
    for sweep in (redis_deadlines.Watcher().run_once, tasks.sweep_expired, expiry_jobs.sweep_unswept):
        assert not sweep()
    lapse_and_notify(late)
    redis_deadlines.Watcher().run_once()
    assert Reservation.objects.get(pk=late.id).status == "expired"
    assert Reservation.objects.get(pk=live.id).status == "pending_payment"
    assert problem_of(submit_hold(make_hold_request(event, seats=["hall-A-1"]))).type == "seats-unavailable"
    assert_audit_clean()


@pytest.mark.parametrize("nested_loop", [False, True])
def test_the_cleanup_log_is_kept_for_a_month(nested_loop: bool) -> None:
    """In a nested loop, a subquery that chooses the rows would run once per row and exceed the limit."""
    for method in ("hashjoin", "mergejoin", "hashagg", "material", "sort") if nested_loop else ():
        run_sql(f"SET enable_{method} = off")
    event = make_event(general_admission=3)
    for _ in range(3):
        backdate_deadline(hold(event, ga_section="floor", ga_quantity=1).id)
        release.sweep()
    for seconds, old in zip((2, 1), CleanupLog.objects.order_by("pk")[:2], strict=True):
        old.swept_at = clock.now() - timedelta(days=expiry_jobs.LOG_KEPT_DAYS, seconds=seconds)
        old.save()
    assert [expiry_jobs.delete_old_cleanup_logs(limit=1) for _ in range(3)] == [1, 1, 0]
    assert CleanupLog.objects.count() == 1
    assert "forget old cleanup logs" in maintenance.jobs()
