"""A process killed around each commit, or its connection cut at each statement and commit, of a list of checkouts, of
provider messages and of invoices. (Lists of charges: test_charge_lists.py.)"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from apps.kernel import clock
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import topics
from apps.orders.checkout import checkout_lists
from apps.orders.checkout.buyer_details import read_details
from apps.orders.payments.providers import chosen_provider
from apps.orders.payments.providers.protocol import Kind
from tests.support.chaos.faults import Fault, strike
from tests.support.chaos.harness import OpenScenario, Sale, Scenario
from tests.support.chaos.operations import park, succeed, undo_claim, unpark
from tests.support.orders.sale import checkout_body, deliver_outbox

pytestmark = pytest.mark.django_db(transaction=True)
IN_LIST = 2
FAULTS_MAX = 100


def held(scenario: Scenario, labels: Sequence[str]) -> list[Sale]:
    scenario.provider.answers = Kind.SUCCEEDED
    return scenario.hold(labels)


def place_list(scenario: Scenario, sales: Sequence[Sale]) -> None:
    provider, checkouts = chosen_provider(), []
    for sale in sales:
        plain = checkout_lists.plain_checkout(
            sale.reservation,
            read_details(checkout_body(), methods=provider.methods),
            None,
            provider=provider.name,
            account_id=None,
            origin="",
            idempotency_key=sale.key,
            fingerprint=checkout_lists.fingerprint_of(sale.reservation, checkout_body()),
        )
        assert plain is not None
        checkouts.append(plain)
    assert all(answer for answers in checkout_lists.decide(checkouts) for answer in answers.values())


def reported(scenario: Scenario, labels: Sequence[str]) -> list[Sale]:
    """Paid, and the provider's messages are stored."""
    scenario.provider.answers = Kind.PENDING
    sales = scenario.charge(labels)
    park()
    for sale in sales:
        succeed(scenario, sale)()
    return sales


def confirmed(scenario: Scenario, labels: Sequence[str]) -> list[Sale]:
    """Confirmed, without an invoice."""
    scenario.provider.answers = Kind.SUCCEEDED
    sales = scenario.place(labels)
    for message in outbox.claim(IN_LIST):
        outbox.hand_over(message)
    park()
    orders = [str(sale.order_id) for sale in sales]
    assert OutboxMessage.objects.filter(topic=topics.INVOICE, body__order__in=orders).update(
        available_at=clock.now()
    ) == len(sales)
    return sales


def deliver_list(topic: str) -> Callable[[Scenario, Sequence[Sale]], None]:
    def deliver(scenario: Scenario, sales: Sequence[Sale]) -> None:
        outbox.hand_over_list(outbox.claim(0, busy_lists=outbox._topics.keys() - {topic}))

    return deliver


@dataclass(frozen=True)
class Lists:
    begin: Callable[[Scenario, Sequence[str]], list[Sale]]
    act: Callable[[Scenario, Sequence[Sale]], None]


LISTS = {
    "checkouts": Lists(held, place_list),
    "provider messages": Lists(reported, deliver_list(topics.PROVIDER_MESSAGE)),
    "invoices": Lists(confirmed, deliver_list(topics.INVOICE)),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("kills", [True, False], ids=["killed", "cut"])
def test_after_a_fault_at_any_step_of_a_list_each_of_it_is_done_once(
    name: str, kills: bool, open_scenario: OpenScenario
) -> None:
    """Each fault strikes a step that none struck before, in a list of its own. Then the buyers repeat their checkouts
    under the same keys, and the outbox delivers what is left: every order is confirmed, charged and billed once."""
    scenario, known = open_scenario(FAULTS_MAX * IN_LIST), set[str]()
    for number in range(FAULTS_MAX):
        sales = LISTS[name].begin(scenario, [f"{name} {number}, {each}" for each in range(IN_LIST)])
        undo_claim()
        fault = Fault(kills, known)
        outcome = strike(fault, scenario, lambda sales=sales: LISTS[name].act(scenario, sales))  # type: ignore[misc]
        for sale in sales:
            sale.ends = "confirmed"
            if name == "checkouts":
                scenario.check_out(sale)
        if not fault.struck_at:
            assert outcome.error is None, outcome.error
            break
        known.add(fault.struck_at)
        unpark()
        deliver_outbox()
        park()
    else:
        raise AssertionError(f"more than {FAULTS_MAX} steps")
    assert len(known) >= (2 if kills else 6), known
    unpark()
    deliver_outbox()
    scenario.assert_converged()
