"""Two web processes fill a section from both sides while its gate is reset: no free seat is refused afterwards."""

import json
import os
import random
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from apps.events import facade as events
from apps.reservations.gate import gate, rebuild
from apps.reservations.models import SeatInventory
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean, join, make_event
from tests.support.reservations.gates import disable_expiry
from tests.support.servers import CHECKOUT
from tests.support.tiers import examples

pytestmark = pytest.mark.django_db(transaction=True)

RIVALS = [sys.executable, "-m", "tests.processes.reservations.rivals"]
ROUNDS = 75
"""Rounds of pairs, and as many of triples, with all examples. If the gate added every change to every count, 7 of 40
rounds of pairs and 3 of 40 rounds of triples refused free seats: both tests would pass once in hundreds of millions of
runs."""
BUYERS = 64
RING = [f"hall-{row}-{number}" for row in "ABCDE" for number in range(1, 11)]


@contextmanager
def start_rivals() -> Iterator["list[subprocess.Popen[str]]"]:
    environment = {**os.environ, "DATABASE_URL": database_url()}
    processes = [
        subprocess.Popen(
            RIVALS, cwd=CHECKOUT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def run_round(processes: "list[subprocess.Popen[str]]", event: events.EventView, size: int) -> None:
    """Let every buyer of both processes request `size` neighbors of the ring. Reset the gate again and again until the
    first process has all its answers; its last reset reads while the other process commits."""
    shares: list[list[tuple[str, list[str]]]] = [[], []]
    for number in range(BUYERS):
        first = random.randrange(len(RING))
        seats = [RING[(first + offset) % len(RING)] for offset in range(size)]
        shares[number % 2].append((str(join(event).id), seats))
    for process, buyers in zip(processes, shares, strict=True):
        assert process.stdin is not None
        process.stdin.write(json.dumps({"event": event.slug, "buyers": buyers}) + "\n")
        process.stdin.flush()
    answers = [process.stdout for process in processes if process.stdout is not None]
    while not select.select(answers, [], [], 0)[0]:
        assert rebuild.reset(event.id) in rebuild.OPENED
    for answer in answers:
        assert answer.readline() == "done\n"


@pytest.mark.parametrize("size", [2, 3])
def test_no_free_seat_is_refused_once_every_rival_has_its_answer(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disable_expiry(monkeypatch)
    refused: list[tuple[str, str]] = []
    with start_rivals() as processes:
        for number in range(examples(ROUNDS)):
            event = make_event(f"round-{number}")
            assert rebuild.reset(event.id) in rebuild.OPENED
            run_round(processes, event, size)
            free = SeatInventory.objects.filter(event_id=event.id, status=SeatInventory.Status.AVAILABLE)
            refused += [
                (event.slug, seat)
                for seat in free.values_list("seat__guid", flat=True)
                if gate.refusal(event, uuid4(), {"seats": [seat]}, "a-key") is not None
            ]
    assert refused == []
    assert_audit_clean()
