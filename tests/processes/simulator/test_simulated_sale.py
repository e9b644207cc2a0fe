"""A small on-sale: simulated visitors pass the waiting room while Redis loses all its data half-way, and the audit is
clean afterwards.

Real servers, the gatekeeper as its own process, the visitors over HTTP. `make demo` and
benchmarks/rehearsals/flash_sale.py do the same with thousands of visitors.
"""

import asyncio
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from django.core.management import call_command
from django.db import connections

from apps.kernel.outbox import facade as outbox
from apps.orders.models import Order
from apps.queue.models import AdmissionBatch, QueueEntry
from tests.support.databases import database_url
from tests.support.queue.rooms import make_room
from tests.support.servers import CHECKOUT
from ticketing.simulator import population
from ticketing.simulator.plan import Plan

if TYPE_CHECKING:
    from redis import Redis

RATE, ACTIVE, VISITORS, BUYERS = 20, 15, 60, 15
FLUSH_AFTER = VISITORS // 4
SECONDS_MAX = 300
pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def gatekeeper() -> Iterator[None]:
    """Run `manage.py gatekeeper` as a process on the test's database."""
    url = database_url()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "manage.py", "gatekeeper"],
        cwd=CHECKOUT,
        env=os.environ | {"DATABASE_URL": url, "DATABASE_DIRECT_URL": url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
        assert process.poll() is None, "the gatekeeper ended by itself"
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextmanager
def messages_delivered() -> Iterator[None]:
    """Deliver outbox messages meanwhile, as a worker does: charges reach the sandbox."""
    stopping = threading.Event()

    def deliver() -> None:
        try:
            while not stopping.is_set():
                if not outbox.deliver():
                    stopping.wait(0.1)
        finally:
            connections.close_all()

    thread = threading.Thread(target=deliver, name="deliveries")
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(timeout=60)


def test_visitors_pass_the_waiting_room_while_redis_loses_its_data(
    live_site: str, redis_client: "Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(population, "CHECK_SECONDS", 0.05)
    event = make_room("flash-sale", rate=RATE, active=ACTIVE, general_admission=200)
    plan = Plan(
        event=event.slug,
        base=live_site,
        visitors=VISITORS,
        over_seconds=1,
        buyers=BUYERS,
        listeners=1,
        listen_by="poll",  # The site by itself has no streams.
        double=0.5,
        change=0.5,
        back=0.5,
        stay_seconds=0.4,
        seconds_max=SECONDS_MAX,
        connections=6,
        rate_max=RATE,
        active_max=ACTIVE,
    )
    not_admitted: list[int] = []

    def flush_half_way(run: population.Run) -> None:
        admitted = run.figures.counts["admitted"]
        if not not_admitted and admitted >= FLUSH_AFTER:
            redis_client.flushall()
            not_admitted.append(VISITORS - admitted)

    with gatekeeper(), messages_delivered():
        result = asyncio.run(population.run(plan, flush_half_way))

    counts = result.figures.counts
    assert result.is_clean, result.figures.breaches
    assert not result.ended
    assert not_admitted, "Redis was flushed while visitors were waiting"
    # A visitor who returned joined once more.
    assert counts["joined"] == VISITORS + counts["came back"]
    assert counts["double clicks"] > 0
    assert counts["second tabs refused"] > 0
    assert counts["changed their mind"] > 0
    assert counts["bought"] == Order.objects.filter(status="confirmed").count() > 0
    assert not QueueEntry.objects.filter(status__in=QueueEntry.LIVE).exists()
    assert_caps_were_kept()
    call_command("audit")  # Exits where it finds a breach.


def assert_caps_were_kept() -> None:
    """Check the recorded batches: never more active visitors than the cap, and in no interval more admissions than the
    rate allows, with half a second's worth accumulated."""
    batches = list(AdmissionBatch.objects.order_by("at", "id"))
    assert batches
    assert all(batch.active_count <= batch.active_max == ACTIVE for batch in batches)
    for (first, begin), (last, end) in itertools.combinations(enumerate(batches), 2):
        admitted = sum(batch.count for batch in batches[first : last + 1])
        allowed = RATE / 2 + RATE * (end.at - begin.at).total_seconds()
        assert admitted <= allowed + 0.001, f"{admitted} admitted where {allowed:.1f} are allowed"
