"""Runs of slow kinds: one at a time in the processes of a worker, and none in `gatekeeper` while workers report."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from celery.exceptions import Retry
from django.apps import apps as django_apps

from apps.kernel import clock, tasks
from apps.kernel.heavy_work import slow_slot
from apps.kernel.models import AuditRun, Signal
from apps.kernel.scheduler import executor, facade, orchestrator, picker, registry
from tests.support.batches import wait_until
from tests.support.kernel.scheduled_tasks import (
    AnyParams,
    effects,
    execute_due,
    pick_all,
    registered,
    schedule_now,
    waiting,
    write_effect,
)

pytestmark = pytest.mark.django_db(transaction=True)
SLOW = "test.slow"


@pytest.fixture(autouse=True)
def kinds() -> Iterator[None]:
    with registered():
        facade.register_task(SLOW, write_effect, AnyParams, label="Slow", for_event=False, is_slow=True)
        yield


def schedule_slow() -> int:
    """Schedule a slow task for this minute, and return the id of its run."""
    task_id = schedule_now()
    facade.ScheduledTask.objects.filter(pk=task_id).update(kind=SLOW)
    return pick_all()[-1]


@contextmanager
def busy_process() -> Iterator[None]:
    """Another process of the worker has the slot. It is killed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        with slow_slot.take() as slot:
            os.write(writing, b"1" if slot.is_taken else b"0")
            signal.pause()
    try:
        assert os.read(reading, 1) == b"1"
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)


def test_one_process_of_a_worker_executes_a_slow_run_and_the_others_go_on_with_light_ones() -> None:
    slow = schedule_slow()
    for _ in range(3):
        schedule_now()
    pick_all()
    with busy_process():
        assert execute_due() == 3
        assert waiting() == [slow]
    assert execute_due() == 1, "a process that is killed leaves the slot"
    assert set(effects().values()) == {1}
    assert len(effects()) == 4


def test_a_check_waits_for_a_slow_run_but_not_for_ever() -> None:
    with busy_process():
        with pytest.raises(Retry):
            tasks.check()
        assert not AuditRun.objects.exists()
        tasks.check.push_request(retries=tasks.SLOT_TRIES)
        try:
            assert tasks.check()
        finally:
            tasks.check.pop_request()
    assert AuditRun.objects.count() == 1
    assert tasks.check()


def test_a_thread_has_the_slot_until_its_slow_run_has_ended() -> None:
    found = []

    def look(run: facade.Run) -> str:
        with slow_slot.take() as slot:
            found.append(slot.is_taken)
        return write_effect(run)

    facade.register_task(SLOW, look, AnyParams, label="Slow", for_event=False, is_slow=True)
    schedule_slow()
    assert execute_due() == 1
    facade.register_task(SLOW, look, AnyParams, label="Light", for_event=False)
    schedule_slow()
    assert execute_due() == 1
    assert found == [False, True]
    with slow_slot.take() as slot:
        assert slot.is_taken


@pytest.mark.parametrize("reports", [True, False], ids=["workers report", "no workers"])
def test_the_process_of_the_picker_leaves_slow_runs_to_workers(monkeypatch: pytest.MonkeyPatch, reports: bool) -> None:
    """They would delay the admissions of all waiting rooms."""
    monkeypatch.setattr(picker, "HERE_AFTER_SECONDS", 0.0)
    if reports:
        Signal.objects.create(name=orchestrator.SIGNAL, process="host:1", value=2, count=1, at=clock.now())
    slow = schedule_slow()
    schedule_now()
    picker.run_once()
    wait_until(lambda: len(effects()) == (1 if reports else 2), "the others are executed here")
    wait_until(picker.local.is_idle, "the threads end")
    assert waiting() == ([slow] if reports else [])
    execute_due()
    assert set(effects().values()) == {1}
    assert len(effects()) == 2


def test_what_takes_seconds_is_a_slow_kind() -> None:
    for name in ("events", "orders"):
        django_apps.get_app_config(name).ready()
    assert {"events.publish", "orders.export_figures", "orders.mail_figures"} <= set(registry.slow_kinds())
    assert executor.execute_due() == 0
