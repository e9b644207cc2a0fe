"""A worker killed around each commit and each call of the provider; a connection cut at each statement and commit."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from apps.orders import canceling, inbox
from apps.orders.providers.protocol import Kind
from tests.money.books import HEADERS, NAME
from tests.money.faults import Fault, strike
from tests.money.harness import House, OpenHouse, Sale
from tests.orders.sale import deliver_all
from ticketing.kernel import clock
from ticketing.kernel.outbox import facade as outbox
from ticketing.kernel.outbox.models import OutboxMessage

pytestmark = pytest.mark.django_db(transaction=True)
STEPS_MAX = 150
Act = Callable[[], object]


@dataclass(frozen=True)
class Operation:
    """`begin` gives a sale on which `act` is the next thing to happen; whoever did it tries `again`, with the same
    key, and what the outbox carries is delivered again. `ends` is what the order must be then."""

    begin: Callable[[House, str], Sale]
    act: Callable[[House, Sale], Act]
    ends: str
    again: bool = True


def held(house: House, label: str) -> Sale:
    (sale,) = house.hold([label])
    return sale


def placed(house: House, label: str) -> Sale:
    (sale,) = house.place([label])
    return sale


def pending(house: House, label: str) -> Sale:
    """With the provider, who has not decided."""
    house.books.answers = Kind.PENDING
    (sale,) = house.charge([label])
    return sale


def told(house: House, label: str) -> Sale:
    sale = pending(house, label)
    succeed(house, sale)()
    return sale


def confirmed(house: House, label: str) -> Sale:
    """Its mail waits in the outbox."""
    sale = placed(house, label)
    outbox.deliver(1)
    return sale


def to_refund(house: House, label: str) -> Sale:
    sale = placed(house, label)
    deliver_all()
    assert canceling.refund_order(sale.order_id, "staff:1")
    return sale


def lapsed(house: House, label: str) -> Sale:
    sale = placed(house, label)
    park()
    house.until_deadline_passed([sale], 100)
    return sale


def succeed(house: House, sale: Sale) -> Act:
    """The same webhook, as often as it is called."""
    key = str(sale.payment().pk)
    charge = house.books.charges[key]
    fact = charge.capture or house.books.happen(key, Kind.SUCCEEDED)
    raw = house.books.word_of(key, fact)
    return lambda: inbox.receive(NAME, raw, HEADERS)


def cancel(house: House, sale: Sale) -> Act:
    return lambda: canceling.cancel_order(sale.order_id)


def deliver(house: House, sale: Sale) -> Act:
    return lambda: outbox.deliver(1)


OPERATIONS = {
    "checkout": Operation(held, lambda house, sale: lambda: house.check_out(sale), "confirmed"),
    "charge": Operation(placed, deliver, "confirmed", again=False),
    "receive a webhook": Operation(pending, succeed, "confirmed"),
    "process a webhook": Operation(told, deliver, "confirmed", again=False),
    "send a refund": Operation(to_refund, deliver, "refunded", again=False),
    "mail tickets": Operation(confirmed, deliver, "confirmed", again=False),
    "cancel an order": Operation(placed, cancel, "canceled"),
    "fail lapsed orders": Operation(lapsed, lambda house, sale: canceling.fail_lapsed, "failed"),
    "give an order back": Operation(
        lambda house, label: deliver_after(confirmed(house, label)),
        lambda house, sale: lambda: canceling.refund_order(sale.order_id, "staff:1"),
        "refunded",
    ),
}


def deliver_after(sale: Sale) -> Sale:
    deliver_all()
    return sale


def park() -> None:
    """Nothing that waits in the outbox is due: the next message delivered is the next sale's."""
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now() + timedelta(hours=1))


def unpark() -> None:
    """Everything is due, and no killed worker's claim stands in the way."""
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now(), claimed_until=None)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kills", [True, False], ids=["killed", "cut"])
def test_whatever_step_it_ends_at_the_next_try_goes_through(name: str, kills: bool, open_house: OpenHouse) -> None:
    operation, house = OPERATIONS[name], open_house(STEPS_MAX)
    for number in range(1, STEPS_MAX + 1):
        house.books.answers = Kind.SUCCEEDED
        sale = operation.begin(house, name)
        act = operation.act(house, sale)
        fault = Fault(number, kills)
        outcome = strike(fault, house, act)
        sale.label = f"{name}, {fault}"
        if not fault.struck:
            assert outcome.error is None, f"{name}: {outcome.error}"
            break
        if operation.again:
            act()
        park()
    else:
        raise AssertionError(f"more than {STEPS_MAX} steps")
    assert number > 2, f"{name} has hardly a step: {fault.steps}"
    unpark()
    deliver_all()
    left = [f"{sale.label}: {sale.order.status}" for sale in house.sales if sale.order.status != operation.ends]
    assert not left, "\n".join(left)
    house.assert_converged()
