"""Turns of accounts for heavy work: those that were refused come first, if they come."""

import pytest

from apps.kernel.rate_limits import account_turns
from apps.kernel.rate_limits.account_turns import AccountTurns


class Refused(Exception):
    pass


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(account_turns, "time", clock)
    return clock


@pytest.fixture
def turns(clock: Clock) -> AccountTurns:
    return AccountTurns("test-work", 1, Refused, if_own="own", if_others="others")


def works(turns: AccountTurns, account: str) -> bool:
    try:
        with turns.take(account):
            return True
    except Refused:
        return False


def test_a_free_slot_is_kept_for_an_account_that_was_refused(turns: AccountTurns, clock: Clock) -> None:
    with turns.take("ann"):
        assert not works(turns, "ben")
        clock.now += 100
    assert not works(turns, "ann")
    clock.now += account_turns.TURN_SECONDS
    assert works(turns, "ben"), "from when the slot is free"
    assert works(turns, "ann")


def test_an_account_that_does_not_come_loses_its_turn_and_gets_none_for_a_minute(
    turns: AccountTurns, clock: Clock
) -> None:
    """Otherwise it keeps others from working by asking alone."""
    with turns.take("ann"):
        assert not works(turns, "ben")
    clock.now += account_turns.TURN_SECONDS + 1
    assert works(turns, "ann")
    with turns.take("ann"):
        assert not works(turns, "ben")
    assert works(turns, "ann")
    assert works(turns, "ben"), "it may work like any other"
    clock.now += account_turns.PASSED_SECONDS + 1
    with turns.take("ann"):
        assert not works(turns, "ben")
    assert not works(turns, "ann")
    assert works(turns, "ben")


def test_those_that_were_refused_keep_their_order(turns: AccountTurns, clock: Clock) -> None:
    with turns.take("ann"):
        assert not works(turns, "ben")
        assert not works(turns, "cleo")
        assert not works(turns, "ben")
    assert not works(turns, "cleo")
    assert works(turns, "ben")
    assert works(turns, "cleo")
