"""Checkouts that are decided together: each is placed wholly or changes nothing, with an answer of its own."""

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from apps.events import facade as events
from apps.events.models import Event
from apps.kernel.db import roundtrip, transactions
from apps.kernel.http.idempotency import Answer
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import topics
from apps.orders.checkout import checkout_lists, new_orders
from apps.orders.checkout.buyer_details import read_details
from apps.orders.checkout.checkout import check_out
from apps.orders.checkout.checkout_lists import PlainCheckout, decide, plain_checkout
from apps.orders.models import Order, Payment
from apps.orders.payments.providers import chosen_provider
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation
from tests.support.batches import connect
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, join, make_event
from tests.support.orders.sale import EMAIL, buy, checkout_body, deliver_outbox

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _audit() -> Iterator[None]:
    yield
    assert_audit_clean()


def plain(reservation: reservations.ReservationView, key: str = "", **changes: Any) -> PlainCheckout:
    provider, body = chosen_provider(), checkout_body(**changes)
    checkout = plain_checkout(
        reservation,
        read_details(body, methods=provider.methods),
        None,
        provider=provider.name,
        account_id=None,
        origin="",
        idempotency_key=key or uuid.uuid4().hex,
        fingerprint=checkout_lists.fingerprint_of(reservation, body),
    )
    assert checkout is not None
    return checkout


def decided(checkouts: Sequence[PlainCheckout]) -> list[Answer | None]:
    """Decide these as one list; return the answers in order."""
    with connect() as connection:
        outcomes: dict[int, Answer | None] = {}
        for settled in decide(checkouts, transactions.writes_on(connection)):
            outcomes |= settled
    return [outcomes[index] for index in range(len(checkouts))]


def held(count: int, **spec: Any) -> list[reservations.ReservationView]:
    event = make_event(**spec)
    return [hold(event, seats=[f"hall-A-{number}"]) for number in range(1, count + 1)]


def order_of(answer: Answer | None) -> Order:
    assert answer is not None
    return Order.objects.get(pk=json.loads(answer.body)["order_id"])


def test_every_checkout_of_a_list_gets_its_own_order_payment_and_charge() -> None:
    views = held(3)
    answers = decided([plain(view, name=f"Ada {number}") for number, view in enumerate(views)])
    orders = [order_of(answer) for answer in answers]
    assert [order.reservation_id for order in orders] == [view.id for view in views]
    assert [order.name for order in orders] == ["Ada 0", "Ada 1", "Ada 2"]
    for order, view in zip(orders, views, strict=True):
        payment = Payment.objects.get(order=order)
        reservation = reservations.get_reservation(view.id)
        assert (reservation.status, reservation.email) == ("paying", EMAIL)
        assert reservation.pay_deadline == order.pay_deadline >= view.expires_at
        assert payment.counts_until > order.pay_deadline
        assert OutboxMessage.objects.get(topic=topics.CHARGE, key=str(order.pk)).body == {"payment": str(payment.pk)}
    deliver_outbox()
    assert set(Order.objects.values_list("status", flat=True)) == {"confirmed"}


def test_a_list_answers_as_a_checkout_alone_does() -> None:
    """The same reservation, checked out in both ways, gets the same document."""
    first, second = held(2)
    (listed,) = decided([plain(first)])
    Event.objects.update(name="Concert")
    alone = check_out(second, checkout_body(code=""), "key")

    def shape(answer: Answer | None) -> Any:
        assert answer is not None
        document = json.loads(answer.body)
        lines = [line | {"description": ""} for line in document["bill"]["lines"]]
        return answer.status, document | {"order_id": "", "bill": document["bill"] | {"lines": lines}}

    assert shape(listed) == shape(alone)


def test_what_cannot_be_placed_changes_nothing_beside_what_can() -> None:
    """A lapsed hold, one that was canceled meanwhile, and one whose address has reached the purchase cap: each is
    decided alone, and leaves no order behind."""
    good, lapsed, canceled = held(3, per_buyer_max=2)
    event = events.get_event_by_id(good.event_id)
    buy(hold(event, seats=["hall-B-1", "hall-B-2"]), email="full@example.org")
    capped = hold(event, seats=["hall-B-3"])
    checkouts = [plain(view) for view in (lapsed, canceled, good)] + [plain(capped, email="full@example.org")]
    backdate_deadline(lapsed.id)
    reservations.release(canceled.id, "buyer")
    before = Order.objects.count()
    answers = decided(checkouts)
    assert [answer is not None for answer in answers] == [False, False, True, False]
    assert Order.objects.count() == before + 1
    assert reservations.get_reservation(capped.id).status == Reservation.Status.PENDING_PAYMENT
    with pytest.raises(reservations.PurchaseCapReached):
        check_out(capped, checkout_body(email="full@example.org"), "key")
    with pytest.raises(reservations.ReservationExpired):
        check_out(lapsed, checkout_body(), "key")


def test_one_key_and_one_reservation_twice_in_a_list_is_one_order() -> None:
    (view,) = held(1)
    first = plain(view, "key")
    answers = decided([first, replace(first), plain(view, "another"), plain(view, "key", name="Eve")])
    assert answers[0] is not None
    assert answers[0] == answers[1]
    assert answers[2:] == [None, None]
    assert Order.objects.count() == 1


def test_a_key_of_another_reservation_in_the_list_is_not_answered_with_its_order() -> None:
    """One visitor's entry, two reservations, one key: only the first is placed."""
    event = make_event()
    entry = join(event)
    old = hold(event, entry, seats=["hall-A-1"])
    reservations.release(old.id, "buyer")
    new = hold(event, entry, seats=["hall-A-2"])
    answers = decided(
        [plain(new, "key"), replace(plain(new, "key"), reservation=replace(old, status="pending_payment"))]
    )
    assert [answer is not None for answer in answers] == [True, False]
    assert Order.objects.count() == 1


def test_a_list_that_is_decided_again_finds_its_answers() -> None:
    """As after a COMMIT whose response was lost."""
    checkouts = [plain(view) for view in held(2)]
    assert decided(checkouts) == decided(checkouts)
    assert Order.objects.count() == 2


def test_a_faulty_checkout_is_alone_in_its_fault() -> None:
    good, bad = held(2)
    faulty = plain(bad)
    faulty = replace(faulty, details=replace(faulty.details, name=""))
    with connect() as connection, pytest.raises(Exception, match="order_has_buyer"):
        list(decide([plain(good), faulty], transactions.writes_on(connection)))
    assert not Order.objects.exists()
    assert checkout_lists.checkouts.submit_sync(plain(good), 10_000) is not None
    with pytest.raises(Exception, match="order_has_buyer"):
        checkout_lists.checkouts.submit_sync(faulty, 10_000)


def test_an_order_number_that_is_taken_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = held(2)
    taken = order_of(decided([plain(first)])[0]).number
    numbers = iter([taken, "NEW22-NUMBR"])
    monkeypatch.setattr(new_orders, "new_number", lambda: next(numbers))
    assert order_of(decided([plain(second)])[0]).number == "NEW22-NUMBR"


def test_a_long_list_takes_as_many_round_trips_as_one_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    send = roundtrip.Cursor._send_batch

    def counted(self: Any, texts: Sequence[str]) -> Any:
        sent.append(len(texts))
        return send(self, texts)

    views = held(8)
    monkeypatch.setattr(roundtrip.Cursor, "_send_batch", counted)
    counts = []
    for checkouts in ([plain(views[0])], [plain(view) for view in views[1:]]):
        sent.clear()
        assert all(decided(checkouts))
        counts.append(list(sent))
    assert counts[0] == counts[1]
    # Orders and stored answers; locks; writes and the commit. Then the entries' slots, in a transaction of their own.
    assert len(counts[0]) <= 6


def test_terms_that_are_not_accepted_are_left_to_the_single_path() -> None:
    (view,) = held(1)
    checkout = plain(view)
    terms = events.Terms("terms-1", "Opera", ())
    arguments = {
        "provider": "sandbox",
        "account_id": None,
        "origin": "",
        "idempotency_key": "key",
        "fingerprint": "f",
    }
    assert plain_checkout(view, checkout.details, terms, **arguments) is None
    accepted = replace(checkout.details, terms="terms-1")
    assert plain_checkout(view, accepted, terms, **arguments) is not None
    assert plain_checkout(view, replace(checkout.details, code="HALF"), None, **arguments) is None
    paying = replace(view, status="paying")
    assert plain_checkout(paying, checkout.details, None, **arguments) is None
