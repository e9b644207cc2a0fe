"""A task that opens a section starts on time, once, while pickers and executors are killed."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from apps.events.models import Section
from apps.kernel import clock
from apps.kernel.scheduler import facade, orchestrator, schedule_times
from apps.kernel.scheduler.models import ScheduledTask, TaskRun
from apps.reservations.models import InventoryChange
from apps.reservations.staff.access_restrictions import guard
from tests.processes.test_beat_and_worker import started
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean, make_event
from tests.support.servers import CHECKOUT, end_processes
from tests.support.web_processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

LIVES_SECONDS = 5.0
"""The time between two kills; two pickers take turns."""
DUE_IN_SECONDS = 10


@contextmanager
def killed_again_and_again() -> Iterator[list[int]]:
    """Run two pickers, and kill (SIGKILL) and replace one of them every few seconds, and one process of the worker,
    until the block ends. Yield the exit statuses of killed pickers."""
    command = [sys.executable, "manage.py", "pick_tasks"]
    environment = os.environ | {"DATABASE_URL": database_url(), "DATABASE_DIRECT_URL": database_url()}
    stopping, killed = threading.Event(), []
    pickers = [subprocess.Popen(command, cwd=CHECKOUT, env=environment) for _ in range(2)]

    def kill() -> None:
        while not stopping.wait(LIVES_SECONDS):
            oldest = pickers.pop(0)
            oldest.kill()
            killed.append(oldest.wait())
            for child in psutil.Process().children(recursive=True):
                # The worker's main process has children; it replaces them.
                with suppress(psutil.Error):  # It has ended meanwhile.
                    if "celery" in " ".join(child.cmdline()) and not child.children():
                        child.kill()
                        break
            pickers.append(subprocess.Popen(command, cwd=CHECKOUT, env=environment))

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        yield killed
    finally:
        stopping.set()
        killer.join(30)
        end_processes(pickers)


def test_a_section_opens_on_time_while_pickers_and_executors_are_killed(tmp_path: Path) -> None:
    event = make_event(general_admission=5)
    guard(event, "floor", needs_access=True, who="test")
    at = schedule_times.whole_minute(clock.now()) + timedelta(minutes=1)
    task_id = facade.schedule_task(
        "reservations.open_section",
        {"section": "floor"},
        facade.Schedule(once_at=at),
        scope=facade.Scope(event.id),
        who="ada",
    )
    with started(tmp_path, "worker"):
        wait_until(lambda: orchestrator.read_plan().executors == 2, "the worker reports its executors")
        # Not at the minute, so that the test need not wait for it.
        ScheduledTask.objects.filter(pk=task_id).update(next_run_at=clock.now() + timedelta(seconds=DUE_IN_SECONDS))
        with killed_again_and_again() as killed:
            wait_until(lambda: TaskRun.objects.filter(state="succeeded").exists(), "the task has run")
    run = TaskRun.objects.get()
    assert run.started_at is not None
    assert timedelta() <= run.started_at - run.scheduled_for < timedelta(seconds=30)
    assert not Section.objects.get(slug="floor").needs_access
    assert InventoryChange.objects.filter(kind=InventoryChange.Kind.OPENED).count() == 1
    assert killed.count(-9) >= 1
    assert_audit_clean()
