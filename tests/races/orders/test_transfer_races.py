"""A transfer against a check-in, a return, a reissue, a refund, a withdrawal and another acceptance: each race has one
winner, and the audit finds nothing afterwards."""

from collections.abc import Callable

import pytest

from apps.events import facade as events
from apps.orders.cancellation import order_cancellation
from apps.orders.checkin.check_in import Outcome, Scan, scan
from apps.orders.errors import (
    ReissueRefused,
    TicketsCheckedIn,
    TicketsNotValid,
    TransferAccepted,
    TransferEnded,
    TransferRefused,
)
from apps.orders.models import Order, ReturnPolicy, Ticket, TicketTransfer
from apps.orders.returns import returns
from apps.orders.tickets import reissue
from apps.orders.transfers import transfers
from tests.support.factories import assert_audit_clean, audit_breaches, hold, make_event
from tests.support.orders.sale import buy, deliver_outbox
from tests.support.orders.transfers import FRIEND, allow_transfers, first_ticket, offer, sold_order
from tests.support.races import rival_at, storm, values

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def order() -> Order:
    order = sold_order()
    ReturnPolicy.objects.create(event_id=order.event_id, until_hours=24)
    return order


def check_in(code: str) -> str:
    return scan(events.get_event("concert"), Scan(f"scan-{code}", code, anyway=True), "staff:1").outcome


def return_ticket(code: str) -> str:
    returns.return_idempotently(Order.objects.get().pk, {"tickets": [code]}, "key")
    return "returned"


def reissue_ticket(code: str) -> str:
    """Return `reissued` if the ticket has a new code of the buyer's."""
    reissue.reissue_ticket(Order.objects.get().pk, code, reissue.BUYER)
    return "reissued" if Ticket.objects.get(code=code).replaced_by == reissue.BUYER else "refused"


def refund(code: str) -> str:
    order_cancellation.refund_order(Order.objects.get().pk, "staff:1")
    return "refunded"


def withdraw(code: str) -> str:
    transfers.withdraw_offer(Order.objects.get().pk, TicketTransfer.objects.get().pk)
    return "withdrawn"


REFUSED = (ReissueRefused, TicketsCheckedIn, TicketsNotValid, TransferAccepted, TransferEnded)
RIVALS = {
    "check-in": (check_in, Outcome.WELCOME),
    "return": (return_ticket, "returned"),
    "reissue": (reissue_ticket, "reissued"),
    "withdrawal": (withdraw, "withdrawn"),
}


def run(act: Callable[[], object]) -> object:
    """Return the result, or `refused`."""
    try:
        return act()
    except REFUSED:
        return "refused"


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_that_commits_before_the_acceptance_locks_the_order_wins(order, name) -> None:
    """A: reads the offer. B: checks in, returns, reissues or withdraws, and commits. A: locks the order, reads the
    ticket again, and is refused."""
    rival, won = RIVALS[name]
    ticket, transfer = first_ticket(order), offer(order)
    with rival_at("lock_order", "before", lambda: rival(ticket.code)) as outcome:
        accepted = run(lambda: transfers.accept_offer(transfer.pk, "Grace"))
    assert accepted == "refused"
    assert outcome.result == won
    assert not Ticket.objects.filter(transfer=transfer).exists()
    assert_audit_clean()


@pytest.mark.parametrize("name", RIVALS)
def test_an_acceptance_that_commits_before_the_rival_locks_the_order_wins(order, name) -> None:
    """A: begins to check in, return, reissue or withdraw. B: accepts and commits. A: locks the order, finds the old
    code replaced, and changes nothing."""
    rival, won = RIVALS[name]
    ticket, transfer = first_ticket(order), offer(order)
    with rival_at("lock_order", "before", lambda: transfers.accept_offer(transfer.pk, "Grace")):
        assert run(lambda: rival(ticket.code)) != won
    given = Ticket.objects.get(transfer=transfer)
    assert given.voided_at is None
    assert given.checked_in_at is None
    assert_audit_clean()


@pytest.mark.parametrize("name", RIVALS)
def test_an_acceptance_and_a_rival_at_once_have_one_winner(order, name) -> None:
    rival, won = RIVALS[name]
    ticket, transfer = first_ticket(order), offer(order)
    acts = [lambda: rival(ticket.code), lambda: transfers.accept_offer(transfer.pk, "Grace") or "accepted"]
    outcomes = values(storm(2, lambda number: run(acts[number])))
    has_rival_won = outcomes[0] == won
    assert has_rival_won != (outcomes[1] == "accepted")
    assert Ticket.objects.filter(transfer=transfer).exists() != has_rival_won
    deliver_outbox()
    assert_audit_clean()


def test_a_refund_at_once_with_an_acceptance_leaves_no_valid_ticket(order) -> None:
    """Both may succeed, the acceptance first: the refund then voids the recipient's ticket too."""
    transfer = offer(order)
    acts = [lambda: refund(""), lambda: transfers.accept_offer(transfer.pk, "Grace")]
    assert values(storm(2, lambda number: run(acts[number])))[0] == "refunded"
    assert not Ticket.objects.filter(voided_at=None).exists()
    deliver_outbox()
    assert_audit_clean()


def test_eight_acceptances_at_once_issue_one_ticket(order) -> None:
    transfer = offer(order)
    values(storm(8, lambda number: transfers.accept_offer(transfer.pk, f"Grace {number}")))
    assert Ticket.objects.filter(transfer=transfer).count() == 1
    assert_audit_clean()


def test_eight_offers_at_once_of_one_ticket_make_one_offer(order) -> None:
    made = storm(8, lambda number: offer(order, email=f"friend-{number % 2}@example.org"))
    assert len({outcome.value.pk for outcome in made if outcome.error is None}) == 1
    assert TicketTransfer.objects.count() == 1


def test_acceptances_of_two_orders_at_once_do_not_exceed_the_limit_of_their_recipient() -> None:
    """Neither locks the other's order. Both lock the address's cap row: the second counts the first one's ticket."""
    event = make_event(per_buyer_max=1)
    allow_transfers(event)
    orders = [buy(hold(event, seats=[f"hall-A-{n}"]), email=f"buyer-{n}@example.org") for n in (1, 2)]
    offers = [offer(one) for one in orders]
    outcomes = storm(2, lambda number: transfers.accept_offer(offers[number].pk, "Grace"))
    assert [type(outcome.error) for outcome in outcomes if outcome.error is not None] == [TransferRefused]
    assert Ticket.objects.filter(transfer__email=FRIEND).count() == 1
    assert_audit_clean()


def test_control_without_the_orders_lock_a_ticket_is_used_and_passed_on(order, monkeypatch) -> None:
    """A: reads the ticket, which is not checked in, without the order's lock. B: checks it in and commits. A: passes it
    on: two people get in, and the audit says so."""
    ticket, transfer = first_ticket(order), offer(order)
    monkeypatch.setattr(transfers, "lock_order", lambda order_id: Order.objects.get(pk=order_id))
    with rival_at("count_of_email", "before", lambda: check_in(ticket.code)) as rival:
        transfers.accept_offer(transfer.pk, "Grace")
    assert rival.result == Outcome.WELCOME
    given = Ticket.objects.get(transfer=transfer)
    assert check_in(given.code) == Outcome.WELCOME
    assert any(f"transfer {transfer.pk}" in breach for breach in audit_breaches())
