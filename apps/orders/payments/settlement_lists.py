"""Settles a list of provider messages in one transaction, with a few statements however many they are: stored webhooks,
or direct answers, which are stored together with what they change.

Only plain cases are settled here: the expected amount for an open order, paid in time, as the order's only pending
payment; and of direct answers also refusals after which the buyer may try again. Everything else (late, refunded, of
another amount, of a canceled event) is left to `settlement`, which decides one message and may wait for locks.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from uuid import UUID

from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import model_rows, sql, transactions
from apps.kernel.outbox import facade as outbox
from apps.orders import locks
from apps.orders.models import Order, Payment, ProviderMessage
from apps.orders.payments import order_updates, settlement
from apps.orders.payments.providers.protocol import Kind
from apps.reservations import facade as reservations

_orders_of_messages = sql.load("apps.orders", "orders_of_messages", prepared=True)
_lock_orders = sql.load("apps.orders", "lock_orders_skipping", prepared=True)
_payments_of_orders = sql.load("apps.orders", "payments_of_orders", prepared=True)
_lock_messages = sql.load("apps.orders", "lock_provider_messages_skipping", prepared=True)
_settle_payments = sql.load("apps.orders", "settle_payments", prepared=True)
_confirm_orders = sql.load("apps.orders", "confirm_orders", prepared=True)
_note_outcomes = sql.load("apps.orders", "note_outcomes", prepared=True)
_lock_orders_of_payments = sql.load("apps.orders", "lock_orders_of_payments_skipping", prepared=True)
_note_pending = sql.load("apps.orders", "note_pending_payments", prepared=True)
_decline_payments = sql.load("apps.orders", "decline_payments", prepared=True)
_set_orders_placed = sql.load("apps.orders", "set_orders_placed", prepared=True)
_store_settled = sql.load("apps.orders", "store_settled_messages", prepared=True)

Case = tuple[Order, Payment, ProviderMessage]


def settle_plain(message_ids: Collection[int]) -> set[int]:
    """Settle the plain cases among these stored messages, and commit. Return the ids of the settled ones; nothing is
    changed for the others.

    Orders that another transaction keeps locked are left out. Locks are taken kind by kind, each kind in id order
    (docs/locking.md, rule 3): the orders, the messages, then what `reservations.confirm_plain` locks. Payments and
    messages are read after the orders' locks, in statements of their own. All verdicts precede the first write.
    """
    return locks.repeat_locked(message_ids, _settle_plain)


def _settle_plain(message_ids: Collection[int]) -> locks.Handled[int]:
    with transactions.write():
        with connection.cursor() as cursor:
            order_ids = [order_id for (order_id,) in _orders_of_messages.rows(cursor, message_ids=list(message_ids))]
            locked = _lock_orders.rows(cursor, order_ids=order_ids)
            orders = {order.pk: order for order in model_rows.build_instances(Order, locked)}
            found, stored = sql.execute_batch(
                cursor,
                [
                    _payments_of_orders.call(order_ids=list(orders)),
                    _lock_messages.call(message_ids=list(message_ids), order_ids=list(orders)),
                ],
            )
        payments = model_rows.build_instances(Payment, found.rows)
        messages = model_rows.build_instances(ProviderMessage, stored.rows)
        plain = _plain_cases(orders, payments, messages)
        in_order = [case for case in plain if not settlement.is_too_early(case[1], case[2])]
        confirmed = _confirm(in_order, _note_confirmed)
    unlocked = {payment.pk for payment in payments} | {None}
    seen = {message.pk for message in messages if message.payment_id in unlocked}
    return locks.Handled({message.pk for _, _, message in confirmed}, set(message_ids) - seen)


def _note_confirmed(messages: Sequence[ProviderMessage]) -> sql.Call:
    return _note_outcomes.call(message_ids=[message.pk for message in messages], outcome=settlement.CONFIRMED)


def settle_answers(answers: Sequence[ProviderMessage], ask_after: timedelta) -> set[UUID]:
    """Store and settle the plain cases among these direct answers, which are not stored yet, and commit. Return the ids
    of their payments; nothing is stored or changed for the others. An inquiry follows `ask_after` the answer that a
    charge is pending.

    The orders are locked before any message is stored, as for a single answer (rule 3), and orders that another
    transaction keeps locked are left out. A webhook with the same message that was stored before is settled with it;
    one that is being stored is waited for, and its transaction waits for no lock of this one.
    """
    return locks.repeat_locked(answers, partial(_settle_answers, ask_after))


def _settle_answers(ask_after: timedelta, answers: Collection[ProviderMessage]) -> locks.Handled[ProviderMessage]:
    with transactions.write():
        with connection.cursor() as cursor:
            locked = _lock_orders_of_payments.rows(cursor, payment_ids=[answer.payment_id for answer in answers])
            orders = {order.pk: order for order in model_rows.build_instances(Order, locked)}
            found = _payments_of_orders.rows(cursor, order_ids=list(orders))
        payments = model_rows.build_instances(Payment, found)
        confirmed = _confirm(_plain_cases(orders, payments, answers), _store_confirmed)
        waiting = _pending_cases(orders, payments, answers)
        if waiting:
            _note_waiting(waiting, ask_after)
        declined = _decline(orders, payments, answers)
        late = _late_cases(orders, payments, answers)
        if late:
            with connection.cursor() as cursor:
                messages = [message for _, _, message in late]
                sql.execute_batch(cursor, [_store_call(messages, [settlement.TOO_LATE] * len(late))])
    unlocked = {payment.pk for payment in payments}
    return locks.Handled(
        {payment.pk for _, payment, _ in (*confirmed, *waiting, *declined, *late)},
        [answer for answer in answers if answer.payment_id not in unlocked],
    )


def _store_confirmed(messages: Sequence[ProviderMessage]) -> sql.Call:
    return _store_call(messages, [settlement.CONFIRMED] * len(messages))


def _store_call(messages: Sequence[ProviderMessage], outcomes: Sequence[str]) -> sql.Call:
    return _store_settled.call(
        providers=[message.provider for message in messages],
        message_ids=[message.message_id for message in messages],
        kinds=[message.kind for message in messages],
        payment_ids=[message.payment_id for message in messages],
        references=[message.reference for message in messages],
        amounts_minor=[message.amount_minor for message in messages],
        currencies=[message.currency for message in messages],
        times=[message.occurred_at for message in messages],
        raws=[message.raw for message in messages],
        outcomes=list(outcomes),
    )


def _pending_cases(
    orders: Mapping[UUID, Order], payments: Sequence[Payment], answers: Collection[ProviderMessage]
) -> list[Case]:
    """Return the answers that their charges are pending, about payments that are."""
    return [
        (order, payment, answer)
        for order, payment, answer in _cases(orders, payments, answers)
        if answer.kind == Kind.PENDING and payment.status == Payment.Status.PENDING
    ]


def _late_cases(
    orders: Mapping[UUID, Order], payments: Sequence[Payment], answers: Collection[ProviderMessage]
) -> list[Case]:
    """Return the answers that their charges are pending, about payments whose success a webhook has reported before.
    They change nothing, and need no inquiry."""
    return [
        (order, payment, answer)
        for order, payment, answer in _cases(orders, payments, answers)
        if answer.kind == Kind.PENDING
        and payment.status == Payment.Status.SUCCEEDED
        and payment.reference == answer.reference
    ]


def _cases(
    orders: Mapping[UUID, Order], payments: Sequence[Payment], answers: Collection[ProviderMessage]
) -> Iterator[Case]:
    by_id = {payment.pk: payment for payment in payments}
    for answer in answers:
        if answer.payment_id in by_id:
            payment = by_id[answer.payment_id]
            yield orders[payment.order_id], payment, answer


def _note_waiting(waiting: Sequence[Case], ask_after: timedelta) -> None:
    answers = [answer for _, _, answer in waiting]
    actions = [None if answer.next_action is None else json.dumps(answer.next_action) for answer in answers]
    outcomes = [settlement.WAITS_FOR_PROVIDER if one is None else settlement.WAITS_FOR_BUYER for one in actions]
    with connection.cursor() as cursor:
        _, noted = sql.execute_batch(
            cursor,
            [
                _store_call(answers, outcomes),
                _note_pending.call(
                    payment_ids=[payment.pk for _, payment, _ in waiting],
                    references=[answer.reference for answer in answers],
                    next_actions=actions,
                ),
            ],
        )
    assert noted.touched == len(waiting)
    outbox.publish_all([settlement.inquiry(payment.pk, ask_after) for _, payment, _ in waiting])
    order_updates.publish_changes([order for order, _, _ in waiting])


def _decline(
    orders: Mapping[UUID, Order], payments: Sequence[Payment], answers: Collection[ProviderMessage]
) -> list[Case]:
    """Store the refusals of pending payments after which the buyers may try again, and return them."""
    cases = list(_cases(orders, payments, answers))
    per_order = Counter(order.pk for order, _, _ in cases)
    refused = [
        (order, payment, answer)
        for order, payment, answer in cases
        if answer.kind == Kind.DECLINED
        and payment.status == Payment.Status.PENDING
        and per_order[order.pk] == 1
        and order.status in Order.OPEN
        and settlement.is_about(payment, answer)
    ]
    if not refused:
        return []  # A list of sales reads no clock for this.
    now = clock.now()
    declined = [case for case in refused if settlement.allows_another_attempt(case[0], case[1], now)]
    if not declined:
        return []
    messages = [message for _, _, message in declined]
    with connection.cursor() as cursor:
        _, settled, placed = sql.execute_batch(
            cursor,
            [
                _store_call(messages, [settlement.MAY_TRY_AGAIN] * len(messages)),
                _decline_payments.call(
                    payment_ids=[payment.pk for _, payment, _ in declined],
                    references=[message.reference for message in messages],
                    times=[message.occurred_at for message in messages],
                    now=now,
                ),
                _set_orders_placed.call(order_ids=[order.pk for order, _, _ in declined]),
            ],
        )
    assert settled.touched == placed.touched == len(declined)
    order_updates.publish_changes([order for order, _, _ in declined])
    return declined


def _plain_cases(
    orders: Mapping[UUID, Order], payments: Sequence[Payment], messages: Collection[ProviderMessage]
) -> list[Case]:
    pending = Counter(each.order_id for each in payments if each.status == Payment.Status.PENDING)
    by_id = {payment.pk: payment for payment in payments}
    per_order = Counter(by_id[message.payment_id].order_id for message in messages if message.payment_id in by_id)
    plain = []
    for message in messages:
        payment = None if message.payment_id is None else by_id.get(message.payment_id)
        if payment is None:
            continue  # Its order is locked by another transaction.
        order = orders[payment.order_id]
        expected = (order.total_minor, order.currency)
        if (
            message.processed_at is None
            and message.kind == Kind.SUCCEEDED
            and payment.status == Payment.Status.PENDING
            and pending[order.pk] == per_order[order.pk] == 1
            and order.status in Order.OPEN
            and order.ended_at is None
            and (payment.amount_minor, payment.currency) == (message.amount_minor, message.currency) == expected
            and settlement.is_about(payment, message)
        ):
            plain.append((order, payment, message))
    return plain


def _confirm(plain: Sequence[Case], note: Callable[[Sequence[ProviderMessage]], sql.Call]) -> list[Case]:
    """Confirm the orders of these cases whose reservations can be confirmed in a list, and return them. `note` returns
    the statement that stores the outcome of their messages."""
    known = events.get_events_by_id(order.event_id for order, _, _ in plain)
    given = [
        reservations.Confirmation(
            order.reservation_id,
            occurred_at=message.occurred_at,
            event=known[order.event_id],
            who=f"provider:{payment.provider}",
            why=f"payment of order {order.number}",
        )
        for order, payment, message in plain
        if known[order.event_id].status != "canceled"
    ]
    views = reservations.confirm_plain(given)
    confirmed = [case for case in plain if case[0].reservation_id in views]
    if not confirmed:
        return []
    now = clock.now()
    messages = [message for _, _, message in confirmed]
    with connection.cursor() as cursor:
        payments, orders, noted = sql.execute_batch(
            cursor,
            [
                _settle_payments.call(
                    payment_ids=[payment.pk for _, payment, _ in confirmed],
                    amounts_minor=[message.amount_minor for message in messages],
                    currencies=[message.currency for message in messages],
                    times=[message.occurred_at for message in messages],
                    references=[message.reference for message in messages],
                    now=now,
                ),
                _confirm_orders.call(order_ids=[order.pk for order, _, _ in confirmed], now=now),
                note(messages),
            ],
        )
    assert payments.touched == orders.touched == noted.touched == len(confirmed)
    for order, _, _ in confirmed:
        order.status, order.confirmed_at = Order.Status.CONFIRMED, now
    settlement.issue_tickets([(order, views[order.reservation_id]) for order, _, _ in confirmed], now)
    return confirmed
