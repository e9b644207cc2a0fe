"""Several web processes, each with its own group commit and connections, on the same rows; and one process that loses
Redis during a storm."""

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from apps.kernel.http import problems
from apps.reservations import facade as reservations
from apps.reservations.gate import rebuild
from tests.support.batches import wait_until
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean, join, make_event
from tests.support.own_redis import OwnRedis
from tests.support.races import storm, values
from tests.support.reservations.buyers import ATTEMPTS_MAX, get_general_admission, run_sql
from tests.support.reservations.gates import disable_expiry
from tests.support.servers import CHECKOUT

pytestmark = pytest.mark.django_db(transaction=True)

SHOP = [sys.executable, "-m", "tests.processes.reservations.shop"]
SECONDS_MAX = 120


def open_shop(demands: list[dict[str, Any]]) -> "subprocess.Popen[str]":
    url = database_url()
    process = subprocess.Popen(
        SHOP, cwd=CHECKOUT, env={**os.environ, "DATABASE_URL": url}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    send_line(process, json.dumps(demands))
    return process


def send_line(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def deadlocks() -> int:
    ((count,),) = run_sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return int(count)


def sessions() -> set[int]:
    """Return the process ids of client sessions; the database's own workers come and go."""
    of_clients = "datname = current_database() AND backend_type = 'client backend'"
    return {pid for (pid,) in run_sql(f"SELECT pid FROM pg_stat_activity WHERE {of_clients}")}


def test_two_processes_that_batch_on_the_same_rows_never_deadlock_and_sell_nothing_twice() -> None:
    """Two processes, 40 buyers each, in batches of any size: pairs of neighbors around a ring of 50 seats, named in
    either order, each with one of 40 general admission tickets, all in one row. Their lock waits are longer than the
    deadlock timeout of the database, and it detects none. A refused buyer lost the seats to a buyer who has them."""
    event = make_event(rows=5, seats_per_row=10, general_admission=40, per_buyer_max=4)
    ring = [f"hall-{row}-{number}" for row in "ABCDE" for number in range(1, 11)]
    demands: list[list[dict[str, Any]]] = [[], []]
    for number in range(80):
        pair = [ring[number * 7 % 50], ring[(number * 7 + 1) % 50]]
        payload = {"seats": pair if number % 3 else pair[::-1], "ga_section": "floor", "ga_quantity": 1}
        demands[number % 2].append({"event": event.slug, "entry": str(join(event).id), "payload": payload})
    before, others = deadlocks(), sessions()
    shops = [open_shop(one) for one in demands]
    try:
        for shop in shops:
            assert shop.stdout is not None
            assert shop.stdout.readline() == "ready\n", shop.stderr.read() if shop.stderr else ""
        for shop in shops:
            send_line(shop, "go")
        outcomes = [shop.communicate(timeout=SECONDS_MAX) for shop in shops]
    finally:
        for shop in shops:
            shop.kill()
            shop.wait()
    assert [shop.returncode for shop in shops] == [0, 0], outcomes
    results = [one for out, _ in outcomes for one in json.loads(out)]
    owners = Counter(guid for one in results for guid in one.get("seats", ()))
    assert set(owners.values()) == {1}
    held = sum("reservation_id" in one for one in results)
    assert len(owners) == 2 * held
    assert get_general_admission().taken == held
    refused = [one for one in results if "type" in one]
    assert {one["type"] for one in refused} == {"seats-unavailable"}
    assert all(set(one["unavailable"]) <= set(owners) for one in refused)
    # PostgreSQL publishes a session's statistics when it ends, at the latest.
    wait_until(lambda: sessions() <= others, "the sessions of both shops are gone")
    assert deadlocks() == before
    assert_audit_clean()


def test_a_storm_continues_through_the_loss_of_redis(own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve threads, four buyers each, demand one of forty tickets behind an open gate; meanwhile Redis is killed.
    Forty buyers get one, eight are refused as sold out, and none is refused before the tickets are gone."""
    disable_expiry(monkeypatch)
    event = make_event(rows=0, general_admission=40)
    entries = [join(event) for _ in range(48)]
    assert rebuild.reset(event.id) in rebuild.OPENED
    payload = {"ga_section": "floor", "ga_quantity": 1}

    def ask(number: int) -> str:
        for _ in range(ATTEMPTS_MAX):
            try:
                reservations.hold_one(event, entries[number], payload, "one")
            except problems.Problem as problem:
                if problem.retry_after_seconds is None:
                    return problem.type
            else:
                return "held"
        raise AssertionError("asked to retry forever")

    def act(thread: int) -> list[str]:
        outcomes = []
        for turn in range(4):
            if (thread, turn) == (5, 2):
                own_redis.kill()
            outcomes.append(ask(4 * thread + turn))
        return outcomes

    outcomes = Counter(word for share in values(storm(12, act)) for word in share)
    assert outcomes == {"held": 40, "sold-out": 8}
    assert get_general_admission().taken == 40
    own_redis.return_empty()
    again = Counter(ask(number) for number in range(48))
    assert again == outcomes, "each buyer has the same result"
    assert_audit_clean()
