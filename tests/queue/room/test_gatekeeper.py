"""One leader among the gatekeepers: elected, replaced when it dies, fenced when it wakes up late."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from apps.events.facade import EventView
from apps.queue.models import AdmissionBatch, Leadership, WaitingRoom
from apps.queue.room import admission, rate_control
from apps.queue.room import gatekeeper as gatekeepers
from apps.queue.room.gatekeeper import Gatekeeper
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean
from tests.support.queue.rooms import EPOCH, backdate_tick, join_waiting_entries, make_room, statuses, tick
from tests.support.races import rival_connection
from tests.support.servers import CHECKOUT
from ticketing.devserver.ports import free_port

WAIT_SECONDS_MAX = 120
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def event() -> EventView:
    return make_room()


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Gatekeeper, Gatekeeper]]:
    """Two gatekeepers that neither lose the lead nor leave rooms for the next round because the machine is slow."""
    monkeypatch.setattr(gatekeepers, "SILENCE_MS_MAX", 600_000)
    monkeypatch.setattr(gatekeepers, "OTHERS_SECONDS", 600.0)
    first, second = Gatekeeper(database_url()), Gatekeeper(database_url())
    yield first, second
    first.resign()
    second.resign()


def until(true: Callable[[], bool], what: str) -> None:
    """Return as soon as the condition holds. Raises AssertionError if it does not in time."""
    deadline, pause = time.monotonic() + WAIT_SECONDS_MAX, threading.Event()
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        pause.wait(0.05)


def test_one_leads_and_the_other_stands_by(event: EventView, pair: tuple[Gatekeeper, Gatekeeper]) -> None:
    first, second = pair
    join_waiting_entries(event, 5)
    assert (first.run_once(), second.run_once()) == (3, 0)
    assert (first.is_leader, second.is_leader) == (True, False)
    assert WaitingRoom.objects.get().epoch == first.epoch
    first.resign()
    second.run_once()
    assert second.is_leader
    assert Leadership.objects.get().epoch == second.epoch == 2


def test_a_leader_whose_session_ended_leads_no_more_and_its_writes_are_refused(
    event: EventView, pair: tuple[Gatekeeper, Gatekeeper]
) -> None:
    """F: leads; its session is ended by the server (it hung, or the network failed)
    S: leads, and ticks the room
    F: wakes up in the middle of its round, still as the leader: the room's epoch is newer
    F: notices, and stands by
    """
    first, second = pair
    join_waiting_entries(event, 9)
    first.run_once()
    assert first.lead.session is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [first.lead.session.info.backend_pid])
    until(lambda: second.run_once() >= 0 and second.is_leader, "the stand-by leads")
    WaitingRoom.objects.update(active_max=6)
    backdate_tick(event)
    assert second.run_once() == 3
    WaitingRoom.objects.update(active_max=9)
    backdate_tick(event)
    first.lead.send_heartbeat = lambda: None  # type: ignore[method-assign]  # It does not look before it acts.
    assert first.run_once() == 0
    assert not first.is_leader
    assert statuses(event).count("ready") == 6
    assert [batch.epoch for batch in AdmissionBatch.objects.order_by("id")] == [1, 2]


def test_a_leader_that_hangs_loses_its_idle_session(pair: tuple[Gatekeeper, Gatekeeper]) -> None:
    first, second = pair
    first.run_once()
    assert first.is_leader
    assert first.lead.session is not None
    assert first.lead.session.execute("SHOW idle_session_timeout").fetchone() == ("10min",)
    first.lead.session.execute("SET idle_session_timeout = 50")  # So that the test need not wait.
    until(lambda: second.run_once() >= 0 and second.is_leader, "the stand-by leads")
    first.run_once()
    assert not first.is_leader


def test_an_error_in_one_room_delays_no_other_room(pair: tuple[Gatekeeper, Gatekeeper]) -> None:
    stuck, fine = make_room("stuck"), make_room("fine", venue="B")
    join_waiting_entries(stuck, 2)
    join_waiting_entries(fine, 2)
    # Its head may not pass the assigned numbers: the tick of this room fails at the constraint.
    WaitingRoom.objects.filter(event_id=stuck.id).update(next_number=1)
    assert pair[0].run_once() == 2
    assert statuses(stuck) == ["waiting", "waiting"]
    assert statuses(fine) == ["ready", "ready"]


def make_full(event: EventView) -> None:
    WaitingRoom.objects.filter(event_id=event.id).update(active_max=0)


def test_rooms_that_admit_no_visitor_take_a_small_part_of_a_round(
    pair: tuple[Gatekeeper, Gatekeeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They get it in turn, and a room that can admit visitors is ticked in each round."""
    full = [make_room(f"full-{number}", venue=f"V{number}") for number in range(5)]
    used = make_room("used", venue="B", rate=4, active=100)
    for event in (*full, used):
        join_waiting_entries(event, 20)
    for event in full:
        make_full(event)
    ticked: list[int] = []
    tick = admission.tick
    monkeypatch.setattr(admission, "tick", lambda event_id, epoch: ticked.append(event_id) or tick(event_id, epoch))
    monkeypatch.setattr(gatekeepers, "OTHERS_SECONDS", -1.0)
    until(lambda: pair[0].run_once() > 0, "the room is found in use")
    ticked.clear()
    for _ in range(5):
        pair[0].run_once()
    assert ticked[::2] == [used.id] * 5
    assert sorted(ticked[1::2]) == sorted(event.id for event in full)
    WaitingRoom.objects.filter(event_id=full[0].id).update(active_max=3)
    pair[0].run_once()
    assert statuses(full[0]).count("ready") == 3, "a room that can admit visitors again does not wait for its turn"
    assert_audit_clean()


@pytest.mark.parametrize(
    ("changes", "can_admit"),
    [
        ({}, True),
        ({"active_max": 1}, False),
        ({"active_max": 2}, True),
        ({"supply_available": 0}, False),
        ({"supply_available": 1}, False),
        ({"supply_available": 2}, True),
        ({"budget": 0, "rate_now": 0.0001}, False),
        ({"ticked_at": None}, True),
    ],
)
def test_rooms_that_can_admit_visitors_are_ticked_first(
    event: EventView, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], can_admit: bool
) -> None:
    """One visitor is choosing, four wait. Each outcome is also what a tick then does."""
    monkeypatch.setattr(admission, "LATELY_SECONDS", 0)
    join_waiting_entries(event, 5)
    WaitingRoom.objects.update(active_max=1)
    assert tick(event) == 1
    WaitingRoom.objects.update(**{"active_max": 3, "budget": 5, "supply_available": None} | changes)
    assert admission.due_rooms() == (([event.id], []) if can_admit else ([], [event.id]))
    assert (admission.tick(event.id, EPOCH) > 0) == can_admit


def test_a_room_whose_lock_is_not_available_is_logged_once_and_once_on_recovery(
    pair: tuple[Gatekeeper, Gatekeeper], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator's transaction locks one room for four ticks: one log line, the other room goes on, and one line at
    the end."""
    monkeypatch.setattr(admission, "TICK_LOCK_MS", 1)
    monkeypatch.setattr(rate_control.RateController, "run_if_due", lambda *_, **__: 0)
    stuck, fine = make_room("stuck"), make_room("fine", venue="B")
    join_waiting_entries(stuck, 2)
    join_waiting_entries(fine, 2)
    with rival_connection() as operator:
        operator.set_autocommit(False)
        with operator.cursor() as cursor:
            cursor.execute("SELECT FROM queue_waitingroom WHERE event_id = %s FOR NO KEY UPDATE", [stuck.id])
        assert [pair[0].run_once() for _ in range(4)] == [2, 0, 0, 0]
        operator.rollback()
    assert pair[0].run_once() == 2
    failing = f"gatekeeper: the tick of event {stuck.id} fails: "
    first, over = [message for message in caplog.messages if message.startswith(failing)]
    assert "lock timeout" in first
    assert over.startswith(f"{failing}recovered after 4 failures")
    assert statuses(fine) == statuses(stuck) == ["ready", "ready"]


def test_an_unavailable_database_is_logged_once_and_once_on_recovery(caplog: pytest.LogCaptureFixture) -> None:
    gatekeeper = Gatekeeper(f"postgres://missing@127.0.0.1:{free_port()}/nowhere")
    for _ in range(4):
        assert gatekeeper.run_once() == 0
    gatekeeper.lead._conninfo = database_url()
    gatekeeper.run_once()
    assert gatekeeper.is_leader
    gatekeeper.resign()
    outage, recovery = [message for message in caplog.messages if message.startswith(gatekeepers.AWAY)]
    assert "refused" in outage
    assert recovery.startswith(f"{gatekeepers.AWAY}: recovered after 4 failures")


@pytest.mark.slow
def test_when_the_leading_process_is_killed_another_takes_over(event: EventView) -> None:
    environment = os.environ | {"DATABASE_URL": database_url(), "DATABASE_DIRECT_URL": database_url()}
    command = [sys.executable, "-W", "ignore", "manage.py", "gatekeeper"]
    processes = {}
    try:
        for _ in range(2):
            process = subprocess.Popen(
                command, cwd=CHECKOUT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            processes[process.pid] = process
        join_waiting_entries(event, 6)
        until(lambda: statuses(event).count("ready") == 3, "the first leader lets three in")
        leader = Leadership.objects.get()
        pid = int(leader.leader.rpartition(":")[2])
        processes[pid].send_signal(signal.SIGKILL)
        processes[pid].wait(timeout=WAIT_SECONDS_MAX)
        until(lambda: Leadership.objects.get().epoch > leader.epoch, "the stand-by leads")
        WaitingRoom.objects.update(active_max=6)
        until(lambda: statuses(event).count("ready") == 6, "the second leader lets the others in")
        assert WaitingRoom.objects.get().epoch > leader.epoch
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.wait(timeout=WAIT_SECONDS_MAX)
    assert_audit_clean()
