"""Every operation that moves money, so that a fault can strike at each step: its preparation, the act, and
the expected end."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from unittest.mock import patch

from apps.accounts.models import User
from apps.events.models import Event, EventChange
from apps.events.revisions import service as revisions
from apps.kernel import clock
from apps.kernel.checks import reconciler
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import mail, return_quotes, topics
from apps.orders.cancellation import event_cancellation, order_cancellation
from apps.orders.errors import AmountChanged, TicketsNotValid
from apps.orders.models import (
    ComparedDay,
    Order,
    ProviderStanding,
    ReturnPolicy,
    ScheduleNotice,
    Ticket,
    TicketTransfer,
    TransferPolicy,
)
from apps.orders.payments import large_orders
from apps.orders.payments.providers.protocol import Kind
from apps.orders.privacy import background_erasure
from apps.orders.privacy.person import Person
from apps.orders.provider_sync import daily_comparison, event_storage, status_inquiries
from apps.orders.returns import returns
from apps.orders.scheduled_tasks import reminders
from apps.orders.staff.buyer_correction import correct_buyer
from apps.orders.transfers import transfers
from tests.support.chaos.harness import Prices, Sale, Scenario
from tests.support.chaos.provider_ledger import HEADERS, NAME
from tests.support.orders.sale import deliver_outbox, make_code

SEATS = 2
"""Seats of each sale."""
Act = Callable[[], object]
Begin = Callable[[Scenario, str], Sale]


@dataclass(frozen=True)
class Operation:
    """`begin` returns a sale on which `act` is the next operation; after a fault the caller tries `again`, with the
    same key, and the outbox delivers its messages again. With a `topic` the act delivers one message of it."""

    begin: Begin
    act: Callable[[Scenario, Sale], Act]
    again: bool = True
    topic: str = ""


def message(topic: str, begin: Begin) -> Operation:
    def begun(scenario: Scenario, label: str) -> Sale:
        sale = begin(scenario, label)
        make_only_due(topic)
        return sale

    return Operation(begun, lambda scenario, sale: lambda: outbox.deliver(1), again=False, topic=topic)


def deliver_one(topic: str) -> None:
    make_only_due(topic)
    outbox.deliver(1)


# --- the outbox ------------------------------------------------------------------------------------------------------


def park() -> None:
    """Postpone everything queued in the outbox: the next message delivered is the next sale's."""
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now() + timedelta(hours=1))


def unpark() -> None:
    """Make everything due, without the claims of killed workers."""
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now(), claimed_until=None)


def undo_claim() -> None:
    """Make everything that is not parked due as if never claimed, and the provider as if it had never failed."""
    ProviderStanding.objects.all().delete()
    soon = clock.now() + timedelta(minutes=30)
    OutboxMessage.objects.filter(done_at=None, available_at__lt=soon).update(
        available_at=clock.now(), attempts=0, claimed_until=None, is_behind=False
    )


def make_only_due(topic: str) -> None:
    """Of what is not parked, make one message due: the newest of this topic, or the first with its key."""
    of_topic = OutboxMessage.objects.filter(
        done_at=None, topic=topic, available_at__lt=clock.now() + timedelta(minutes=30)
    )
    newest = of_topic.order_by("-pk").first()
    assert newest is not None, f"no message of {topic}"
    first = of_topic.filter(key=newest.key).order_by("pk").first()
    assert first is not None
    park()
    OutboxMessage.objects.filter(pk=first.pk).update(available_at=clock.now())


# --- preparations ----------------------------------------------------------------------------------------------------


def prices_of(scenario: Scenario) -> Prices:
    assert scenario.prices is not None
    return scenario.prices


def total_minor(scenario: Scenario) -> int:
    prices = prices_of(scenario)
    return SEATS * prices.seat_minor + prices.order_fee_minor


def ends(sale: Sale, status: str, keeps_minor: int = 0) -> Sale:
    sale.ends, sale.keeps_minor = status, keeps_minor
    return sale


def held(scenario: Scenario, label: str) -> Sale:
    scenario.provider.answers = Kind.SUCCEEDED
    (sale,) = scenario.hold([label], SEATS)
    return ends(sale, "confirmed", total_minor(scenario))


def held_for_nothing(scenario: Scenario, label: str) -> Sale:
    """With a promo code for the full price."""
    sale = held(scenario, label)
    sale.code = make_code(scenario.event, code=f"FREE{len(scenario.sales)}", rate=10_000, uses_max=1).code
    return ends(sale, "confirmed", 0)


def placed(scenario: Scenario, label: str) -> Sale:
    scenario.provider.answers = Kind.SUCCEEDED
    (sale,) = scenario.place([label], SEATS)
    return ends(sale, "confirmed", total_minor(scenario))


def pending(scenario: Scenario, label: str) -> Sale:
    """At the provider, undecided."""
    scenario.provider.answers = Kind.PENDING
    (sale,) = scenario.charge([label], SEATS)
    return ends(sale, "confirmed", total_minor(scenario))


def declined(scenario: Scenario, label: str) -> Sale:
    """At the first attempt; the next succeeds."""
    scenario.provider.answers = Kind.DECLINED
    (sale,) = scenario.charge([label], SEATS)
    scenario.provider.answers = Kind.SUCCEEDED
    return ends(sale, "confirmed", total_minor(scenario))


def declined_before_another_code(scenario: Scenario, label: str) -> Sale:
    """The retry names another code of the same discount: it replaces the order's lines and its use of a code."""
    sale = declined(scenario, label)
    sale.code = make_code(scenario.event, code=f"OTHER{len(scenario.sales)}", rate=1_000, uses_max=1).code
    return sale


def declined_before_a_free_retry(scenario: Scenario, label: str) -> Sale:
    """The retry names a code for the full price."""
    sale = declined(scenario, label)
    sale.code = make_code(scenario.event, code=f"FREE{len(scenario.sales)}", rate=10_000, uses_max=1).code
    return ends(sale, "confirmed", 0)


def placed_again(scenario: Scenario, label: str) -> Sale:
    sale = declined(scenario, label)
    scenario.check_out(sale, key=f"{sale.key} again")
    return sale


def reported(scenario: Scenario, label: str) -> Sale:
    sale = pending(scenario, label)
    succeed(scenario, sale)()
    return sale


def unreported(scenario: Scenario, label: str) -> Sale:
    """Paid, but the provider's message got lost."""
    sale = pending(scenario, label)
    scenario.provider.happen(str(sale.payment().pk), Kind.SUCCEEDED)
    return sale


def aged(begin: Begin, minutes: int) -> Begin:
    """Return the same beginning, but this many minutes ago."""

    def begun(scenario: Scenario, label: str) -> Sale:
        sale = begin(scenario, label)
        park()
        scenario.age([sale], timedelta(minutes=minutes))
        return sale

    return begun


def confirmed(scenario: Scenario, label: str) -> Sale:
    """Its mail, its invoice and its organizer's message are queued in the outbox."""
    sale = placed(scenario, label)
    deliver_one(topics.CHARGE)
    return sale


def placed_as_large(scenario: Scenario, label: str) -> Sale:
    with patch.object(large_orders, "TICKETS_MAX", 1):
        return placed(scenario, label)


def confirmed_as_large(scenario: Scenario, label: str) -> Sale:
    sale = placed(scenario, label)
    with patch.object(large_orders, "TICKETS_MAX", 1):
        deliver_one(topics.CHARGE)
    return sale


def reported_as_large(scenario: Scenario, label: str) -> Sale:
    sale = pending(scenario, label)
    with patch.object(large_orders, "TICKETS_MAX", 1):
        succeed(scenario, sale)()
    return sale


def confirmed_for_nothing(scenario: Scenario, label: str) -> Sale:
    sale = held_for_nothing(scenario, label)
    scenario.check_out(sale)
    return sale


def bought(scenario: Scenario, label: str) -> Sale:
    sale = placed(scenario, label)
    deliver_outbox()
    return sale


def resent(scenario: Scenario, label: str) -> Sale:
    """Its tickets were mailed, and are to be mailed again."""
    sale = bought(scenario, label)
    mail.resend_tickets(sale.order_id)
    return sale


def refunded(scenario: Scenario, label: str) -> Sale:
    sale = bought(scenario, label)
    assert order_cancellation.refund_order(sale.order_id, "staff:1")
    return ends(sale, "refunded")


def partly_returned(scenario: Scenario, label: str) -> Sale:
    sale = to_return(scenario, label)
    return_some(scenario, sale)()
    return sale


def to_return(scenario: Scenario, label: str) -> Sale:
    """Its buyer may return tickets, and the organizer keeps the fees."""
    ReturnPolicy.objects.get_or_create(event_id=scenario.event.id, defaults={"until_hours": 24, "keeps_fees": True})
    sale, prices = bought(scenario, label), prices_of(scenario)
    return ends(sale, "partly_refunded", total_minor(scenario) - prices.seat_minor + prices.seat_fee_minor)


def to_return_whole(scenario: Scenario, label: str) -> Sale:
    sale, prices = to_return(scenario, label), prices_of(scenario)
    return ends(sale, "refunded", SEATS * prices.seat_fee_minor + prices.order_fee_minor)


def to_refund_some(scenario: Scenario, label: str) -> Sale:
    return ends(bought(scenario, label), "partly_refunded", total_minor(scenario) - prices_of(scenario).seat_minor)


def to_give_goodwill(scenario: Scenario, label: str) -> Sale:
    return ends(bought(scenario, label), "partly_refunded", total_minor(scenario) - GOODWILL_MINOR)


def lapsed(scenario: Scenario, label: str) -> Sale:
    sale = placed(scenario, label)
    park()
    scenario.backdate_deadlines([sale], 100)
    return ends(sale, "failed")


def failed(scenario: Scenario, label: str) -> Sale:
    sale = lapsed(scenario, label)
    order_cancellation.fail_expired_orders()
    return sale


def to_cancel(scenario: Scenario, label: str) -> Sale:
    return ends(placed(scenario, label), "canceled")


def with_own_event(scenario: Scenario, label: str) -> Sale:
    """An event of its own, with a paid order, an unpaid one, and a hold."""
    scenario.move(3 * SEATS)
    sale = ends(bought(scenario, label), "refunded")
    park()
    # Charged before the cancellation, or never: either way nothing is kept.
    ends(placed(scenario, f"{label}, unpaid"), "")
    scenario.hold([f"{label}, held"], SEATS)
    park()
    return sale


def event_canceled(scenario: Scenario, label: str) -> Sale:
    sale = with_own_event(scenario, label)
    cancel_event(scenario, sale)()
    return sale


def all_refunded(scenario: Scenario, label: str) -> Sale:
    sale = event_canceled(scenario, label)
    deliver_one(topics.CANCEL_EVENT)
    return sale


def with_event_to_move(scenario: Scenario, label: str) -> Sale:
    """An event of its own, with a paid order."""
    scenario.move(SEATS)
    sale = bought(scenario, label)
    park()
    return sale


def event_moved(scenario: Scenario, label: str) -> Sale:
    sale = with_event_to_move(scenario, label)
    move_event(scenario, sale)()
    return sale


def new_date_scheduled(scenario: Scenario, label: str) -> Sale:
    sale = event_moved(scenario, label)
    deliver_one(topics.NOTIFY_OF_SCHEDULE)
    return sale


def to_confirm(scenario: Scenario, label: str) -> Sale:
    """The buyer has asked for the link that confirms the mailbox."""
    sale = bought(scenario, label)
    park()
    mail.request_confirmation(sale.order_id)
    return sale


def to_find(scenario: Scenario, label: str) -> Sale:
    """The buyer has asked for a mail with the orders of the address. The message has a key of its own: all sales have
    one address, for which another message may be parked."""
    sale = bought(scenario, label)
    park()
    email = Order.objects.get(pk=sale.order_id).email
    with transactions.write():
        outbox.publish(topics.SEND_ORDER_LIST, str(sale.order_id), {"email": email})
    return sale


def corrected(scenario: Scenario, label: str) -> Sale:
    """Staff have corrected the buyer's address."""
    sale = bought(scenario, label)
    park()
    assert sale.order_id is not None
    correct_buyer(
        sale.order_id, email=f"{sale.order_id}@corrected.example.org", name="Grace Friend", why="a typo", who="staff"
    )
    return sale


def reminder_begun(scenario: Scenario, label: str) -> Sale:
    """A scheduled task has begun the reminder of an event's only buyer."""
    sale = with_event_to_move(scenario, label)
    event_id = sale.reservation.event_id
    with transactions.write():
        reminders.begin_reminder(event_id, event_id, "Doors open at 19:00.")
    return sale


def reminded(scenario: Scenario, label: str) -> Sale:
    sale = reminder_begun(scenario, label)
    deliver_one(topics.REMIND_BUYERS)
    return sale


def offered(scenario: Scenario, label: str) -> Sale:
    """The buyer has offered a ticket to another person."""
    TransferPolicy.objects.get_or_create(event_id=scenario.event.id)
    sale = bought(scenario, label)
    park()
    code = Ticket.objects.filter(order=sale.order_id).order_by("id").values_list("code", flat=True)[0]
    transfers.offer_ticket(sale.order_id, {"ticket": code, "email": f"{sale.order_id}@example.org"})
    return sale


def to_erase(scenario: Scenario, label: str) -> Sale:
    """The event is over, and the account of its only buyer was closed. The address is the sale's own: the erasure of
    another sale must not end this one's."""
    sale = with_event_to_move(scenario, label)
    email = f"{sale.order_id}@erase.example.org"
    Order.objects.filter(pk=sale.order_id).update(email=email)
    Event.objects.filter(pk=sale.reservation.event_id).update(starts_at=clock.now() - timedelta(days=2))
    account = User.objects.create_user(email)
    with transactions.write():
        background_erasure.publish(Person(frozenset([email]), frozenset([account.pk]), False))
    return sale


# --- acts ------------------------------------------------------------------------------------------------------------

GOODWILL_MINOR = 321


def accept(scenario: Scenario, sale: Sale) -> Act:
    transfer = TicketTransfer.objects.get(ticket__order=sale.order_id)
    return lambda: transfers.accept_offer(transfer.pk, "Grace Friend")


def succeed(scenario: Scenario, sale: Sale) -> Act:
    """The same webhook, however often it is called."""
    key = str(sale.payment().pk)
    charge = scenario.provider.charges[key]
    fact = charge.capture or scenario.provider.happen(key, Kind.SUCCEEDED)
    raw = scenario.provider.payload_of(key, fact)
    return lambda: event_storage.receive(NAME, raw, HEADERS)


def return_some(scenario: Scenario, sale: Sale) -> Act:
    return _returning(scenario, sale, sale.tickets[:1])


def return_all(scenario: Scenario, sale: Sale) -> Act:
    return _returning(scenario, sale, sale.tickets)


def _returning(scenario: Scenario, sale: Sale, codes: list[str]) -> Act:
    assert sale.order_id is not None
    order_id = sale.order_id
    return lambda: scenario.send(
        sale, lambda: returns.return_idempotently(order_id, {"tickets": codes}, f"{sale.key} back")
    )


def refund_some(scenario: Scenario, sale: Sale) -> Act:
    """By staff, whose form has no key: sent again, it finds the ticket void."""
    code = sale.tickets[0]

    def act() -> None:
        try:
            returns.return_by_staff(sale.order_id, [code], [code], who="staff:1", why="", keep_off_sale=True)
        except TicketsNotValid:
            assert code not in sale.tickets

    return act


def give_goodwill(scenario: Scenario, sale: Sale) -> Act:
    """Staff's form contains what the order kept when it was shown: sent twice, it pays once."""
    seen_minor = return_quotes.owed_minor(sale.order)

    def act() -> None:
        try:
            returns.give_goodwill(sale.order_id, GOODWILL_MINOR, who="staff:1", why="rain", seen_minor=seen_minor)
        except AmountChanged:
            assert return_quotes.owed_minor(sale.order) == seen_minor - GOODWILL_MINOR

    return act


def cancel_event(scenario: Scenario, sale: Sale) -> Act:
    event_id = sale.reservation.event_id
    return lambda: event_cancellation.begin(event_id, "The singer is ill.", "staff:1")


def move_event(scenario: Scenario, sale: Sale) -> Act:
    event_id, starts_at = sale.reservation.event_id, clock.now() + timedelta(days=90)

    def act() -> None:
        revisions.change_event(
            event_id, EventChange.Kind.SCHEDULE, {"starts_at": starts_at}, who="staff:1", why="rain", return_days=14
        )
        # No order is placed any more, so the notice is finished with its first batch.
        ScheduleNotice.objects.filter(event_id=event_id).update(held_until=clock.now())

    return act


def compare(scenario: Scenario, sale: Sale) -> Act:
    """Compare all days again."""
    ComparedDay.objects.all().delete()
    return daily_comparison.schedule_comparisons


def to_compare(scenario: Scenario, label: str) -> Sale:
    sale = unreported(scenario, label)
    park()
    compare(scenario, sale)()
    return sale


def inquired(begin: Begin) -> Begin:
    def begun(scenario: Scenario, label: str) -> Sale:
        sale = begin(scenario, label)
        status_inquiries.schedule_inquiries()
        return sale

    return begun


OPERATIONS: dict[str, Operation] = {
    # a sale
    "checkout": Operation(held, lambda scenario, sale: lambda: scenario.check_out(sale)),
    "checkout for nothing": Operation(held_for_nothing, lambda scenario, sale: lambda: scenario.check_out(sale)),
    "checkout after a decline": Operation(
        declined, lambda scenario, sale: lambda: scenario.check_out(sale, key=f"{sale.key} again")
    ),
    "checkout after a decline, with another code": Operation(
        declined_before_another_code, lambda scenario, sale: lambda: scenario.check_out(sale, key=f"{sale.key} again")
    ),
    "checkout after a decline, for nothing": Operation(
        declined_before_a_free_retry, lambda scenario, sale: lambda: scenario.check_out(sale, key=f"{sale.key} again")
    ),
    "charge": message(topics.CHARGE, placed),
    "charge of a large order": message(topics.CHARGE_LARGE, placed_as_large),
    "charge after a decline": message(topics.CHARGE, placed_again),
    "send for the state of a charge": message(topics.ASK, unreported),
    "receive a webhook": Operation(pending, succeed),
    "process a webhook": message(topics.PROVIDER_MESSAGE, reported),
    "process a webhook about a large order": message(topics.PROVIDER_MESSAGE_LARGE, reported_as_large),
    "cancel an order": Operation(
        to_cancel, lambda scenario, sale: lambda: order_cancellation.cancel_order(sale.order_id)
    ),
    "fail lapsed orders": Operation(lapsed, lambda scenario, sale: order_cancellation.fail_expired_orders),
    # consequences of a sale
    "mail tickets": message(topics.SEND_TICKETS, confirmed),
    "mail free tickets": message(topics.SEND_FREE_TICKETS, confirmed_for_nothing),
    "mail the tickets of a large order": message(topics.SEND_TICKETS_LARGE, confirmed_as_large),
    "mail tickets again": message(topics.SEND_TICKETS_AGAIN, resent),
    "mail that it failed": message(topics.SEND_FAILURE_NOTICE, failed),
    "mail that it was refunded": message(topics.SEND_REFUND_NOTICE, refunded),
    "mail that tickets were returned": message(topics.SEND_RETURN_NOTICE, partly_returned),
    "mail that confirms the mailbox": message(topics.SEND_CONFIRMATION, to_confirm),
    "mail that lists the buyer's orders": message(topics.SEND_ORDER_LIST, to_find),
    "write an invoice": message(topics.INVOICE, confirmed),
    "write the invoice of a large order": message(topics.INVOICE_LARGE, confirmed_as_large),
    "write a credit note": message(topics.INVOICE, refunded),
    "notify an organizer": message(topics.WEBHOOK, confirmed),
    # a ticket for another person
    "accept a ticket": Operation(offered, accept),
    "mail that the buyer's address was corrected": message(topics.SEND_CORRECTION_NOTICE, corrected),
    "write the reminders of buyers": message(topics.REMIND_BUYERS, reminder_begun),
    "mail a reminder": message(topics.SEND_REMINDER, reminded),
    "mail that a ticket is offered": message(topics.SEND_TRANSFER, offered),
    # personal data
    "erase a person": message(topics.ERASE_PERSON, to_erase),
    # money back
    "return a ticket": Operation(to_return, return_some),
    "return all tickets": Operation(to_return_whole, return_all),
    "refund a ticket by staff": Operation(to_refund_some, refund_some),
    "goodwill": Operation(to_give_goodwill, give_goodwill),
    "refund an order": Operation(
        lambda scenario, label: ends(bought(scenario, label), "refunded"),
        lambda scenario, sale: lambda: order_cancellation.refund_order(sale.order_id, "staff:1"),
    ),
    "send a refund": message(topics.REFUND, refunded),
    # a canceled event
    "cancel an event": Operation(with_own_event, cancel_event),
    "refund an event's orders": message(topics.CANCEL_EVENT, event_canceled),
    "mail that the event is canceled": message(topics.SEND_CANCELLATION_NOTICE, all_refunded),
    # a new date of an event
    "move an event": Operation(with_event_to_move, move_event),
    "schedule the mails of a new date": message(topics.NOTIFY_OF_SCHEDULE, event_moved),
    "mail a new date": message(topics.SEND_SCHEDULE_NOTICE, new_date_scheduled),
    # the reconciler
    "look for unsettled payments": Operation(
        aged(unreported, 5), lambda scenario, sale: status_inquiries.schedule_inquiries
    ),
    "reconcile a payment": message(topics.RECONCILE_PAYMENT, inquired(aged(unreported, 5))),
    "reconcile a refund": message(topics.RECONCILE_REFUND, inquired(aged(refunded, 5))),
    "look for days to compare": Operation(unreported, compare),
    "compare a day": message(topics.COMPARE_DAY, to_compare),
    "repair overdue payments": Operation(
        aged(unreported, 60), lambda scenario, sale: lambda: reconciler.run(repair_by="test")
    ),
}
