"""Races for the last uses of a promo code. Each ends with a clean audit."""

import threading
from typing import Any

import pytest
from django.db import transaction

from apps.events import facade as events
from apps.orders.cancellation import order_cancellation
from apps.orders.errors import CodeLimitReached, CodeUsedUp
from apps.orders.models import CodeUse, Order, PromoCode
from apps.orders.promo_codes import promo_codes
from apps.reservations import facade as reservations
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import deliver_outbox, make_code, place_order
from tests.support.races import Outcome, in_another_connection, storm, values

pytestmark = pytest.mark.django_db(transaction=True)
BUYERS, USES = 50, 10


@pytest.fixture(autouse=True)
def _audit() -> Any:
    yield
    assert_audit_clean()


@pytest.fixture
def concert() -> events.EventView:
    return make_event("concert", general_admission=BUYERS * 2)


def holds(event: events.EventView, count: int) -> list[reservations.ReservationView]:
    return [hold(event, ga_section="floor", ga_quantity=1) for _ in range(count)]


def buy_with_code(held: list[reservations.ReservationView], **changes: Any) -> list[Outcome]:
    return storm(
        len(held), lambda at: place_order(held[at], code="HALFPRICE", **{"email": f"buyer{at}@example.org"} | changes)
    )


def refusals(outcomes: list[Outcome]) -> set[type[BaseException]]:
    return {type(outcome.error) for outcome in outcomes if outcome.error is not None}


@pytest.mark.slow
def test_of_fifty_concurrent_checkouts_ten_use_a_code_of_ten_uses(concert) -> None:
    """Each waits for the code's row, and counts the uses that earlier checkouts have committed."""
    make_code(concert, uses_max=USES)
    held = holds(concert, BUYERS)
    outcomes = buy_with_code(held)
    assert refusals(outcomes) == {CodeUsedUp}
    assert Order.objects.count() == CodeUse.objects.count() == USES
    live = [view for view in held if reservations.get_reservation(view.id).status == "pending_payment"]
    assert len(live) == BUYERS - USES
    assert place_order(live[0], email="other@example.org").total_minor == 2_500


def test_control_without_the_lock_a_code_is_used_too_often(concert, monkeypatch) -> None:
    """Three read the code without locking it, count no use, and all three write one."""
    make_code(concert, uses_max=1)
    counted = threading.Barrier(3)
    count_uses = promo_codes.count_uses

    def count_with_the_others(code: PromoCode) -> int:
        count = count_uses(code)
        counted.wait(timeout=10)
        return count

    with monkeypatch.context() as patch:
        patch.setattr(promo_codes, "lock_code", lambda code_id: PromoCode.objects.get(pk=code_id))
        patch.setattr(promo_codes, "count_uses", count_with_the_others)
        values(buy_with_code(holds(concert, 3)))
    assert CodeUse.objects.count() == 3
    for order in Order.objects.order_by("pk")[1:]:
        order_cancellation.refund_order(order.pk, "test")


def test_unpaid_orders_of_others_with_the_address_use_up_no_code_and_paid_ones_do(concert) -> None:
    """Five browsers and one address, which any visitor can type. All check out before the first has paid."""
    make_code(concert, uses_per_buyer_max=1)
    values(buy_with_code(holds(concert, 5), email="one@example.org"))
    assert CodeUse.objects.count() == 5
    deliver_outbox()
    assert refusals(buy_with_code(holds(concert, 3), email="one@example.org")) == {CodeLimitReached}
    assert CodeUse.objects.count() == 5


def test_eight_tabs_of_one_reservation_use_the_code_once(concert) -> None:
    """The unique order lets one through; the other seven find that order, and use the code no more."""
    make_code(concert, uses_max=1)
    held = hold(concert, ga_section="floor", ga_quantity=1)
    assert len({order.pk for order in values(buy_with_code([held] * 8, email="one@example.org"))}) == 1
    assert CodeUse.objects.count() == 1


def test_a_use_released_and_taken_at_once_is_never_counted_twice(concert) -> None:
    """Ten orders end while ten others check out. A checkout that counts before an ending has committed is refused, one
    that counts after it is not; there are never more than ten uses."""
    make_code(concert, uses_max=USES)
    first = values(buy_with_code(holds(concert, USES)))
    second = holds(concert, USES)

    def act(at: int) -> Any:
        if at < USES:
            return order_cancellation.cancel_order(first[at].pk)
        return place_order(second[at - USES], code="HALFPRICE", email=f"second{at}@example.org")

    outcomes = storm(2 * USES, act)
    assert refusals(outcomes) <= {CodeUsedUp}
    taken = sum(outcome.error is None for outcome in outcomes[USES:])
    assert CodeUse.objects.filter(released_at=None).count() == taken <= USES


def test_the_end_of_an_order_does_not_wait_for_checkouts_with_its_code(concert) -> None:
    """Another transaction keeps the code's row locked: an ending has seats locked by then, and would wait in the wrong
    order."""
    code = make_code(concert, uses_max=USES)
    order = place_order(hold(concert, seats=["hall-A-1"]), code="HALFPRICE")
    with transaction.atomic():
        promo_codes.lock_code(code.pk)
        in_another_connection(lambda: order_cancellation.refund_order(order.pk, "staff:1"))
    assert CodeUse.objects.get().released_at is not None


def test_a_checkout_does_not_wait_for_a_code_without_limits(concert) -> None:
    code = make_code(concert)
    held = hold(concert, seats=["hall-A-1"])
    with transaction.atomic():
        promo_codes.lock_code(code.pk)
        in_another_connection(lambda: place_order(held, code="HALFPRICE"))
    assert CodeUse.objects.count() == 1
