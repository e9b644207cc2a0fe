"""Group commit of checkouts: a list of them is one transaction, in which each is placed or changes nothing.

Only plain checkouts are placed here: of a reservation without an order, with a price and without a promo code, whose
terms are accepted and whose buyer is within the purchase cap. The outcome of every other one is None: then
`checkout.check_out` decides it alone, with the reason of a refusal, and may wait for locks.

Locks are taken kind by kind, each kind sorted: the orders by their reservations, the reservations, the cap rows. The
clock is read after the last lock, and every verdict precedes the writes of lines, payments and messages.
"""

import json
import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from apps.events import facade as events
from apps.kernel.db import arrays, sql, transactions
from apps.kernel.group_commit.batcher import Batcher, decide_finds_committed
from apps.kernel.http import idempotency
from apps.kernel.http.idempotency import Answer, StoredAnswer
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.checkout.buyer_details import CheckoutDetails
from apps.orders.checkout.new_orders import NUMBER_ONCE, new_order, place_call, read_placed
from apps.orders.lines import create_lines_call
from apps.orders.models import Order, Payment
from apps.orders.payments import large_orders
from apps.orders.selectors import placed_contract
from apps.reservations import facade as reservations

logger = logging.getLogger(__name__)

BATCH_MAX = 128
LOCK_WAIT_MS = 200
STATEMENT_MS = 3_000
DRAWS_MAX = 3
"""How often new order numbers are drawn after one of them was taken."""

_insert_payments = sql.load("apps.orders", "insert_payments", prepared=True)
_withdraw_orders = sql.load("apps.orders", "withdraw_orders")


@dataclass(frozen=True, slots=True)
class PlainCheckout:
    """A validated checkout that a list may place. The reservation and its bill were read without a lock."""

    reservation: reservations.ReservationView
    details: CheckoutDetails
    bill: events.Bill
    provider: str
    account_id: int | None
    terms_version: str
    """The accepted version of the organizer's terms; empty if it has none."""
    origin: str
    """The digest of the client's network (`mail_caps.origin_of`)."""
    idempotency_key: str
    fingerprint: str

    @property
    def event(self) -> events.EventView:
        return self.reservation.event

    @property
    def is_large(self) -> bool:
        return large_orders.is_large(self.reservation.seat_count)

    @property
    def scope(self) -> str:
        return scope_of(self.reservation)

    def is_repeated_by(self, other: "PlainCheckout") -> bool:
        return (self.scope, self.idempotency_key, self.fingerprint) == (
            other.scope,
            other.idempotency_key,
            other.fingerprint,
        )


def scope_of(reservation: reservations.ReservationView) -> str:
    """Return the scope of a checkout's idempotency key."""
    return f"checkout:{reservation.entry_id}"


def fingerprint_of(reservation: reservations.ReservationView, payload: dict[str, Any]) -> str:
    """Return the fingerprint of a checkout with this body."""
    return idempotency.fingerprint({"reservation": str(reservation.id), "body": payload})


def plain_checkout(
    reservation: reservations.ReservationView,
    details: CheckoutDetails,
    terms: events.Terms | None,
    *,
    provider: str,
    account_id: int | None,
    origin: str,
    idempotency_key: str,
    fingerprint: str,
) -> PlainCheckout | None:
    """Return the checkout for a list, or None if it has to be decided alone."""
    bill = reservation.bill
    is_plain = (
        reservation.is_pending
        and reservation.event.status != "canceled"
        and not details.code
        and bill.total_minor > 0
        and (terms is None or details.terms == terms.version)
    )
    if not is_plain:
        return None
    return PlainCheckout(
        reservation,
        details,
        bill,
        provider,
        account_id,
        "" if terms is None else terms.version,
        origin,
        idempotency_key,
        fingerprint,
    )


class _Placed(NamedTuple):
    """A checkout that its transaction writes, with the rows that it writes."""

    checkout: PlainCheckout
    order: Order
    payment: Payment
    planned: reservations.PlannedPayment
    answer: Answer

    @property
    def charge(self) -> outbox.NewMessage:
        topic = large_orders.topic_for(topics.CHARGE, self.planned.seat_count)
        return outbox.NewMessage(topic, str(self.order.pk), {"payment": str(self.payment.pk)})


def decide(
    checkouts: Sequence[PlainCheckout], write: transactions.TransactionOpener = transactions.write_on_django
) -> Iterator[dict[int, Answer | None]]:
    """Place the plain ones of these checkouts in one transaction; those of large orders in further ones, a few in each.
    Yield the answer to each, by index, after its commit: None if it must be decided alone. An answer that an earlier
    transaction committed is returned again.

    `write` opens its transactions, by default on this thread's connection; none may be open."""
    first: dict[uuid.UUID, int] = {}
    indexes: dict[uuid.UUID, list[int]] = {}
    for index, checkout in enumerate(checkouts):
        first.setdefault(checkout.reservation.id, index)
        indexes.setdefault(checkout.reservation.id, []).append(index)
    decided = [checkouts[index] for index in _with_keys_once(checkouts, first.values())]
    for part in large_orders.split(decided, lambda checkout: checkout.reservation.seat_count):
        answers, placed = _place(part, write)
        yield {
            index: answers.get(one.reservation.id) if one.is_repeated_by(checkouts[index]) else None
            for one in part
            for index in indexes.pop(one.reservation.id)
        }
        if placed:
            outbox.notify_published([one.charge for one in placed])
            reservations.notify_payments_begun([one.planned for one in placed], write)
    if indexes:
        yield {index: None for left in indexes.values() for index in left}


def _with_keys_once(checkouts: Sequence[PlainCheckout], indexes: Iterable[int]) -> list[int]:
    """Return these indexes without those whose key another reservation's checkout before it has."""
    seen: dict[tuple[str, str], int] = {}
    for index in indexes:
        seen.setdefault((checkouts[index].scope, checkouts[index].idempotency_key), index)
    return list(seen.values())


def _place(
    checkouts: Sequence[PlainCheckout], write: transactions.TransactionOpener
) -> tuple[dict[uuid.UUID, Answer], list[_Placed]]:
    """Place the plain ones, and commit. Return the answers by reservation, with those that were stored before, and what
    was placed now."""
    for _ in range(DRAWS_MAX):
        try:
            reservations.prepare_payments(
                [(one.event.id, one.details.email) for one in checkouts if one.reservation.per_buyer_max is not None],
                write,
            )
            return _place_once(checkouts, write)
        except transactions.FAILURES as error:
            if transactions.violated_constraint(error) == NUMBER_ONCE:
                continue
            if not (transactions.is_transient(error) or transactions.is_rowcount_mismatch(error)):
                raise
            # A lock was not released in time, or another checkout has used one of the keys meanwhile.
            logger.info("%s checkouts are decided alone after: %s", len(checkouts), error)
            break
    return {}, []


def _place_once(
    checkouts: Sequence[PlainCheckout], write: transactions.TransactionOpener
) -> tuple[dict[uuid.UUID, Answer], list[_Placed]]:
    # Inserting the order locks it, before the reservation. So an order that cannot be placed is withdrawn.
    orders = [
        new_order(
            one.reservation,
            one.details,
            account_id=one.account_id,
            bill=one.bill,
            terms_version=one.terms_version,
            origin=one.origin,
        )
        for one in checkouts
    ]
    with write(lock_ms=LOCK_WAIT_MS, statement_ms=STATEMENT_MS) as cursor:
        stored, inserted = sql.execute_batch(
            cursor,
            [
                idempotency.find_answers_call(
                    arrays.texts([one.scope for one in checkouts]),
                    arrays.texts([one.idempotency_key for one in checkouts]),
                ),
                place_call(
                    [
                        (order, one.reservation, one.event.policy.payment_seconds)
                        for order, one in zip(orders, checkouts, strict=True)
                    ]
                ),
            ],
        )
        known = {(scope, key): (fingerprint, Answer(*rest)) for scope, key, fingerprint, *rest in stored.rows}
        new = {order.reservation_id: order for order in read_placed(orders, inserted.rows)}
        candidates = [one for one in checkouts if (one.scope, one.idempotency_key) not in known]
        candidates = [one for one in candidates if one.reservation.id in new]
        planned = [_planned_payment(one, new[one.reservation.id]) for one in candidates]
        plain, now = reservations.lock_payments(cursor, planned)
        placed = [
            _placed(one, new[one.reservation.id], plan, now)
            for one, plan in zip(candidates, planned, strict=True)
            if one.reservation.id in plain
        ]
        withdrawn = new.keys() - {one.order.reservation_id for one in placed}
        sql.execute_batch_and_commit(cursor, _write_calls(placed, [new[one].pk for one in withdrawn], now))
    answers = {
        one.reservation.id: known[one.scope, one.idempotency_key][1]
        for one in checkouts
        if known.get((one.scope, one.idempotency_key), ("",))[0] == one.fingerprint
    }
    return answers | {one.order.reservation_id: one.answer for one in placed}, placed


def _planned_payment(checkout: PlainCheckout, order: Order) -> reservations.PlannedPayment:
    reservation = checkout.reservation
    return reservations.PlannedPayment(
        reservation_id=reservation.id,
        event_id=reservation.event_id,
        entry_id=reservation.entry_id,
        expires_at=reservation.expires_at,
        seat_count=reservation.seat_count,
        per_buyer_max=reservation.per_buyer_max,
        email=order.email,
        who=order.buyer,
        pay_deadline=order.pay_deadline,
    )


def _placed(checkout: PlainCheckout, order: Order, planned: reservations.PlannedPayment, now: datetime) -> _Placed:
    payment = Payment(
        id=uuid.uuid4(),
        order_id=order.pk,
        attempt=1,
        provider=checkout.provider,
        method=checkout.details.payment_method,
        amount_minor=order.total_minor,
        currency=order.currency,
        counts_until=order.pay_deadline + timedelta(seconds=checkout.event.policy.grace_seconds),
        created_at=now,
    )
    answer = Answer(202, json.dumps(placed_contract(order, payment, checkout.bill)))
    return _Placed(checkout, order, payment, planned, answer)


def _write_calls(placed: Sequence[_Placed], withdrawn: Sequence[uuid.UUID], now: datetime) -> list[sql.Call]:
    calls = [_withdraw_orders.call(order_ids=list(withdrawn))] if withdrawn else []
    if not placed:
        return calls
    payments = [one.payment for one in placed]
    return [
        *calls,
        create_lines_call([(one.order.pk, one.checkout.bill) for one in placed]),
        _insert_payments.call(
            ids=[payment.pk for payment in payments],
            order_ids=[payment.order_id for payment in payments],
            providers=[payment.provider for payment in payments],
            methods=[payment.method for payment in payments],
            amounts_minor=[payment.amount_minor for payment in payments],
            currencies=[payment.currency for payment in payments],
            counts_until=[payment.counts_until for payment in payments],
            now=now,
        ),
        *reservations.begin_payments_calls([one.planned for one in placed], now),
        outbox.publish_call([one.charge for one in placed]),
        idempotency.store_answers_call(
            [
                StoredAnswer(one.checkout.scope, one.checkout.idempotency_key, one.checkout.fingerprint, one.answer)
                for one in placed
            ]
        ),
    ]


checkouts: Batcher[PlainCheckout, Answer | None] = Batcher(
    # Stored answers are read before anything is decided, so a retry finds what an earlier attempt committed.
    "checkouts",
    lambda connection, checkouts: decide(checkouts, transactions.writes_on(connection)),
    find_committed=decide_finds_committed,
    key=lambda checkout: checkout.is_large,
    committers_max=2,
    batch_max=BATCH_MAX,
)
"""Group commit of checkouts: those that arrive together are placed together, on a connection of their own. Those of
large orders have a queue, a thread and a connection of their own."""
