"""The test harness works as described."""

import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection

from tests.support.races import in_another_connection, rival_connection, storm, values
from tests.support.tiers import LONGEST, TESTS, deal


@pytest.mark.django_db
def test_tests_use_postgresql_18_and_a_test_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int, current_database()")
        version, database = cursor.fetchone()
    assert version // 10_000 == 18
    assert database.startswith("test_")


def test_redis_is_empty_and_has_version_9(redis_client) -> None:
    assert redis_client.dbsize() == 0
    assert redis_client.info("server")["valkey_version"].startswith("9.")
    redis_client.set("left-behind", 1)


def test_redis_is_empty_again_in_the_next_test(redis_client) -> None:
    assert redis_client.dbsize() == 0


@pytest.mark.django_db(transaction=True)
def test_a_storm_runs_its_threads_at_the_same_time_and_returns_outcomes_in_order() -> None:
    together = threading.Barrier(8)

    def act(number: int) -> int:
        together.wait(timeout=10)  # Passes only if eight threads are here at the same time.
        if number == 3:
            raise LookupError(number)
        return number * 10

    outcomes = storm(8, act)
    assert [outcome.value for outcome in outcomes] == [0, 10, 20, None, 40, 50, 60, 70]
    with pytest.raises(LookupError):
        values(outcomes)


@pytest.mark.django_db(transaction=True)
def test_a_storm_that_hangs_fails_and_names_the_thread() -> None:
    never, at_the_end = threading.Event(), 5
    try:
        with pytest.raises(AssertionError, match="storm-0"):
            storm(1, lambda _: never.wait(timeout=at_the_end), seconds_max=0.2)
    finally:
        never.set()


@pytest.mark.django_db(transaction=True)
def test_a_rival_uses_another_connection_and_sees_only_committed_data(second_connection) -> None:
    with second_connection.cursor() as cursor, connection.cursor() as mine:
        cursor.execute("SELECT pg_backend_pid()")
        mine.execute("SELECT pg_backend_pid()")
        assert cursor.fetchone() != mine.fetchone()

    def pid() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return cursor.fetchone()[0]

    with rival_connection() as rival, rival.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        assert len({cursor.fetchone()[0], pid(), in_another_connection(pid)}) == 3


def test_every_parallel_worker_has_its_own_redis(redis_client) -> None:
    assert f"/fairgate-test-{os.getpid()}-" in redis_client.config_get("dir")["dir"]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_each_worker_begins_with_its_part_of_the_longest_tests(workers: int) -> None:
    def items(path: str, count: int) -> list[Any]:
        return [SimpleNamespace(path=TESTS / path, nodeid=f"{path}::{number}") for number in range(count)]

    longest = items(f"{LONGEST[0]}/test_it.py", 2) + items("models/test_it.py", 3)
    others = items("accounts/test_it.py", 31)
    given = [*others[:20], *longest[2:], *others[20:], *longest[:2]]
    dealt = deal(given, workers)
    assert sorted(dealt, key=given.index) == given
    # As `--dist worksteal` divides the list.
    starts = [len(given) * number // workers for number in range(workers)]
    for number, start in enumerate(starts):
        share = longest[number::workers]
        assert dealt[start : start + len(share)] == share
