"""A worker killed around each commit and each call of others, a connection cut at each statement and commit: of all
that moves money, whatever statements that takes by now."""

import pytest

from apps.orders import facade as orders
from apps.orders import topics
from apps.orders.payments.providers import sandbox
from tests.support.chaos.faults import Fault, strike
from tests.support.chaos.harness import ADDED, INCLUDED, OpenHouse
from tests.support.chaos.operations import OPERATIONS, SEATS, Operation, park, undo_claim, unpark
from tests.support.orders.sale import deliver_outbox

pytestmark = pytest.mark.django_db(transaction=True)
SALES_MAX = 200
"""The repair of what is overdue has some 115 steps, and leaves a trace at each: every strike takes another sale."""


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kills", [True, False], ids=["killed", "cut"])
def test_whatever_step_it_ends_at_the_next_try_goes_through(name: str, kills: bool, open_house: OpenHouse) -> None:
    """Each strike hits what none hit before. What left no trace is struck again one step further; what left one is
    tried again, and another sale is next. It ends when nothing is left that was not struck."""
    operation, house = OPERATIONS[name], open_house(SALES_MAX * SEATS, ADDED if kills else INCLUDED)
    known, sale = set[str](), None
    while True:
        sale = sale or operation.begin(house, name)
        undo_claim()
        fault, act = Fault(kills, known), operation.act(house, sale)
        outcome = strike(fault, house, act)
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
    house.assert_converged()


def left_trace(operation: Operation, fault: Fault) -> bool:
    """A message is claimed before it is handled, and put back where that fails: neither is a trace."""
    of_outbox = 1 if operation.topic else 0
    return fault.calls > 0 or fault.commits > of_outbox or fault.commits_after > of_outbox


def test_every_message_of_a_sale_is_struck() -> None:
    struck = {operation.topic for operation in OPERATIONS.values()}
    # The sandbox's own: another provider takes the money here. A mail to staff, which moves none.
    left_out = {sandbox.WEBHOOK_TOPIC, topics.SEND_DISPUTE_NOTICE}
    assert {each.topic for each in orders.handlers()} - left_out <= struck
