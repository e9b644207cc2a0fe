"""A worker in its own process is killed by SIGKILL at each step of a charge and of a refund; another worker completes
its work."""

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
from tests.support.chaos.harness import INCLUDED, OpenScenario, Sale, Scenario
from tests.support.chaos.operations import SEATS, Begin, make_only_due, park, placed, refunded, unpark
from tests.support.databases import database_url
from tests.support.orders.sale import deliver_outbox
from tests.support.reservations.buyers import run_sql
from tests.support.servers import CHECKOUT

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "chaos-worker"
STEPS_MAX = 60
SECONDS_MAX = 120


class Worker:
    """A worker that waits for permission before each step."""

    def __init__(self, scenario: Scenario, channel: "Connection[Any, Any]") -> None:
        self._scenario, self._channel = scenario, channel
        what, self.pid = self._receive()
        assert what == "pid"
        self._answer(None)

    def next_step(self) -> str | None:
        """Return what it is about to do; None if it has ended."""
        while True:
            match self._receive():
                case ("step", name):
                    return str(name)
                case ("call", call, args):
                    self._answer(getattr(self._scenario.provider, call)(*args))
                case ("post", method, url, headers, body):
                    self._answer(self._scenario.organizer.request(method, url, headers, body))
                case ("done",):
                    self._answer(None)
                    return None

    def proceed(self) -> None:
        self._answer(None)

    def kill(self) -> None:
        """Kill the process, and wait until the database has noticed."""
        os.kill(self.pid, signal.SIGKILL)
        with pytest.raises((EOFError, ConnectionResetError)):
            self._receive()
        self._channel.close()
        wait_until(
            lambda: not run_sql("SELECT 1 FROM pg_stat_activity WHERE application_name = %s", [NAME]),
            "its sessions end",
        )

    def work_to_its_end(self) -> None:
        while self.next_step() is not None:
            self.proceed()
        self._channel.close()

    def _receive(self) -> Any:
        assert self._channel.poll(SECONDS_MAX), "the worker sends nothing any more"
        return self._channel.recv()

    def _answer(self, value: Any) -> None:
        self._channel.send((True, value))


class WorkerFactory:
    """Starts workers, each in its own process."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._channel = listener.accept()
        assert self._channel.recv() == "ready"

    def worker(self, scenario: Scenario) -> Worker:
        self._channel.send("work")
        return Worker(scenario, self._listener.accept())


@pytest.fixture
def worker_factory(transactional_db: None) -> Iterator[WorkerFactory]:
    with tempfile.TemporaryDirectory() as folder, Listener(f"{folder}/channel", "AF_UNIX") as listener:
        url = database_url()
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.support.chaos.worker", f"{folder}/channel"],
            cwd=CHECKOUT,
            env=os.environ | {"DATABASE_URL": url, "DATABASE_DIRECT_URL": url, "APPLICATION_NAME": NAME},
        )
        try:
            yield WorkerFactory(listener)
        finally:
            process.kill()
            process.wait(timeout=SECONDS_MAX)


def expire_claims() -> None:
    past = clock.now() - timedelta(seconds=1)
    OutboxMessage.objects.filter(done_at=None, claimed_until__gt=past).update(claimed_until=past)


@pytest.mark.parametrize(
    ("begin", "topic", "call"),
    [(placed, topics.CHARGE, "charge"), (refunded, topics.REFUND, "refund")],
    ids=["charge", "refund"],
)
def test_another_worker_completes_the_work_of_one_killed_at_any_step(
    begin: Begin, topic: str, call: str, open_scenario: OpenScenario, worker_factory: WorkerFactory
) -> None:
    """Killed before the provider is asked, after the money has moved but before its answer is stored, after the answer
    is stored but before the message is done, and around every commit in between. No worker takes the message until its
    claim expires."""
    scenario, killed_at = open_scenario(STEPS_MAX * SEATS, INCLUDED), list[str]()
    for number in range(1, STEPS_MAX + 1):
        sale = begin(scenario, f"{topic}, killed at {number}")
        make_only_due(topic)
        worker = worker_factory.worker(scenario)
        step = step_of(worker, number)
        if step is None:
            break
        sale.label += f": {step}"
        killed_at.append(step)
        worker.kill()
        if is_claimed(topic, sale):
            # Follow-up messages may exist already, and any worker may take them.
            assert topic not in [taken.topic for taken in outbox.claim(10)], sale.label
        expire_claims()
        worker_factory.worker(scenario).work_to_its_end()
        park()
    else:
        raise AssertionError(f"more than {STEPS_MAX} steps")
    assert {f"before {call}", f"after {call}", "before commit", "after commit"} <= set(killed_at), killed_at
    moved = killed_at.index(f"after {call}")
    assert killed_at[moved:].count("after commit") >= 2, (
        f"the answer and the message are committed separately: {killed_at}"
    )
    unpark()
    deliver_outbox()
    scenario.assert_converged()


def step_of(worker: Worker, number: int) -> str | None:
    """Return the step of this number, from 1, at which the worker waits; None if it had fewer and has ended."""
    for _ in range(number - 1):
        if worker.next_step() is None:
            return None
        worker.proceed()
    return worker.next_step()


def is_claimed(topic: str, sale: Sale) -> bool:
    latest = OutboxMessage.objects.filter(topic=topic, key=str(sale.order_id)).latest("pk")
    return latest.claimed_until is not None
