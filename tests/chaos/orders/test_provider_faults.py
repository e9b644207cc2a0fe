"""A provider that responds with 500, with garbage, too late or never, before or after it took the money."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import pytest

from apps.kernel import clock
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.cancellation import order_cancellation
from apps.orders.models import ATTEMPTS_MAX
from apps.orders.payments.providers.protocol import Kind, ProviderFault
from tests.support.chaos.harness import OpenScenario, Sale, Scenario
from tests.support.orders.sale import deliver_outbox

pytestmark = pytest.mark.django_db(transaction=True)
ALWAYS = 1_000_000


class Garbage(Exception):
    """Stands for an unreadable response."""


FAULTS: dict[str, tuple[str, Callable[[], Exception]]] = {
    "500": ("before", lambda: ProviderFault("500")),
    "no connection": ("before", lambda: ConnectionError("refused")),
    "timed out before": ("before", lambda: ProviderFault("timed out")),
    "timed out after": ("after", lambda: ProviderFault("timed out")),
    "garbage after": ("after", lambda: Garbage("<html>")),
}
TIMES = (1, 2, ALWAYS)
"""How often a call fails before it succeeds."""


@dataclass(frozen=True)
class Case:
    fault: str
    times: int
    answers: Kind

    def __str__(self) -> str:
        often = "always" if self.times == ALWAYS else f"{self.times} times"
        return f"{self.fault}, {often}, then {self.answers}"


def cases() -> Iterator[Case]:
    for fault, times, answers in product(FAULTS, TIMES, (Kind.SUCCEEDED, Kind.DECLINED, Kind.PENDING)):
        yield Case(fault, times, answers)


class Failing:
    """Makes the calls with these keys fail as their case requires."""

    def __init__(self, *calls: str) -> None:
        self.calls = calls
        self.cases: dict[str, Case] = {}
        self.failed: dict[tuple[str, str], int] = {}
        self.over = False

    def __call__(self, call: str, when: str, key: str) -> None:
        case = self.cases.get(key)
        if self.over or case is None or call not in self.calls or FAULTS[case.fault][0] != when:
            return
        if self.failed.get((key, call), 0) < case.times:
            self.failed[key, call] = self.failed.get((key, call), 0) + 1
            raise FAULTS[case.fault][1]()


def deliver_without_waiting(scenario: Scenario, rounds: int) -> None:
    """Deliver the outbox, with this many rounds of retries before the last one, without waiting for pauses."""
    for _ in range(rounds):
        deliver_outbox()
        OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now(), claimed_until=None)
    deliver_outbox()


def place_sales(scenario: Scenario, played: list[Case]) -> list[Sale]:
    return scenario.place([str(case) for case in played])


@pytest.mark.parametrize("pauses", [False, True], ids=["every attempt calls the provider", "paused"])
@pytest.mark.parametrize("calls", [("charge",), ("charge", "find_charge")], ids=["charge", "charge and inquiry"])
def test_a_charge_that_fails_is_taken_once_or_not_at_all(
    calls: tuple[str, ...], pauses: bool, open_scenario: OpenScenario, settings
) -> None:
    """The fault ends after a few attempts, or only after the payment deadline: then the money is refunded, or the sale
    stands if it was taken in time and its seats are free. While a failing provider is paused, charges that would have
    succeeded wait as well."""
    settings.PAYMENT_FAULTS_MAX = settings.PAYMENT_FAULTS_MAX if pauses else ALWAYS
    played = list(cases())
    scenario, failing = open_scenario(len(played)), Failing(*calls)
    scenario.provider.at = failing
    sales = place_sales(scenario, played)
    for case, sale in zip(played, sales, strict=True):
        key = str(sale.payment().pk)
        failing.cases[key] = case
        scenario.provider.answers_of[key] = case.answers
    deliver_without_waiting(scenario, rounds=5)
    for case, sale in zip(played, sales, strict=True):
        if not pauses and case.times * len(calls) <= ATTEMPTS_MAX and case.answers == Kind.SUCCEEDED:
            assert sale.order.status == "confirmed", sale.label
    scenario.backdate_deadlines(sales, 20)
    scenario.sweep()
    deliver_without_waiting(scenario, rounds=2)
    failing.over = True
    scenario.assert_converged()
    assert all(
        len(scenario.provider.charges[str(sale.payment().pk)].facts) <= 2
        for sale in sales
        if was_captured(scenario, sale)
    )


def was_captured(scenario: Scenario, sale: Sale) -> bool:
    charge = scenario.provider.charges.get(str(sale.payment().pk))
    return charge is not None and charge.captured_minor > 0


def test_a_failing_refund_returns_the_money_once(open_scenario: OpenScenario) -> None:
    played = [case for case in cases() if case.answers == Kind.SUCCEEDED]
    scenario, failing = open_scenario(len(played)), Failing("refund")
    scenario.provider.answers = Kind.SUCCEEDED
    sales = scenario.charge([f"refund: {case}" for case in played])
    scenario.provider.at = failing
    for case, sale in zip(played, sales, strict=True):
        assert order_cancellation.refund_order(sale.order_id, "staff:1")
        failing.cases[str(sale.payment().refunds.get().pk)] = case
    deliver_without_waiting(scenario, rounds=5)
    failing.over = True
    scenario.assert_converged()
    assert {sale.order.status for sale in sales} == {"refunded"}
    assert all(len(scenario.provider.charges[str(sale.payment().pk)].refunds) == 1 for sale in sales)
