"""A worker killed around each commit and each external call, and a connection cut at each statement and commit, of
every operation that moves money."""

import pytest

from apps.orders import facade as orders
from apps.orders import topics
from apps.orders.payments.providers import sandbox
from tests.support.chaos.faults import Fault, strike
from tests.support.chaos.harness import ADDED, INCLUDED, OpenScenario
from tests.support.chaos.operations import OPERATIONS, SEATS, Operation, park, undo_claim, unpark
from tests.support.orders.sale import deliver_outbox

pytestmark = pytest.mark.django_db(transaction=True)
SALES_MAX = 200
"""The repair of overdue payments has some 115 steps and leaves a trace at each: every fault takes another sale."""


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kills", [True, False], ids=["killed", "cut"])
def test_after_a_fault_at_any_step_the_next_attempt_succeeds(
    name: str, kills: bool, open_scenario: OpenScenario
) -> None:
    """Each fault strikes a step that none struck before. A fault without a trace strikes the same sale again one step
    further; after one with a trace the operation is retried, and another sale is next. It ends when every step was
    struck."""
    operation, scenario = OPERATIONS[name], open_scenario(SALES_MAX * SEATS, ADDED if kills else INCLUDED)
    known, sale = set[str](), None
    while True:
        sale = sale or operation.begin(scenario, name)
        undo_claim()
        fault, act = Fault(kills, known), operation.act(scenario, sale)
        outcome = strike(fault, scenario, act)
        if not fault.struck_at:
            assert outcome.error is None, f"{name}: {outcome.error!r}"
            break
        known.add(fault.struck_at)
        if left_trace(operation, fault):
            sale.label = f"{name}, {fault}"
            if operation.again:
                act()
            park()
            sale = None
    assert len(known) > 1, f"{name} has hardly a step: {known}"
    unpark()
    deliver_outbox()
    scenario.assert_converged()


def left_trace(operation: Operation, fault: Fault) -> bool:
    """Claiming a message before handling it, and releasing the claim after a failure, are no trace."""
    of_outbox = 1 if operation.topic else 0
    return fault.calls > 0 or fault.commits > of_outbox or fault.commits_after > of_outbox


def test_every_message_of_a_sale_is_struck() -> None:
    struck = {operation.topic for operation in OPERATIONS.values()}
    # The sandbox's webhooks: the fake provider takes the money here. Mails to staff move no money.
    left_out = {sandbox.WEBHOOK_TOPIC, topics.SEND_DISPUTE_NOTICE, topics.SEND_FIGURES}
    assert {each.topic for each in orders.handlers()} - left_out <= struck
