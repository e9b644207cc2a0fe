"""The report's figures against plain SQL, written from the definitions in docs/fairness.md and not from its own
statements: orders and tickets instead of steps of reservations, and the stock as it was counted during the sale."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from apps.kernel import clock
from apps.orders.cancellation import order_cancellation
from apps.orders.models import Order
from apps.orders.reports import figures, publication
from apps.orders.returns import returns
from apps.queue.models import RoomAct
from apps.queue.room import operations
from apps.reservations import facade as reservations
from apps.reservations.staff import stock
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, join
from tests.support.orders.reported_sale import close_sale, publish
from tests.support.orders.sale import buy, deliver_outbox
from tests.support.orders.transfers import accepted, allow_transfers, first_ticket
from tests.support.queue.rooms import claim_or_get_entry, make_room
from tests.support.reservations.buyers import cancel

pytestmark = pytest.mark.django_db(transaction=True)

LINE = """
SELECT count(*), count(*) FILTER (WHERE in_lobby), count(*) FILTER (WHERE marked <> ''), count(ready_at),
       count(account_id),
       percentile_disc(0.5) WITHIN GROUP (
           ORDER BY floor(extract(epoch FROM ready_at - greatest(joined_at, onsale.opens_at)))::int
       )
FROM queue_queueentry AS entry JOIN events_onsale AS onsale USING (event_id)
"""
BOUGHT_ORDERS = """
SELECT count(*), count(DISTINCT one.buyer), count(DISTINCT one.buyer) FILTER (WHERE one.account_id IS NOT NULL),
       sum(tickets)
FROM (
    SELECT orders.buyer, orders.account_id, sum(line.quantity) AS tickets
    FROM orders_order AS orders JOIN reservations_reservationline AS line USING (reservation_id)
    WHERE orders.confirmed_at IS NOT NULL
    GROUP BY orders.id
) AS one
"""
VALID_TICKETS = "SELECT count(*) FROM orders_ticket WHERE voided_at IS NULL"
UNPAID = """
SELECT reservation.status, count(DISTINCT reservation.id), sum(line.quantity)
FROM reservations_reservation AS reservation
JOIN reservations_reservationline AS line ON line.reservation_id = reservation.id
WHERE NOT EXISTS (SELECT FROM orders_order WHERE reservation_id = reservation.id AND confirmed_at IS NOT NULL)
GROUP BY 1 ORDER BY 1
"""
RETURNED_WHOLE = """
SELECT count(*) FROM orders_order AS orders
WHERE confirmed_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM orders_ticket WHERE order_id = orders.id AND voided_at IS NULL)
"""
TICKETS_PER_BUYER = """
SELECT tickets, count(*) FROM (
    SELECT orders.buyer, sum(line.quantity) AS tickets
    FROM orders_order AS orders JOIN reservations_reservationline AS line USING (reservation_id)
    WHERE orders.confirmed_at IS NOT NULL GROUP BY 1
) AS one GROUP BY 1 ORDER BY 1
"""
STOCK_NOW = """
SELECT (SELECT count(*) FROM reservations_seatinventory WHERE status IN (1, 2))
     + (SELECT coalesce(sum(taken), 0) FROM reservations_generaladmissioninventory),
       (SELECT count(*) FROM orders_ticket WHERE voided_at IS NULL)
"""


def query(statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def run_sale() -> tuple[Any, datetime, int, int]:
    """Run a sale of seats and general admission. Return its event, a moment within it, and how many tickets were held
    and sold at that moment."""
    event = make_room("concert", rows=2, general_admission=60, rate=1_000, active=50, publishes_report=True)
    allow_transfers(event)
    users = get_user_model()
    accounts = [users.objects.create_user(f"ada-{number}").pk for number in range(6)]
    entries = [join(event, account_id=account_id) for account_id in accounts] + [join(event) for _ in range(18)]
    claimed = [claim_or_get_entry(entry) for entry in entries]

    def floor(number: int, count: int) -> reservations.ReservationView:
        return hold(event, claimed[number], ga_section="floor", ga_quantity=count)

    def buy_as(number: int, held: reservations.ReservationView) -> Order:
        return buy(held, email=f"buyer-{number}@example.org")

    held = [floor(number, 1 + number % 3) for number in range(6)]
    held.append(hold(event, claimed[6], seats=["hall-A-1", "hall-A-2"]))
    orders = [buy_as(number, held[number]) for number in range(5)]
    middle = clock.now()
    ((taken, sold),) = query(STOCK_NOW)
    orders += [buy_as(number, held[number]) for number in (5, 6)]
    orders += [buy_as(number, floor(number, 2)) for number in range(7, 12)]
    for number in range(12, 17):
        cancel(floor(number, 2).id)
    for number in range(17, 22):
        backdate_deadline(floor(number, 3).id)
    reservations.sweep(event_id=event.id, by="test")
    accepted(orders[6], first_ticket(orders[6]))
    returns.return_by_staff(orders[2].pk, [first_ticket(orders[2]).code], (), who="staff:7", why="")
    for order in orders[7:12]:
        order_cancellation.refund_order(order.pk, "staff:7")
    deliver_outbox()
    operations.set_message(event.id, "Nearly there.", who="grace.hopper")
    operations.record_refusal(event.id, RoomAct.What.ADMIT, "admit 0", "admit between 1 and 10000", who="grace.hopper")
    stock.block_general_admission(event, "floor", 3, "house", who="grace.hopper", why="")
    return close_sale(event), middle, taken - sold, sold


@pytest.mark.slow
def test_the_figures_are_those_of_plain_sql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "COMPLETE_AFTER", timedelta(0))
    event, middle, held_then, sold_then = run_sale()
    since_opening = (middle - event.policy.opens_at).total_seconds()
    monkeypatch.setattr(figures, "POINTS_SECONDS", (0, since_opening))
    report = publish(event)
    assert_audit_clean()

    ((joined, lobby, priority, admitted, accounts, median),) = query(LINE)
    people = report["people"]
    assert (people["joined"], people["lobby"], people["priority"], people["admitted"]) == (
        joined,
        lobby,
        priority,
        admitted,
    )
    assert people["joined_by_account"] == {"accounts": accounts, "guests": joined - accounts}
    assert (report["waits"]["counted"], report["waits"]["p50_seconds"]) == (admitted, median)
    assert sum(row["people"] for row in report["waits"]["histogram"]) == admitted
    assert report["admission"]["admissions"] == query("SELECT sum(count) FROM queue_admissionbatch")[0][0]

    ((bought, buyers, account_buyers, tickets),) = query(BOUGHT_ORDERS)
    ((valid,),) = query(VALID_TICKETS)
    unpaid = {status: {"reservations": count, "tickets": quantity} for status, count, quantity in query(UNPAID)}
    assert people["buyers"] == buyers
    holds = report["holds"]
    assert holds["bought"] == {"reservations": bought, "tickets": tickets}
    assert {"canceled": holds["canceled"], "expired": holds["expired"]} == unpaid
    assert holds["returned"] == {"reservations": query(RETURNED_WHOLE)[0][0], "tickets": tickets - valid}
    assert holds["made"]["reservations"] == query("SELECT count(*) FROM reservations_reservation")[0][0]
    assert holds["made"]["tickets"] == query("SELECT sum(quantity) FROM reservations_reservationline")[0][0]
    assert holds["revived"] == {"reservations": 0, "tickets": 0}

    shares = report["shares"]
    assert shares["tickets"] == tickets
    assert shares["buyers_by_account"] == {"accounts": account_buyers, "guests": buyers - account_buyers}
    groups = query(TICKETS_PER_BUYER)
    below = 0
    for row in shares["tickets_per_buyer"]:
        inside = [(size, count) for size, count in groups if below < size <= row["up_to_tickets"]]
        assert row["buyers"] == sum(count for _, count in inside)
        assert row["tickets"] == sum(size * count for size, count in inside)
        below = row["up_to_tickets"]
    assert sum(row["buyers"] for row in shares["tickets_per_buyer"]) == buyers

    curve = report["stock_curve"]
    assert (curve["held"][1], curve["sold"][1]) == (held_then, sold_then)
    assert (curve["held"][-1], curve["sold"][-1]) == (0, valid)
    ((capacity,),) = query(
        "SELECT (SELECT count(*) FROM reservations_seatinventory)"
        " + (SELECT sum(capacity) FROM reservations_generaladmissioninventory)"
    )
    assert report["stock"] == {"capacity": capacity, "blocked": 3}
    assert report["acts"] == {
        "room": {"performed": {"message": 1}, "refused": {"admit": 1}},
        "stock": {"performed": {"blocked": 1}, "refused": {}},
    }
    assert report["proof"]["numbers"] == joined
    assert report["proof"]["chain_head"] == query("SELECT encode(chain_head, 'hex') FROM queue_waitingroom")[0][0]
