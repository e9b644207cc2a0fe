"""One event with many listeners, and the processes that serve it, for benchmarks."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import Any

import psutil

from benchmarks.support.stream_clients import CAPACITY

SLUG = "listened"
PATH = f"/api/events/{SLUG}/sections/updates"
SECTION_COUNT = 20
START_SECONDS_MAX = 120.0
SETTLED_SECONDS = 3.0
# All load comes from one machine, so the limits per address and per process must not apply.
LOAD_SETTINGS = {
    "RATE_LIMITS_EXEMPT": "127.0.0.0/8,::1/128",
    "LIVE_LISTENERS_MAX": "50000",
    "WEB_CONNECTIONS_MAX": "50000",
    "ACCESS_LOG_SAMPLE": "0",
    "ACCESS_LOG_SLOW_SECONDS": "3600",
}


def make_event(*, room: Any = None) -> Any:
    """Create an event on sale with twenty sections of a million tickets each."""
    from apps.events import facade as events
    from apps.events.creation import EventSpec, GeneralAdmission, create_event
    from apps.kernel import clock

    create_event(
        EventSpec(
            slug=SLUG, name="Listened", venue="The Venue", starts_at=clock.now() + timedelta(days=30), currency="USD",
            general_admission=tuple(
                GeneralAdmission(f"Floor {number}", CAPACITY, 1_000) for number in range(SECTION_COUNT)
            ),
            opens_at=clock.now() - timedelta(minutes=1), room=room, hold_seconds=7200,
        )
    )  # fmt: skip
    return events.get_event(SLUG)


def admit_buyers(event: Any, count: int) -> list[str]:
    """Admit this many buyers and return their admission tokens."""
    from apps.queue.identity.caller import issue_admission_token
    from apps.queue.models import WaitingRoom
    from benchmarks.support import halls

    halls.admit_buyers(event, range(count))
    WaitingRoom.objects.filter(event_id=event.id).update(next_number=count + 1, head=count)
    halls.vacuum_tables()
    return [
        issue_admission_token(halls.entry_of(event, number), event.slug, number + 1, None) for number in range(count)
    ]


_INSERT_ENTRIES = """
INSERT INTO queue_queueentry (id, event_id, number, in_lobby, nonce, marked, visitor_id, status, joined_at)
SELECT gen_random_uuid(), %(event_id)s, number, false, decode(md5(random()::text), 'hex'), '', 'waits-' || number,
       'waiting', clock_timestamp()
FROM generate_series(%(after)s + 1, %(after)s + %(count)s) AS number
"""
TOKENS_MAX = 10_000


def fill_waiting_room(event: Any, count: int, *, after: int) -> list[str]:
    """Open the room with `count` visitors waiting behind the first `after`, and return queue tokens of the last
    ones."""
    from django.db import connection

    from apps.queue.identity.caller import issue_queue_token
    from apps.queue.models import QueueEntry, WaitingRoom
    from benchmarks.support import halls

    with connection.cursor() as cursor:
        cursor.execute(_INSERT_ENTRIES, {"event_id": event.id, "count": count, "after": after})
    WaitingRoom.objects.filter(event_id=event.id).update(state="open", next_number=after + count + 1)
    halls.vacuum_tables()
    last = QueueEntry.objects.filter(event_id=event.id, number__gt=after + count - TOKENS_MAX)
    return [issue_queue_token(entry_id, event.slug, number) for entry_id, number in last.values_list("id", "number")]


def count_held() -> int:
    """Return the number of tickets held or sold."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(sum(taken), 0) FROM reservations_generaladmissioninventory")
        ((taken,),) = cursor.fetchall()
    return int(taken)


def read_hold_times(after: int) -> list[float]:
    """Return when the holds after the first `after` were written, each shortly before its commit."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM created_at)::float8 FROM reservations_reservation ORDER BY created_at OFFSET %s",
            [after],
        )
        return [moment for (moment,) in cursor.fetchall()]


@contextmanager
def environment(**more: str) -> Iterator[dict[str, str]]:
    """Yield the environment of one deployment's processes."""
    folder = tempfile.mkdtemp(prefix="fairgate-figures-")
    try:
        yield {**os.environ, **LOAD_SETTINGS, "METRICS_FOLDER": folder, **more}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def run_commands(environment: dict[str, str], commands: Sequence[str]) -> Iterator[None]:
    """Run the deployment's other processes, named by their management commands."""
    with ExitStack() as until:
        for command in commands:
            until.enter_context(running([sys.executable, "manage.py", command], environment))
        yield


@contextmanager
def running(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    """Run a process until the block ends."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def run_server(command: list[str], port: int, environment: dict[str, str]) -> Iterator[psutil.Process]:
    """Start the server, and wait until it listens and is idle."""
    process = psutil.Popen(command, env={**environment, "PORT": str(port)}, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS_MAX
    try:
        while True:
            assert process.poll() is None, f"{command} ended"
            assert time.monotonic() < deadline, f"{command} does not listen"
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        time.sleep(SETTLED_SECONDS)
        yield process
    finally:
        for one in [*process.children(recursive=True), process]:
            with suppress(psutil.Error):
                one.kill()
        process.wait()


WEB = [sys.executable, "-m", "ticketing.server.run"]


def worker_of(process: psutil.Process) -> psutil.Process:
    """Return the process that has the connections, for a server with a single worker."""
    return max([process, *process.children(recursive=True)], key=lambda one: one.memory_info().rss)


def cpu_seconds(process: psutil.Process) -> float:
    """Return the processor seconds of the process and its children."""
    return sum(sum(one.cpu_times()[:2]) for one in [process, *process.children(recursive=True)])
