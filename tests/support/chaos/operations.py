"""Whatever moves money, as operations that can be struck at each step: what comes before, the act, and its end."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from apps.kernel import clock
from apps.kernel.checks import reconciler
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import return_quotes, topics
from apps.orders.cancellation import event_cancellation, order_cancellation
from apps.orders.errors import AmountChanged, TicketsNotValid
from apps.orders.models import ComparedDay, ProviderStanding, ReturnPolicy
from apps.orders.payments.providers.protocol import Kind
from apps.orders.provider_sync import daily_comparison, inbox, status_inquiries
from apps.orders.returns import returns
from tests.support.chaos.harness import House, Prices, Sale
from tests.support.chaos.provider_ledger import HEADERS, NAME
from tests.support.orders.sale import deliver_outbox, make_code

SEATS = 2
"""Of each sale."""
Act = Callable[[], object]
Begin = Callable[[House, str], Sale]


@dataclass(frozen=True)
class Operation:
    """`begin` gives a sale on which `act` is the next thing to happen; whoever did it tries `again`, with the same key,
    and what the outbox carries is delivered again. With a `topic` the act delivers one message of it."""

    begin: Begin
    act: Callable[[House, Sale], Act]
    again: bool = True
    topic: str = ""


def message(topic: str, begin: Begin) -> Operation:
    def begun(house: House, label: str) -> Sale:
        sale = begin(house, label)
        let_only(topic)
        return sale

    return Operation(begun, lambda house, sale: lambda: outbox.deliver(1), again=False, topic=topic)


def deliver_one(topic: str) -> None:
    let_only(topic)
    outbox.deliver(1)


# --- what waits ------------------------------------------------------------------------------------------------------


def park() -> None:
    """Nothing that waits in the outbox is due: the next message delivered is the next sale's."""
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now() + timedelta(hours=1))


def unpark() -> None:
    """Everything is due, and no killed worker's claim stands in the way."""
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now(), claimed_until=None)


def undo_claim() -> None:
    """What is not parked is due as if nobody had come, and the provider as if it had never failed."""
    ProviderStanding.objects.all().delete()
    soon = clock.now() + timedelta(minutes=30)
    OutboxMessage.objects.filter(done_at=None, available_at__lt=soon).update(
        available_at=clock.now(), attempts=0, claimed_until=None, is_behind=False
    )


def let_only(topic: str) -> None:
    """Of what is not parked, one message is due: the newest of this topic, or the first of its key."""
    of_topic = OutboxMessage.objects.filter(
        done_at=None, topic=topic, available_at__lt=clock.now() + timedelta(minutes=30)
    )
    newest = of_topic.order_by("-pk").first()
    assert newest is not None, f"no message of {topic}"
    first = of_topic.filter(key=newest.key).order_by("pk").first()
    assert first is not None
    park()
    OutboxMessage.objects.filter(pk=first.pk).update(available_at=clock.now())


# --- what comes before -----------------------------------------------------------------------------------------------


def prices_of(house: House) -> Prices:
    assert house.prices is not None
    return house.prices


def total_minor(house: House) -> int:
    prices = prices_of(house)
    return SEATS * prices.seat_minor + prices.order_fee_minor


def ends(sale: Sale, status: str, keeps_minor: int = 0) -> Sale:
    sale.ends, sale.keeps_minor = status, keeps_minor
    return sale


def held(house: House, label: str) -> Sale:
    house.books.answers = Kind.SUCCEEDED
    (sale,) = house.hold([label], SEATS)
    return ends(sale, "confirmed", total_minor(house))


def held_for_nothing(house: House, label: str) -> Sale:
    """Its code takes everything off."""
    sale = held(house, label)
    sale.code = make_code(house.event, code=f"FREE{len(house.sales)}", rate=10_000, uses_max=1).code
    return ends(sale, "confirmed", 0)


def placed(house: House, label: str) -> Sale:
    house.books.answers = Kind.SUCCEEDED
    (sale,) = house.place([label], SEATS)
    return ends(sale, "confirmed", total_minor(house))


def pending(house: House, label: str) -> Sale:
    """With the provider, who has not decided."""
    house.books.answers = Kind.PENDING
    (sale,) = house.charge([label], SEATS)
    return ends(sale, "confirmed", total_minor(house))


def declined(house: House, label: str) -> Sale:
    """At the first try; the next goes well."""
    house.books.answers = Kind.DECLINED
    (sale,) = house.charge([label], SEATS)
    house.books.answers = Kind.SUCCEEDED
    return ends(sale, "confirmed", total_minor(house))


def placed_again(house: House, label: str) -> Sale:
    sale = declined(house, label)
    house.check_out(sale, key=f"{sale.key} again")
    return sale


def told(house: House, label: str) -> Sale:
    sale = pending(house, label)
    succeed(house, sale)()
    return sale


def unheard(house: House, label: str) -> Sale:
    """Paid, and the word of it got lost."""
    sale = pending(house, label)
    house.books.happen(str(sale.payment().pk), Kind.SUCCEEDED)
    return sale


def long_since(begin: Begin, minutes: int) -> Begin:
    """So many minutes have passed since."""

    def begun(house: House, label: str) -> Sale:
        sale = begin(house, label)
        park()
        house.age([sale], timedelta(minutes=minutes))
        return sale

    return begun


def confirmed(house: House, label: str) -> Sale:
    """Its mail, its invoice and its organizer's message wait in the outbox."""
    sale = placed(house, label)
    deliver_one(topics.CHARGE)
    return sale


def bought(house: House, label: str) -> Sale:
    sale = placed(house, label)
    deliver_outbox()
    return sale


def given_back(house: House, label: str) -> Sale:
    sale = bought(house, label)
    assert order_cancellation.refund_order(sale.order_id, "staff:1")
    return ends(sale, "refunded")


def partly_returned(house: House, label: str) -> Sale:
    sale = to_return(house, label)
    return_some(house, sale)()
    return sale


def to_return(house: House, label: str) -> Sale:
    """Its buyer may return tickets, and the fees stay with the organizer."""
    ReturnPolicy.objects.get_or_create(event_id=house.event.id, defaults={"until_hours": 24, "keeps_fees": True})
    sale, prices = bought(house, label), prices_of(house)
    return ends(sale, "partly_refunded", total_minor(house) - prices.seat_minor + prices.seat_fee_minor)


def to_return_whole(house: House, label: str) -> Sale:
    sale, prices = to_return(house, label), prices_of(house)
    return ends(sale, "refunded", SEATS * prices.seat_fee_minor + prices.order_fee_minor)


def to_give_some_back(house: House, label: str) -> Sale:
    return ends(bought(house, label), "partly_refunded", total_minor(house) - prices_of(house).seat_minor)


def to_please(house: House, label: str) -> Sale:
    return ends(bought(house, label), "partly_refunded", total_minor(house) - GOODWILL_MINOR)


def lapsed(house: House, label: str) -> Sale:
    sale = placed(house, label)
    park()
    house.until_deadline_passed([sale], 100)
    return ends(sale, "failed")


def failed(house: House, label: str) -> Sale:
    sale = lapsed(house, label)
    order_cancellation.fail_expired_orders()
    return sale


def to_cancel(house: House, label: str) -> Sale:
    return ends(placed(house, label), "canceled")


def on_the_evening(house: House, label: str) -> Sale:
    """An event of its own, with one order that is paid, one that is not, and a hold."""
    house.move(3 * SEATS)
    sale = ends(bought(house, label), "refunded")
    park()
    # Charged before its turn, or never: either way nothing is kept.
    ends(placed(house, f"{label}, unpaid"), "")
    house.hold([f"{label}, held"], SEATS)
    park()
    return sale


def called_off(house: House, label: str) -> Sale:
    sale = on_the_evening(house, label)
    call_off(house, sale)()
    return sale


def all_given_back(house: House, label: str) -> Sale:
    sale = called_off(house, label)
    deliver_one(topics.CANCEL_EVENT)
    return sale


# --- acts ------------------------------------------------------------------------------------------------------------

GOODWILL_MINOR = 321


def succeed(house: House, sale: Sale) -> Act:
    """The same webhook, as often as it is called."""
    key = str(sale.payment().pk)
    charge = house.books.charges[key]
    fact = charge.capture or house.books.happen(key, Kind.SUCCEEDED)
    raw = house.books.word_of(key, fact)
    return lambda: inbox.receive(NAME, raw, HEADERS)


def return_some(house: House, sale: Sale) -> Act:
    return _returning(house, sale, sale.tickets[:1])


def return_all(house: House, sale: Sale) -> Act:
    return _returning(house, sale, sale.tickets)


def _returning(house: House, sale: Sale, codes: list[str]) -> Act:
    assert sale.order_id is not None
    order_id = sale.order_id
    return lambda: house.ask(
        sale, lambda: returns.return_idempotently(order_id, {"tickets": codes}, f"{sale.key} back")
    )


def give_some_back(house: House, sale: Sale) -> Act:
    """By staff, whose form carries no key: asked again, the ticket is void already."""
    code = sale.tickets[0]

    def act() -> None:
        try:
            returns.return_by_staff(sale.order_id, [code], [code], who="staff:1", why="", keep_off_sale=True)
        except TicketsNotValid:
            assert code not in sale.tickets

    return act


def please(house: House, sale: Sale) -> Act:
    """Staff's form says what the order kept when it was shown: sent twice, it gives once."""
    seen_minor = return_quotes.owed_minor(sale.order)

    def act() -> None:
        try:
            returns.give_goodwill(sale.order_id, GOODWILL_MINOR, who="staff:1", why="rain", seen_minor=seen_minor)
        except AmountChanged:
            assert return_quotes.owed_minor(sale.order) == seen_minor - GOODWILL_MINOR

    return act


def call_off(house: House, sale: Sale) -> Act:
    event_id = sale.reservation.event_id
    return lambda: event_cancellation.begin(event_id, "The singer is ill.", "staff:1")


def compare(house: House, sale: Sale) -> Act:
    """All days are compared anew."""
    ComparedDay.objects.all().delete()
    return daily_comparison.schedule_comparisons


def to_compare(house: House, label: str) -> Sale:
    sale = unheard(house, label)
    park()
    compare(house, sale)()
    return sale


def asked_about(begin: Begin) -> Begin:
    def begun(house: House, label: str) -> Sale:
        sale = begin(house, label)
        status_inquiries.schedule_inquiries()
        return sale

    return begun


OPERATIONS: dict[str, Operation] = {
    # a sale
    "checkout": Operation(held, lambda house, sale: lambda: house.check_out(sale)),
    "checkout for nothing": Operation(held_for_nothing, lambda house, sale: lambda: house.check_out(sale)),
    "checkout after a decline": Operation(
        declined, lambda house, sale: lambda: house.check_out(sale, key=f"{sale.key} again")
    ),
    "charge": message(topics.CHARGE, placed),
    "charge after a decline": message(topics.CHARGE, placed_again),
    "ask what became of a charge": message(topics.ASK, unheard),
    "receive a webhook": Operation(pending, succeed),
    "process a webhook": message(topics.PROVIDER_MESSAGE, told),
    "cancel an order": Operation(to_cancel, lambda house, sale: lambda: order_cancellation.cancel_order(sale.order_id)),
    "fail lapsed orders": Operation(lapsed, lambda house, sale: order_cancellation.fail_expired_orders),
    # what follows from it
    "mail tickets": message(topics.SEND_TICKETS, confirmed),
    "mail that it failed": message(topics.SEND_FAILURE_NOTICE, failed),
    "mail that it was given back": message(topics.SEND_REFUND_NOTICE, given_back),
    "mail what was returned": message(topics.SEND_RETURN_NOTICE, partly_returned),
    "write an invoice": message(topics.INVOICE, confirmed),
    "write a credit note": message(topics.INVOICE, given_back),
    "tell an organizer": message(topics.WEBHOOK, confirmed),
    # money back
    "return a ticket": Operation(to_return, return_some),
    "return all tickets": Operation(to_return_whole, return_all),
    "give a ticket back by staff": Operation(to_give_some_back, give_some_back),
    "goodwill": Operation(to_please, please),
    "give an order back": Operation(
        lambda house, label: ends(bought(house, label), "refunded"),
        lambda house, sale: lambda: order_cancellation.refund_order(sale.order_id, "staff:1"),
    ),
    "send a refund": message(topics.REFUND, given_back),
    # an event that does not take place
    "call an event off": Operation(on_the_evening, call_off),
    "give an event's orders back": message(topics.CANCEL_EVENT, called_off),
    "mail that the event is canceled": message(topics.SEND_CANCELLATION_NOTICE, all_given_back),
    # the reconciler
    "look for what is unsettled": Operation(
        long_since(unheard, 5), lambda house, sale: status_inquiries.schedule_inquiries
    ),
    "reconcile a payment": message(topics.RECONCILE_PAYMENT, asked_about(long_since(unheard, 5))),
    "reconcile a refund": message(topics.RECONCILE_REFUND, asked_about(long_since(given_back, 5))),
    "look for days to compare": Operation(unheard, compare),
    "compare a day": message(topics.COMPARE_DAY, to_compare),
    "repair what is overdue": Operation(
        long_since(unheard, 60), lambda house, sale: lambda: reconciler.run(repair_by="test")
    ),
}
