"""A worker in a process of its own gets SIGKILL at each step of a charge and of a refund; another one ends its work."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from multiprocessing.connection import Connection, Listener
from typing import Any

import pytest

from apps.kernel import clock
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import topics
from tests.support.batches import wait_until
from tests.support.chaos.harness import INCLUDED, House, OpenHouse, Sale
from tests.support.chaos.operations import SEATS, Begin, given_back, let_only, park, placed, unpark
from tests.support.databases import database_url
from tests.support.orders.sale import deliver_outbox
from tests.support.reservations.buyers import run_sql
from tests.support.servers import CHECKOUT

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "chaos-worker"
STEPS_MAX = 60
SECONDS_MAX = 120


class Worker:
    """A worker that waits to be let go."""

    def __init__(self, house: House, line: "Connection[Any, Any]") -> None:
        self._house, self._line = house, line
        what, self.pid = self._hear()
        assert what == "pid"
        self._answer(None)

    def next_step(self) -> str | None:
        """What it is about to do now; None: it has ended."""
        while True:
            match self._hear():
                case ("step", name):
                    return str(name)
                case ("call", call, args):
                    self._answer(getattr(self._house.books, call)(*args))
                case ("post", method, url, headers, body):
                    self._answer(self._house.organizer.request(method, url, headers, body))
                case ("done",):
                    self._answer(None)
                    return None

    def go_on(self) -> None:
        self._answer(None)

    def kill(self) -> None:
        """Nothing of the process runs any more, and the database has noticed."""
        os.kill(self.pid, signal.SIGKILL)
        with pytest.raises((EOFError, ConnectionResetError)):
            self._hear()
        self._line.close()
        wait_until(
            lambda: not run_sql("SELECT 1 FROM pg_stat_activity WHERE application_name = %s", [NAME]),
            "its sessions end",
        )

    def work_to_its_end(self) -> None:
        while self.next_step() is not None:
            self.go_on()
        self._line.close()

    def _hear(self) -> Any:
        assert self._line.poll(SECONDS_MAX), "the worker says nothing any more"
        return self._line.recv()

    def _answer(self, value: Any) -> None:
        self._line.send((True, value))


class Nursery:
    """Starts workers, each a process of its own."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._line = listener.accept()
        assert self._line.recv() == "ready"

    def worker(self, house: House) -> Worker:
        self._line.send("work")
        return Worker(house, self._listener.accept())


@pytest.fixture
def nursery(transactional_db: None) -> Iterator[Nursery]:
    with tempfile.TemporaryDirectory() as folder, Listener(f"{folder}/line", "AF_UNIX") as listener:
        url = database_url()
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.support.chaos.worker", f"{folder}/line"],
            cwd=CHECKOUT,
            env=os.environ | {"DATABASE_URL": url, "DATABASE_DIRECT_URL": url, "APPLICATION_NAME": NAME},
        )
        try:
            yield Nursery(listener)
        finally:
            process.kill()
            process.wait(timeout=SECONDS_MAX)


def let_claims_run_out() -> None:
    past = clock.now() - timedelta(seconds=1)
    OutboxMessage.objects.filter(done_at=None, claimed_until__gt=past).update(claimed_until=past)


@pytest.mark.parametrize(
    ("begin", "topic", "call"),
    [(placed, topics.CHARGE, "charge"), (given_back, topics.REFUND, "refund")],
    ids=["charge", "refund"],
)
def test_killed_at_any_step_another_worker_ends_it(
    begin: Begin, topic: str, call: str, open_house: OpenHouse, nursery: Nursery
) -> None:
    """Killed with the provider not asked yet, with the money moved and the answer nowhere, with the answer written and
    the message still there, and around every commit in between. Until its claim runs out nobody takes the message."""
    house, killed_at = open_house(STEPS_MAX * SEATS, INCLUDED), list[str]()
    for number in range(1, STEPS_MAX + 1):
        sale = begin(house, f"{topic}, killed at {number}")
        let_only(topic)
        worker = nursery.worker(house)
        step = step_of(worker, number)
        if step is None:
            break
        sale.label += f": {step}"
        killed_at.append(step)
        worker.kill()
        if is_claimed(topic, sale):
            # What follows from it may be there already, and is anybody's to take.
            assert topic not in [taken.topic for taken in outbox.claim(10)], sale.label
        let_claims_run_out()
        nursery.worker(house).work_to_its_end()
        park()
    else:
        raise AssertionError(f"more than {STEPS_MAX} steps")
    assert {f"before {call}", f"after {call}", "before commit", "after commit"} <= set(killed_at), killed_at
    moved = killed_at.index(f"after {call}")
    assert killed_at[moved:].count("after commit") >= 2, f"the answer and the message end apart: {killed_at}"
    unpark()
    deliver_outbox()
    house.assert_converged()


def step_of(worker: Worker, number: int) -> str | None:
    """The worker waits at its step of this number, from 1; None: it had fewer, and has ended."""
    for _ in range(number - 1):
        if worker.next_step() is None:
            return None
        worker.go_on()
    return worker.next_step()


def is_claimed(topic: str, sale: Sale) -> bool:
    latest = OutboxMessage.objects.filter(topic=topic, key=str(sale.order_id)).latest("pk")
    return latest.claimed_until is not None
