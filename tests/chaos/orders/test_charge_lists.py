"""A worker killed around each commit and each call, or its connection cut at each statement and commit, of a list of
charges: from its claim to the end of its messages."""

import pytest

from apps.kernel.outbox.models import OutboxMessage
from apps.orders import topics
from apps.orders.payments.providers.protocol import Kind
from tests.support.chaos.faults import Fault, strike
from tests.support.chaos.harness import OpenScenario, Scenario
from tests.support.chaos.operations import park, undo_claim, unpark
from tests.support.orders.charge_lists import ListRun
from tests.support.orders.sale import deliver_outbox

pytestmark = pytest.mark.django_db(transaction=True)
IN_LIST = 2
FAULTS_MAX = 100


def begin(scenario: Scenario, number: int) -> None:
    scenario.provider.answers = Kind.SUCCEEDED
    for sale in scenario.place([f"list {number}, charge {each}" for each in range(IN_LIST)]):
        sale.ends = "confirmed"


def charge_list(run: ListRun) -> None:
    run.answers.clear()
    run.start()
    run.settle()


@pytest.mark.parametrize("kills", [True, False], ids=["killed", "cut"])
def test_after_a_fault_at_any_step_of_a_list_every_charge_is_taken_once_and_confirmed(
    kills: bool, open_scenario: OpenScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fault strikes a step that none struck before, in a list of its own. Whatever it left, the next delivery of
    its messages completes: charges that have not started, that have but are not known to the provider, whose answers
    were lost, half of them stored, and settled ones whose messages have not ended."""
    scenario, known = open_scenario(FAULTS_MAX * IN_LIST), set[str]()
    for number in range(FAULTS_MAX):
        begin(scenario, number)
        undo_claim()
        fault = Fault(kills, known)
        outcome = strike(fault, scenario, lambda: charge_list(ListRun(monkeypatch)))
        if not fault.struck_at:
            assert outcome.error is None, outcome.error
            break
        known.add(fault.struck_at)
        unpark()
        OutboxMessage.objects.filter(done_at=None).exclude(topic=topics.CHARGE).update(attempts=1)
        deliver_outbox()
        park()
    else:
        raise AssertionError(f"more than {FAULTS_MAX} steps")
    assert len(known) >= (5 if kills else 10), known
    if kills:
        assert {"before charge", "after charge"} <= {name.partition(": ")[2] for name in known}
    unpark()
    deliver_outbox()
    scenario.assert_converged()
