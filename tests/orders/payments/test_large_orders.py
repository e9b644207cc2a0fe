"""Large orders share no transaction with others, and few with each other: no other buyer waits for them."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.db import connections

from apps.events.facade import EventView
from apps.kernel.http import problems
from apps.kernel.http.idempotency import Answer
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.delivery import Delivery
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import topics
from apps.orders.checkout import async_views, checkout_lists
from apps.orders.checkout.checkout_lists import PlainCheckout
from apps.orders.invoices import invoice_lists
from apps.orders.models import Invoice, Order, Ticket
from apps.orders.payments import large_orders, settlement
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.sandbox.cards import LATE
from apps.orders.provider_sync import charge_lists
from apps.reservations import facade as reservations
from tests.orders.checkout.test_checkout_lists import decided, plain
from tests.orders.payments.test_settlement_lists import store_webhook
from tests.support.batches import wait_until
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.charge_lists import HeldCalls
from tests.support.orders.sale import check_out, checkout_body, deliver_outbox, payment_of, place_order

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
LARGE = large_orders.TICKETS_MAX + 1
SECONDS_MAX = 20


@pytest.fixture(autouse=True)
def _audit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # The threads that settle answers end soon, and close their connections.
    monkeypatch.setattr(charge_lists, "IDLE_SECONDS", 0.05)
    yield
    deliver_outbox()
    assert_audit_clean()


@pytest.fixture
def event() -> EventView:
    return make_event(rows=14, seats_per_row=LARGE, seats_per_reservation_max=LARGE)


@pytest.fixture
def confirmed(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The orders that were confirmed in each transaction, by their number of tickets."""
    transactions: list[list[int]] = []
    issue = settlement.issue_tickets

    def note(sales: Sequence[tuple[Order, reservations.ReservationView]], *rest: Any) -> None:
        transactions.append([view.seat_count for _, view in sales])
        issue(sales, *rest)

    monkeypatch.setattr(settlement, "issue_tickets", note)
    return transactions


def held(event: EventView, ticket_counts: Sequence[int]) -> list[reservations.ReservationView]:
    """Hold this number of tickets in each row of the event's section."""
    return [
        hold(event, seats=[f"hall-{chr(ord('A') + row)}-{seat}" for seat in range(1, count + 1)])
        for row, count in enumerate(ticket_counts)
    ]


def place_orders(event: EventView, ticket_counts: Sequence[int], method: str = sandbox.APPROVES) -> list[Order]:
    return [
        place_order(view, method, email=f"buyer{number}@example.org")
        for number, view in enumerate(held(event, ticket_counts))
    ]


def deliver() -> None:
    """Deliver all due messages as a worker does, in lists."""
    delivery = Delivery(2)
    delivery.wake()
    assert delivery.wait(SECONDS_MAX)
    assert delivery.close(SECONDS_MAX)


def is_confirmed(order: Order) -> bool:
    return Order.objects.filter(pk=order.pk, status=Order.Status.CONFIRMED).exists()


def assert_apart(transactions: Sequence[Sequence[int]], ticket_counts: Sequence[int]) -> None:
    """Assert that each was in one of these transactions, and that none had large orders beside others, or many."""
    assert sorted(count for one in transactions for count in one) == sorted(ticket_counts)
    for counts in transactions:
        assert len({large_orders.is_large(count) for count in counts}) == 1, transactions
        assert sum(counts) <= large_orders.LIST_MAX * LARGE, transactions


COUNTS = [LARGE, 1, LARGE, LARGE, 2, LARGE, LARGE, 1, LARGE, LARGE]


def test_the_webhooks_of_large_orders_are_settled_apart_from_others(
    event: EventView, confirmed: list[list[int]]
) -> None:
    orders = place_orders(event, COUNTS, LATE)
    deliver_outbox()
    for order in orders:
        store_webhook(order)
    of_topics = OutboxMessage.objects.filter(done_at=None, body__has_key="message").values_list("topic", "key")
    large = {key for topic, key in of_topics if topic == topics.PROVIDER_MESSAGE_LARGE}
    assert large == {str(order.pk) for order, count in zip(orders, COUNTS, strict=True) if count == LARGE}
    assert_audit_clean()  # The audit finds the messages under both topics.
    deliver()
    assert_apart(confirmed, COUNTS)
    assert [1, 1, 2] in map(sorted, confirmed)
    assert Ticket.objects.count() == sum(COUNTS)


def test_the_answers_to_charges_of_large_orders_are_settled_apart_from_others(
    event: EventView, confirmed: list[list[int]]
) -> None:
    place_orders(event, COUNTS)
    delivery = Delivery(2)
    try:
        delivery.wake()
        wait_until(lambda: Order.objects.filter(status="confirmed").count() == len(COUNTS), "confirmed")
        assert delivery.wait(SECONDS_MAX)
    finally:
        assert delivery.close(SECONDS_MAX)
    assert_apart(confirmed, COUNTS)


def test_other_orders_are_confirmed_while_large_ones_wait_for_their_transaction(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A: has the answers to charges of large orders, and settles the first few of them
    B: starts the charges of other orders and settles their answers, while A has not ended
    """
    *large, small = place_orders(event, [LARGE] * 12 + [1])
    begun, ended = threading.Event(), threading.Event()
    settle = charge_lists.settle_arrived

    def wait(answers: Sequence[charge_lists._Answer]) -> None:
        begun.set()
        assert ended.wait(SECONDS_MAX)
        settle(answers)

    monkeypatch.setattr(charge_lists._large_arrivals, "_settle", wait)
    delivery = Delivery(2)
    try:
        delivery.wake()
        assert begun.wait(SECONDS_MAX)
        wait_until(lambda: is_confirmed(small), "the small order is confirmed")
        assert not any(map(is_confirmed, large))
    finally:
        ended.set()
        wait_until(lambda: all(map(is_confirmed, large)), "the large orders are confirmed")
        assert delivery.close(SECONDS_MAX)


def test_large_orders_use_up_no_calls_of_others(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    large = place_orders(event, [LARGE] * 12)
    calls = HeldCalls(monkeypatch, *large)
    small = place_order(hold(event, seats=["hall-N-1"]))
    delivery = Delivery(2)
    try:
        delivery.wake()
        wait_until(lambda: is_confirmed(small), "the small order is confirmed")
        wait_until(lambda: len(calls.begun) == 1 + large_orders.calls_max(), "some large charges are under way")
        held_back = large
        while held_back:
            under_way = [order for order in held_back if payment_of(order).pk in calls.begun]
            for order in under_way:
                calls.answer(order)
            wait_until(lambda: all(map(is_confirmed, under_way)), "they are confirmed")  # noqa: B023
            held_back = [order for order in held_back if order not in under_way]
            wait_until(
                lambda: not held_back or any(payment_of(order).pk in calls.begun for order in held_back),  # noqa: B023
                "the next ones are started",
            )
    finally:
        assert delivery.close(SECONDS_MAX)


def test_a_repeated_attempt_of_a_large_order_is_charged_apart(event: EventView) -> None:
    (view,) = held(event, [LARGE])
    order = place_order(view, sandbox.DECLINES)
    deliver_outbox()
    assert place_order(view) == order
    charges = OutboxMessage.objects.filter(body__has_key="payment", topic__startswith=topics.CHARGE)
    assert list(charges.values_list("topic", flat=True)) == [topics.CHARGE_LARGE] * 2


def test_the_invoices_of_large_orders_are_written_in_short_lists(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists: list[int] = []
    issue = invoice_lists.issue_plain
    monkeypatch.setattr(invoice_lists, "issue_plain", lambda ids: (lists.append(len(ids)), issue(ids))[1])
    place_orders(event, COUNTS)
    deliver()
    assert Invoice.objects.count() == len(COUNTS)
    assert sorted(Invoice.objects.values_list("sequence", flat=True)) == list(range(1, len(COUNTS) + 1))
    small = COUNTS.count(1) + COUNTS.count(2)
    of_topics = OutboxMessage.objects.values_list("topic", flat=True)
    assert list(of_topics).count(topics.INVOICE) == small
    assert list(of_topics).count(topics.INVOICE_LARGE) == len(COUNTS) - small
    assert max(lists) <= large_orders.LIST_MAX


def test_a_failure_in_a_later_short_list_leaves_all_messages_to_the_single_path(event: EventView) -> None:
    messages = [outbox.Message(number, "", "", {}, None, 1, None, None) for number in range(7)]  # type: ignore[arg-type]
    parts: list[list[int]] = []

    def handle(part: Sequence[outbox.Message]) -> set[int]:
        parts.append([message.id for message in part])
        return {part[0].id}

    assert large_orders.in_short_lists(handle)(messages) == {0, large_orders.LIST_MAX}
    assert parts == [[0, 1, 2, 3, 4], [5, 6]]


# --- checkouts ------------------------------------------------------------------------------------------------------


def test_the_checkouts_of_large_orders_are_placed_apart_from_others(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed: list[list[int]] = []
    place = checkout_lists._place_once

    def note(checkouts: Sequence[PlainCheckout], *rest: Any) -> Any:
        placed.append([one.reservation.seat_count for one in checkouts])
        return place(checkouts, *rest)

    monkeypatch.setattr(checkout_lists, "_place_once", note)
    views = held(event, COUNTS)
    answers = decided([plain(view, email=f"buyer{number}@example.org") for number, view in enumerate(views)])
    assert all(answer is not None and answer.status == 202 for answer in answers)
    assert_apart(placed, COUNTS)
    assert [Order.objects.get(reservation_id=view.id).pk for view in views] == [
        Order.objects.get(pk=answer.body.split('"order_id": "')[1][:36]).pk  # type: ignore[union-attr]
        for answer in answers
    ]


def test_repetitions_are_answered_whatever_their_transaction(event: EventView) -> None:
    """The same request twice, another key for its reservation, and its key for another reservation."""
    large, other, small = held(event, [LARGE, LARGE, 1])
    first = plain(large, "k")
    same_key = plain(other, "k")
    answers = decided([first, plain(small, "s"), first, plain(large, "another"), same_key])
    assert answers[0] is not None
    assert answers[0] == answers[2]
    assert answers[1] is not None
    assert answers[3] is None
    assert (answers[4] is None) == (same_key.scope == first.scope)
    assert Order.objects.count() == sum(answer is not None for answer in (answers[0], answers[1], answers[4]))


def test_a_checkout_is_placed_while_those_of_large_orders_are_under_way(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A: a transaction of large orders, which takes long
    B: another checkout of the same process, which does not wait for A
    """
    large, small = held(event, [LARGE, 1])
    begun, ended = threading.Event(), threading.Event()
    place = checkout_lists._place

    def wait(checkouts: Sequence[PlainCheckout], *rest: Any) -> Any:
        if checkouts[0].is_large:
            begun.set()
            assert ended.wait(SECONDS_MAX)
        return place(checkouts, *rest)

    monkeypatch.setattr(checkout_lists, "_place", wait)
    answers: list[Answer] = []

    def check_out_large() -> None:
        try:
            answers.append(check_out(large, checkout_body(), "large"))
        finally:
            connections.close_all()

    slow = threading.Thread(target=check_out_large)
    slow.start()
    try:
        assert begun.wait(SECONDS_MAX)
        assert check_out(small, checkout_body(), "small").status == 202
        assert answers == []
    finally:
        ended.set()
        slow.join(SECONDS_MAX)
    assert [answer.status for answer in answers] == [202]


def test_checkouts_of_large_orders_occupy_half_of_a_process(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    (large, small) = (plain(view) for view in held(event, [LARGE, 1]))
    most = async_views.LARGE_MAX + async_views.LARGE_WAITING_MAX
    assert most <= async_views.CHECKOUTS_MAX / 2

    async def run() -> tuple[list[Any], list[Any]]:
        ended = asyncio.Event()

        async def submit(checkout: PlainCheckout) -> Answer | None:
            if checkout.is_large:
                await ended.wait()
            return None

        monkeypatch.setattr(async_views.checkouts, "submit", submit)
        waiting = [asyncio.create_task(async_views.submit(large)) for _ in range(most)]
        # Tasks begin in the order of their creation: those that wait are before these.
        others = [asyncio.create_task(async_views.submit(one)) for one in (large, small)]
        answers = await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), SECONDS_MAX)
        ended.set()
        return await asyncio.gather(*waiting), list(answers)

    done, (refused, other) = asyncio.run(run())
    assert done == [None] * most
    assert isinstance(refused, problems.Busy)
    assert other is None
