"""A provider that answers 500, not at all, too late, or nonsense: before it took the money and after."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import pytest

from apps.kernel import clock
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.cancellation import order_cancellation
from apps.orders.models import ATTEMPTS_MAX
from apps.orders.payments.providers.protocol import Kind, ProviderFault
from tests.support.chaos.harness import House, OpenHouse, Sale
from tests.support.orders.sale import deliver_outbox

pytestmark = pytest.mark.django_db(transaction=True)
ALWAYS = 1_000_000


class Garbage(Exception):
    """Stands for an answer that cannot be read."""


FAULTS: dict[str, tuple[str, Callable[[], Exception]]] = {
    "500": ("before", lambda: ProviderFault("500")),
    "no connection": ("before", lambda: ConnectionError("refused")),
    "timed out before": ("before", lambda: ProviderFault("timed out")),
    "timed out after": ("after", lambda: ProviderFault("timed out")),
    "garbage after": ("after", lambda: Garbage("<html>")),
}
TIMES = (1, 2, ALWAYS)
"""How often a call fails before it goes well."""


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
    """Lets calls about these keys fail as their case says."""

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


def deliver_without_waiting(house: House, rounds: int) -> None:
    """What failed was tried again so many times; the pauses between are over at once."""
    for _ in range(rounds):
        deliver_outbox()
        OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now(), claimed_until=None)
    deliver_outbox()


def sales_of(house: House, played: list[Case]) -> list[Sale]:
    return house.place([str(case) for case in played])


@pytest.mark.parametrize("rests", [False, True], ids=["asked every time", "left alone"])
@pytest.mark.parametrize("calls", [("charge",), ("charge", "find_charge")], ids=["charge", "charge and question"])
def test_a_charge_that_fails_is_taken_once_or_not_at_all(
    calls: tuple[str, ...], rests: bool, open_house: OpenHouse, settings
) -> None:
    """The fault ends after a few tries, or only when all time to pay is over: then whatever was taken goes back, or
    stands if it was taken in time and its seats are free. Where a failing provider is left alone, charges that would
    have gone well wait for it too."""
    settings.PAYMENT_FAULTS_MAX = settings.PAYMENT_FAULTS_MAX if rests else ALWAYS
    played = list(cases())
    house, failing = open_house(len(played)), Failing(*calls)
    house.books.at = failing
    sales = sales_of(house, played)
    for case, sale in zip(played, sales, strict=True):
        key = str(sale.payment().pk)
        failing.cases[key] = case
        house.books.answers_of[key] = case.answers
    deliver_without_waiting(house, rounds=5)
    for case, sale in zip(played, sales, strict=True):
        if not rests and case.times * len(calls) <= ATTEMPTS_MAX and case.answers == Kind.SUCCEEDED:
            assert sale.order.status == "confirmed", sale.label
    house.until_deadline_passed(sales, 20)
    house.sweep()
    deliver_without_waiting(house, rounds=2)
    failing.over = True
    house.assert_converged()
    assert all(len(house.books.charges[str(sale.payment().pk)].facts) <= 2 for sale in sales if took(house, sale))


def took(house: House, sale: Sale) -> bool:
    charge = house.books.charges.get(str(sale.payment().pk))
    return charge is not None and charge.captured_minor > 0


def test_a_refund_that_fails_gives_the_money_back_once(open_house: OpenHouse) -> None:
    played = [case for case in cases() if case.answers == Kind.SUCCEEDED]
    house, failing = open_house(len(played)), Failing("refund")
    house.books.answers = Kind.SUCCEEDED
    sales = house.charge([f"refund: {case}" for case in played])
    house.books.at = failing
    for case, sale in zip(played, sales, strict=True):
        assert order_cancellation.refund_order(sale.order_id, "staff:1")
        failing.cases[str(sale.payment().refunds.get().pk)] = case
    deliver_without_waiting(house, rounds=5)
    failing.over = True
    house.assert_converged()
    assert {sale.order.status for sale in sales} == {"refunded"}
    assert all(len(house.books.charges[str(sale.payment().pk)].refunds) == 1 for sale in sales)
