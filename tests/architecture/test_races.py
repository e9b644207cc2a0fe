"""The tools for race tests fail loudly if the race they should produce does not happen."""

import pytest
from django.db import connection, transaction

from apps.kernel.db import sql
from tests.support.races import ConcurrentCall, rival_at, rival_waiting_at, run_at, statements

pytestmark = pytest.mark.django_db(transaction=True)

read_clock = sql.load("apps.reservations", "read_clock")


def lock() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(1)")


def read_the_clock() -> None:
    with connection.cursor() as cursor:
        read_clock.rows(cursor)


def test_a_blocked_call_is_detected_and_its_result_is_returned() -> None:
    with transaction.atomic():
        lock()
        rival = ConcurrentCall(lambda: (lock(), "locked")[1]).wait_until_blocked()
    assert rival.result() == "locked"


def test_a_call_that_never_blocks_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="ended without waiting"):
        ConcurrentCall(lambda: None).wait_until_blocked()


def test_an_exception_in_a_call_is_raised_by_result() -> None:
    def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        ConcurrentCall(fail).result()


@pytest.mark.parametrize("tool", [run_at, rival_at, rival_waiting_at])
def test_a_statement_that_never_runs_fails_the_test(tool: object) -> None:
    with pytest.raises(AssertionError, match="never"), tool("no_such_statement", "before", read_the_clock):  # type: ignore[operator]
        read_the_clock()


def test_a_rival_runs_once_and_may_run_the_same_statement() -> None:
    with statements() as mine, rival_at("read_clock", "after", read_the_clock) as rival:
        read_the_clock()
        read_the_clock()
    assert rival.has_run
    assert mine == ["read_clock", "read_clock"]


def test_a_rival_that_waits_for_our_lock_continues_when_we_release_it() -> None:
    with transaction.atomic():
        lock()
        with rival_waiting_at("read_clock", "before", lock) as rival:
            read_the_clock()
    assert rival.result() is None
