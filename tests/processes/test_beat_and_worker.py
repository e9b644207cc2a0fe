"""The Procfile's `beat`, `worker` and `mailer` run as real processes: the scheduled tasks run, outbox messages are
delivered."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.core import mail
from django.db.models import F
from django_celery_beat.models import PeriodicTask, PeriodicTasks
from django_celery_beat.schedulers import ModelEntry
from honcho.environ import parse_procfile

from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.kernel.models import AuditRun, ReconcileRun
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.models import Order, Ticket
from apps.reservations.models import CleanupLog, GeneralAdmissionInventory, Reservation
from tests.support.batches import connect, run_sql
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, make_event
from tests.support.orders.sale import place_order
from tests.support.servers import CHECKOUT, end_processes
from tests.support.web_processes import WAIT_SECONDS_MAX, wait_until
from ticketing.celery import app

pytestmark = pytest.mark.django_db(transaction=True)

QUEUE = "celery:celery"
CHANGES = PeriodicTasks._meta.db_table
WAITING_FOR_CHANGES = f"""
    SELECT count(*) FROM pg_locks
    WHERE NOT granted AND relation = '{CHANGES}'::regclass
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@contextmanager
def started(folder: Path, *names: str, **more: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run these processes of the Procfile on the test's servers, with `more` environment, until the block ends."""
    commands = parse_procfile((CHECKOUT / "Procfile").read_text()).processes
    environment = os.environ | {
        "DATABASE_URL": database_url(),
        "DATABASE_DIRECT_URL": database_url(),
        "BEAT_FILE": str(folder / "celerybeat"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **more,
    }
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for name in names:
            with open(folder / name, "wb") as output:
                processes.append(
                    subprocess.Popen(
                        commands[name],
                        shell=True,
                        cwd=CHECKOUT,
                        env=environment,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )
        yield processes
        assert [process.poll() for process in processes] == [None] * len(processes), "a process ended by itself"
    except BaseException:
        for output in filter(Path.exists, map(folder.joinpath, names)):
            print(f"--- {output.name}\n{output.read_text(errors='replace')[-3000:]}")
        raise
    finally:
        for process in processes:
            process.terminate()
        with suppress(subprocess.TimeoutExpired):
            for process in processes:
                process.wait(WAIT_SECONDS_MAX)
        end_processes(processes)


def make_schedule_due() -> None:
    """Make every task of the schedule due as soon as beat starts."""
    for name, entry in settings.CELERY_BEAT_SCHEDULE.items():
        ModelEntry.from_entry(name, app=app, **entry)
    PeriodicTask.objects.update(last_run_at=clock.now() - timedelta(days=2))


def assert_every_task_is_stored_as_sent() -> None:
    sent = PeriodicTask.objects.filter(total_run_count__gt=0).values_list("name", flat=True)
    assert set(sent) >= set(settings.CELERY_BEAT_SCHEDULE)


def test_beat_and_worker_sweep_audit_reconcile_and_deliver(tmp_path: Path) -> None:
    event = make_event(general_admission=10)
    lapsed = hold(event, seats=["hall-A-1"])
    backdate_deadline(lapsed.id)
    # The first audit of changes only sets its horizon. The hold then makes the next one count the section.
    auditor.run_on_changes_and_record()
    held = hold(event, seats=["hall-A-2"], ga_section="floor", ga_quantity=2)
    assert GeneralAdmissionInventory.objects.update(taken=F("taken") + 1) == 1
    make_schedule_due()
    with started(tmp_path, "beat", "worker", "mailer"):
        order = place_order(held)
        wait_until(lambda: Reservation.objects.get(pk=lapsed.id).status == "expired", "the sweep")
        wait_until(lambda: Ticket.objects.filter(order=order).count() == 3, "the order's tickets are issued")
        wait_until(lambda: not OutboxMessage.objects.filter(done_at=None).exists(), "every message is delivered")
        wait_until(lambda: AuditRun.objects.filter(breach_count__gt=0).exists(), "an audit finds the wrong count")
        wait_until(
            lambda: ReconcileRun.objects.filter(difference_count__gt=0).exists(), "a reconciliation finds it too"
        )
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED
    assert "[attached: " in (tmp_path / "mailer").read_text(), "the mailer sent the tickets"
    assert "[attached: " not in (tmp_path / "worker").read_text()
    assert not mail.outbox, "this process sent nothing itself"
    assert set(CleanupLog.objects.values_list("swept_by", flat=True)) == {"beat"}
    assert_every_task_is_stored_as_sent()
    GeneralAdmissionInventory.objects.update(taken=F("taken") - 1)
    assert_audit_clean()


def test_beat_stores_what_it_sent_when_it_is_stopped_in_the_middle_of_a_statement(tmp_path: Path, redis_client) -> None:
    make_schedule_due()
    with started(tmp_path, "beat") as processes:
        wait_until(lambda: redis_client.llen(QUEUE) >= len(settings.CELERY_BEAT_SCHEDULE), "every task is sent")
        [beat] = processes
        with connect() as session, session.transaction():
            session.execute(f"LOCK TABLE {CHANGES} IN ACCESS EXCLUSIVE MODE")
            wait_until(lambda: run_sql(WAITING_FOR_CHANGES) == [(1,)], "beat reads whether its schedule has changed")
            beat.terminate()
        assert beat.wait(WAIT_SECONDS_MAX) == 0
        processes.remove(beat)
    assert_every_task_is_stored_as_sent()
