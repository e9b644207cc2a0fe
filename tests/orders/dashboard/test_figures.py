"""The figures of a dashboard: they equal plain SQL over the ledger, and closed minutes are never counted again."""

from datetime import datetime, timedelta

import pytest
from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.orders.dashboard import figures, sales_tally
from apps.orders.models import Order, ReturnPolicy, SalesMinute, SalesTally, Ticket
from apps.orders.returns import returns
from tests.support import factories
from tests.support.orders.sale import buy, deliver_outbox
from tests.support.races import in_another_connection, rival_connection, storm, values

pytestmark = pytest.mark.django_db(transaction=True)

PLAIN = """
SELECT
  (SELECT count(*) FROM reservations_seatinventory WHERE event_id = %(e)s AND status = 2)
    + (SELECT coalesce(sum(l.quantity), 0) FROM reservations_reservationline l
       JOIN reservations_reservation r ON r.id = l.reservation_id
       WHERE r.event_id = %(e)s AND r.status = 'confirmed' AND l.live AND l.seat_id IS NULL),
  (SELECT count(*) FROM reservations_seatinventory WHERE event_id = %(e)s AND status = 0)
    + (SELECT coalesce(sum(capacity - blocked - taken), 0) FROM reservations_generaladmissioninventory
       WHERE event_id = %(e)s),
  (SELECT count(*) FROM orders_order WHERE event_id = %(e)s AND confirmed_at IS NOT NULL),
  (SELECT count(*) FROM orders_orderline l JOIN orders_order o ON o.id = l.order_id
   WHERE o.event_id = %(e)s AND o.confirmed_at IS NOT NULL AND l.kind = 'place'),
  (SELECT coalesce(sum(total_minor), 0) FROM orders_order WHERE event_id = %(e)s AND confirmed_at IS NOT NULL),
  (SELECT coalesce(sum(r.amount_minor), 0) FROM orders_refund r JOIN orders_order o ON o.id = r.order_id
   WHERE o.event_id = %(e)s AND r.status <> 'failed'),
  (SELECT count(*) FROM orders_ticket t JOIN orders_order o ON o.id = t.order_id
   WHERE o.event_id = %(e)s AND t.voided_at IS NULL AND t.checked_in_at IS NOT NULL)
"""


@pytest.fixture
def concert() -> events.EventView:
    return factories.make_event("concert", general_admission=20)


def in_plain_sql(event: events.EventView) -> tuple[int, ...]:
    with connection.cursor() as cursor:
        cursor.execute(PLAIN, {"e": event.id})
        return tuple(int(value) for value in cursor.fetchone())


def read(event: events.EventView) -> tuple[int, ...]:
    found = figures.read_figures(event.id, age_seconds=0)
    return (
        found.sold, found.free, found.orders, found.tickets, found.gross_minor, found.refunded_minor, found.entered
    )  # fmt: skip


def backdate(order: Order, minutes: int) -> datetime:
    moment = clock.now() - timedelta(minutes=minutes)
    Order.objects.filter(pk=order.pk).update(confirmed_at=moment)
    return moment.replace(second=0, microsecond=0)


def test_the_figures_equal_plain_sql_over_the_ledger(concert: events.EventView) -> None:
    empty = factories.make_event("empty", general_admission=20)
    assert read(empty) == in_plain_sql(empty)
    sold = buy(factories.hold(concert, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=3))
    factories.hold(concert, seats=["hall-A-3"], ga_section="floor", ga_quantity=2)
    first, second = Ticket.objects.filter(order=sold).order_by("pk")[:2]
    Ticket.objects.filter(pk=first.pk).update(checked_in_at=clock.now())
    backdate(sold, 30)
    buy(factories.hold(concert, seats=["hall-A-4"]))
    found = figures.read_figures(concert.id, age_seconds=0)
    assert read(concert) == in_plain_sql(concert)
    assert (found.sold, found.held, found.tickets, found.entered, found.expected) == (6, 3, 6, 1, 6)
    assert found.capacity == found.sold + found.held + found.free + found.blocked
    code = second.code
    ReturnPolicy.objects.create(event_id=concert.id, until_hours=1)
    returns.return_idempotently(sold.pk, {"tickets": [code]}, "key")
    deliver_outbox()
    assert read(concert) == in_plain_sql(concert)
    after = figures.read_figures(concert.id, age_seconds=0)
    assert after.refunded_minor > 0
    assert after.revenue_minor == after.gross_minor - after.refunded_minor
    assert (after.tickets, after.sold) == (6, 5)


def test_a_closed_minute_is_counted_once(concert: events.EventView) -> None:
    old, new = buy(factories.hold(concert, seats=["hall-A-1"])), buy(factories.hold(concert, seats=["hall-A-2"]))
    minute = backdate(old, 10)
    assert sales_tally.count_sales(concert.id) == sales_tally.Sales(2, 2, old.total_minor + new.total_minor)
    row = SalesMinute.objects.get(minute=minute)
    assert (row.order_count, row.ticket_count, row.gross_minor) == (1, 1, old.total_minor)
    # A change that the product never makes shows that only the open minutes are read again.
    Order.objects.update(total_minor=1)
    assert sales_tally.count_sales(concert.id).gross_minor == old.total_minor + 1


def test_bins_join_closed_and_open_minutes(concert: events.EventView) -> None:
    for seat, minutes in (("hall-A-1", 61), ("hall-A-2", 31), ("hall-A-3", 30), ("hall-A-4", 0)):
        backdate(buy(factories.hold(concert, seats=[seat])), minutes)
    sales_tally.close_minutes(concert.id)
    end = clock.now().replace(second=0, microsecond=0) + timedelta(minutes=1)
    bins = sales_tally.read_bins(concert.id, end - timedelta(hours=1), 1_800)
    # 61 minutes ago is before the first bin; 31 and 30 minutes ago are in it.
    assert [(one.at, one.tickets) for one in bins] == [(end - timedelta(hours=1), 2), (end - timedelta(minutes=30), 1)]
    assert sum(one.tickets for one in sales_tally.read_bins(concert.id, end - timedelta(hours=2), 60)) == 4


def test_a_long_sale_is_counted_in_short_steps(concert: events.EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sales_tally, "STEP_ORDERS_MAX", 1)
    for seat, minutes in (("hall-A-1", 40), ("hall-A-2", 40), ("hall-A-3", 20), ("hall-A-4", 10)):
        backdate(buy(factories.hold(concert, seats=[seat])), minutes)
    monkeypatch.setattr(sales_tally, "STEPS_MAX", 1)
    sales_tally.close_minutes(concert.id)
    assert 1 <= SalesTally.objects.get().order_count < 4
    assert sales_tally.count_sales(concert.id).tickets == 4
    monkeypatch.setattr(sales_tally, "STEPS_MAX", 20)
    sales_tally.close_minutes(concert.id)
    assert SalesTally.objects.get().order_count == 4


@pytest.mark.parametrize("is_naive", [False, True])
def test_an_order_that_commits_late_is_not_missed(
    concert: events.EventView, monkeypatch: pytest.MonkeyPatch, *, is_naive: bool
) -> None:
    """One transaction begins, confirms an order at time T and has not committed. A dashboard closes minutes. Then the
    transaction commits, and the next dashboard reads. Closed by the clock alone (as if T's minute were over), T's
    minute is closed without the order, for ever; closed before the oldest transaction, it is still open."""
    order = buy(factories.hold(concert, seats=["hall-A-1"]))
    Order.objects.update(status="failed", reason="declined", confirmed_at=None, ended_at=clock.now())
    if is_naive:

        class Naive:
            def rows(self, cursor: object) -> list[tuple[datetime]]:
                return [(clock.now().replace(second=0, microsecond=0) + timedelta(minutes=1),)]

        monkeypatch.setattr(sales_tally, "_closed_until", Naive())
    with rival_connection() as rival:
        rival.set_autocommit(False)
        with rival.cursor() as cursor:
            cursor.execute(
                "UPDATE orders_order SET status = 'confirmed', reason = '', confirmed_at = clock_timestamp(),"
                " ended_at = NULL WHERE id = %s",
                [order.pk],
            )
        assert sales_tally.count_sales(concert.id).orders == 0
        rival.commit()
    assert sales_tally.count_sales(concert.id).orders == (0 if is_naive else 1)


def test_concurrent_dashboards_count_every_order_once(concert: events.EventView) -> None:
    for seat, minutes in (("hall-A-1", 3), ("hall-A-2", 2), ("hall-A-3", 1), ("hall-A-4", 0)):
        backdate(buy(factories.hold(concert, seats=[seat])), minutes)
    seen = values(storm(6, lambda _: sales_tally.count_sales(concert.id).tickets))
    assert seen == [4] * 6
    assert sales_tally.count_sales(concert.id).tickets == 4


def test_figures_are_computed_once_for_all_viewers(concert: events.EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    first = figures.read_figures(concert.id)
    buy(factories.hold(concert, seats=["hall-A-1"]))
    monkeypatch.setattr(figures, "count_entered", None)  # A second computation would fail.
    assert in_another_connection(lambda: figures.read_figures(concert.id)) == first


def test_the_home_page_computes_some_events_and_shows_the_last_figures_of_others(
    concert: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = factories.make_event("other", general_admission=20)
    monkeypatch.setattr(figures, "HOME_COMPUTED_MAX", 1)
    assert set(figures.read_home_figures([concert.id, other.id])) == {concert.id}
    assert set(figures.read_home_figures([concert.id, other.id])) == {concert.id, other.id}


@pytest.mark.parametrize(("sold", "words"), [(0, "0%"), (1, "<1%"), (72, "50%"), (144, "100%")])
def test_a_small_share_is_not_shown_as_nothing(sold: int, words: str) -> None:
    section = figures.SectionFigures("Stalls", 144, 144 - sold, 0, sold, 0)
    shown = figures.Figures(
        at=clock.now(), sections=(section,), orders=1, tickets=sold, gross_minor=0, refunded_minor=0, last_minute=0,
        expected=0, entered=0,
    )  # fmt: skip
    assert shown.sold_percent == words
