"""The tools that make races: each fails loudly where it would otherwise show nothing."""

import pytest
from django.db import connection, transaction

from apps.kernel.db import sql
from tests.support.races import ConcurrentCall, rival_at, rival_waiting_at, run_at, statements

pytestmark = pytest.mark.django_db(transaction=True)

read_clock = sql.load("apps.reservations", "read_clock")


def lock() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(1)")


def ask_clock() -> None:
    with connection.cursor() as cursor:
        read_clock.rows(cursor)


def test_an_act_beside_is_seen_to_wait_and_hands_over_its_result() -> None:
    with transaction.atomic():
        lock()
        rival = ConcurrentCall(lambda: (lock(), "had it")[1]).wait_until_blocked()
    assert rival.result() == "had it"


def test_an_act_that_never_waits_fails_the_test_that_says_it_would() -> None:
    with pytest.raises(AssertionError, match="ended without waiting"):
        ConcurrentCall(lambda: None).wait_until_blocked()


def test_an_act_s_exception_is_its_result() -> None:
    def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        ConcurrentCall(fail).result()


@pytest.mark.parametrize("tool", [run_at, rival_at, rival_waiting_at])
def test_a_moment_that_never_comes_fails_the_test(tool: object) -> None:
    with pytest.raises(AssertionError, match="never"), tool("no_such_statement", "before", ask_clock):  # type: ignore[operator]
        ask_clock()


def test_a_rival_comes_once_and_may_run_the_same_statement_itself() -> None:
    with statements() as mine, rival_at("read_clock", "after", ask_clock) as rival:
        ask_clock()
        ask_clock()
    assert rival.came
    assert mine == ["read_clock", "read_clock"]


def test_a_rival_that_has_to_wait_for_us_goes_on_when_we_let_go() -> None:
    with transaction.atomic():
        lock()
        with rival_waiting_at("read_clock", "before", lock) as rival:
            ask_clock()
    assert rival.result() is None
