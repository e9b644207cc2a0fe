"""Charges that are under way together: new charge messages are started in one transaction, their calls wait side by
side, and each answer is settled together with those that arrived at the same time.

Only plain cases are started here: the first charge of an open order that has time left, at a provider that is not
paused. Every other message is handled alone (`charges.handle_charge`), and so is one whose call fails, which it repeats
or looks up. No call waits for another, and neither does the end of its message: a provider that uses its whole timeout
for one charge delays no other one.

The process may be killed at any line. `started_at` is committed before the provider is called. The claim of a message
that has not ended expires, and the next delivery looks its charge up by our key, as after a single call.
"""

import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import UUID

from django.db import connection, connections

from apps.kernel import clock
from apps.kernel.db import model_rows, pools, sql, transactions
from apps.kernel.outbox.facade import LIST_MAX, Ends, Message
from apps.orders import topics
from apps.orders.models import Order, Payment
from apps.orders.payments import circuit_breaker, large_orders, order_updates, settlement, settlement_lists
from apps.orders.payments.providers import get_provider
from apps.orders.payments.providers.protocol import ChargeRequest, Kind, ProviderEvent, ProviderFault
from apps.orders.provider_sync import charges, event_storage, inbox

logger = logging.getLogger(__name__)

IDLE_SECONDS = 60.0
"""The thread that settles ends after this time without an answer and closes its database connection."""
LOCK_MS = 200
"""An answer that is settled alone waits this long for a lock at most, since the answers after it wait too. If that is
not enough, its message is handled alone."""
ASK_AFTER = timedelta(seconds=charges.INQUIRY_SECONDS_MIN)

_lock_orders = sql.load("apps.orders", "lock_orders_of_payments_skipping", prepared=True)
_payments_of_orders = sql.load("apps.orders", "payments_of_orders", prepared=True)
_set_orders_paying = sql.load("apps.orders", "set_orders_paying", prepared=True)
_set_payments_started = sql.load("apps.orders", "set_payments_started", prepared=True)


@dataclass(frozen=True, slots=True)
class _Call:
    """A charge that was started, whose message has not ended."""

    message: Message
    ends: Ends
    payment_id: UUID
    provider: str
    faults: int
    """The provider's consecutive faults before this call."""
    request: ChargeRequest


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of a call: an event, or the error that it ended with."""

    call: _Call
    event: ProviderEvent | None
    error: BaseException | None


def start_charges(messages: Sequence[Message], ends: Ends) -> None:
    """Outbox list starter: start the plain charges among these messages, and give the others back at once."""
    calls = _start_plain(messages, ends)
    started = {call.message.id for call in calls}
    others = [message for message in messages if message.id not in started]
    if others:
        ends.end((), others)
    of_provider: defaultdict[str, list[_Call]] = defaultdict(list)
    for call in calls:
        of_provider[call.provider].append(call)
    for name, group in of_provider.items():
        try:
            begun = get_provider(name).begin_charges([call.request for call in group])
        except Exception:
            logger.exception("%s charges of %s failed together and are handled alone", len(group), name)
            ends.end((), [call.message for call in group])
            continue
        arrived = []
        for call, future in zip(group, begun, strict=True):
            if future.done():
                arrived.append(_answer_of(call, future))
            else:
                future.add_done_callback(partial(_receive, call))
        _arrivals_of(messages[0]).extend(arrived)


def _start_plain(messages: Sequence[Message], ends: Ends) -> list[_Call]:
    """Set the orders of the plain cases to paying, mark their payments as started, and commit. Return their calls.

    Orders that another transaction has locked are left out. Payments, circuits and the clock are read after the locks,
    in statements of their own, and every verdict precedes the first write.
    """
    message_of = {UUID(message.body["payment"]): message for message in messages}
    with transactions.write():
        with connection.cursor() as cursor:
            locked = _lock_orders.rows(cursor, payment_ids=list(message_of))
            orders = {order.pk: order for order in model_rows.build_instances(Order, locked)}
            found, standings, ((now,),) = (
                result.rows
                for result in sql.execute_batch(
                    cursor,
                    [
                        _payments_of_orders.call(order_ids=list(orders)),
                        circuit_breaker.standings_call(),
                        clock.now_call(),
                    ],
                )
            )
            of_order: defaultdict[UUID, list[Payment]] = defaultdict(list)
            for payment in model_rows.build_instances(Payment, found):
                of_order[payment.order_id].append(payment)
            plain: list[tuple[Order, Payment, int]] = []
            for order_id, payments in of_order.items():
                order, payment = orders[order_id], payments[0]
                faults = circuit_breaker.faults_of_available(payment.provider, standings)
                if (
                    len(payments) == 1
                    and payment.status == Payment.Status.PENDING
                    and payment.started_at is None
                    and payment.faults_count == 0
                    and order.status in Order.OPEN
                    and order.has_time_for_attempt(now)
                    and faults is not None
                ):
                    plain.append((order, payment, faults))
            if not plain:
                return []
            paying, started = sql.execute_batch(
                cursor,
                [
                    _set_orders_paying.call(order_ids=[order.pk for order, _, _ in plain]),
                    _set_payments_started.call(payment_ids=[payment.pk for _, payment, _ in plain], now=now),
                ],
            )
        assert paying.touched == started.touched == len(plain)
        order_updates.publish_changes([order for order, _, _ in plain])
    # In the order of the messages, so that charges are sent in the order of checkouts.
    place = {payment_id: number for number, payment_id in enumerate(message_of)}
    return [
        _Call(
            message=message_of[payment.pk],
            ends=ends,
            payment_id=payment.pk,
            provider=payment.provider,
            faults=faults,
            request=charges.charge_request(order, payment),
        )
        for order, payment, faults in sorted(plain, key=lambda case: place[case[1].pk])
    ]


def _receive(call: _Call, future: "Future[ProviderEvent]") -> None:
    """Add the result of a call to the answers to settle. Runs on the thread that ended the call: it must not wait."""
    _arrivals_of(call.message).extend([_answer_of(call, future)])


def _answer_of(call: _Call, future: "Future[ProviderEvent]") -> _Answer:
    """Return the result of a call that has ended."""
    if future.cancelled():
        return _Answer(call, None, ProviderFault("the call was canceled"))
    if (error := future.exception()) is not None:
        return _Answer(call, None, error)
    return _Answer(call, future.result(), None)


class Arrivals:
    """The answers of one process that are to be settled. One thread settles them, all that have arrived at once: those
    that arrive meanwhile are the next group."""

    def __init__(self, settle: Callable[[Sequence[_Answer]], None], group_max: int = LIST_MAX) -> None:
        self._settle = settle
        self._group_max = group_max
        self._changed = threading.Condition()
        self._answers: deque[_Answer] = deque()
        self._has_thread = False

    def extend(self, answers: Collection[_Answer]) -> None:
        with self._changed:
            self._answers.extend(answers)
            if answers and not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._run, name="charge-answers", daemon=True).start()
            self._changed.notify()

    def _run(self) -> None:
        try:
            while group := self._next_group():
                try:
                    pools.renew_django_connections(prepares=True)
                    self._settle(group)
                except Exception:
                    logger.exception("%s answers of providers were not settled; their messages are", len(group))
                    for answer in group:
                        answer.call.ends.end((), [answer.call.message])
        finally:
            connections.close_all()

    def _next_group(self) -> list[_Answer]:
        """Return the answers that have arrived, `group_max` at most. None within IDLE_SECONDS: this thread ends."""
        with self._changed:
            self._has_thread = self._changed.wait_for(lambda: bool(self._answers), IDLE_SECONDS)
            return [self._answers.popleft() for _ in range(min(len(self._answers), self._group_max))]


def settle_arrived(answers: Sequence[_Answer]) -> None:
    """Settle the answers together as far as they are plain, then each other one alone, and end their messages."""
    given = [(answer.call, answer.event) for answer in answers if answer.event is not None]
    _note_successes([call for call, _ in given])
    settled = _settle_together(given)
    _end([call for call, _ in given if call.payment_id in settled])
    for call, event in given:
        if call.payment_id not in settled:
            _act_alone(call, partial(_settle_alone, call, event))
    for answer in answers:
        if answer.error is not None:
            _act_alone(answer.call, partial(_note_fault, answer.call, answer.error))


def _note_successes(calls: Iterable[_Call]) -> None:
    faults: dict[str, int] = {}
    for call in calls:
        # The first success after faults writes the provider's row; one is enough for the group.
        circuit_breaker.record_success(call.provider, 0)
        faults[call.provider] = max(faults.get(call.provider, 0), call.faults)
    for provider, count in faults.items():
        if count:
            circuit_breaker.reset_faults(provider)


def _settle_together(given: Sequence[tuple[_Call, ProviderEvent]]) -> set[UUID]:
    answers = [
        event_storage.build_message(event_storage.Delivery(call.provider, event), call.payment_id)
        for call, event in given
        if event.kind in (Kind.SUCCEEDED, Kind.PENDING, Kind.DECLINED) and event.key == str(call.payment_id)
    ]
    if not answers:
        return set()
    try:
        return settlement_lists.settle_answers(answers, ASK_AFTER)
    except Exception:
        logger.exception("%s answers of providers failed together and are settled alone", len(answers))
        return set()


def _end(calls: Iterable[_Call]) -> None:
    """End the messages of these charges, in one transaction for those of one delivery."""
    by_ends: dict[int, tuple[Ends, list[Message]]] = {}
    for call in calls:
        by_ends.setdefault(id(call.ends), (call.ends, []))[1].append(call.message)
    for ends, messages in by_ends.values():
        ends.end(messages)


def _act_alone(call: _Call, act: Callable[[], None]) -> None:
    """Settle one answer. If that fails, its message is handled alone and looks the charge up."""
    try:
        act()
    except Exception:
        logger.exception("payment %s: the answer was not settled; its message is handled alone", call.payment_id)
        call.ends.end((), [call.message])


def _settle_alone(call: _Call, event: ProviderEvent) -> None:
    inbox.record_provider_answer(call.provider, event, lock_ms=LOCK_MS)
    if event.key != str(call.payment_id):
        # The answer is about another charge: this one is looked up.
        call.ends.end((), [call.message])
        return
    if event.kind == Kind.PENDING:
        with transactions.write():
            settlement.schedule_inquiry(call.payment_id, ASK_AFTER)
    _end([call])


def _note_fault(call: _Call, error: BaseException) -> None:
    circuit_breaker.record_fault(call.provider, error)
    seconds = charges.record_fault(call.payment_id, error)
    logger.warning("payment %s: no response from %s: %r", call.payment_id, call.provider, error)
    if seconds is None:
        _end([call])
    else:
        call.ends.postpone(call.message, seconds, f"{type(error).__name__}: {error}")


_arrivals = Arrivals(settle_arrived)
_large_arrivals = Arrivals(settle_arrived, large_orders.LIST_MAX)
"""Those of large orders, which another thread settles."""


def _arrivals_of(message: Message) -> Arrivals:
    return _large_arrivals if message.topic == topics.CHARGE_LARGE else _arrivals
