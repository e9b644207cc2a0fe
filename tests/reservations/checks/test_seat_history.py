"""Seat history: the owner of a seat at a moment, from the ledger, with exact limits; errors are one line."""

import json
import uuid
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from apps.events import facade as events
from apps.kernel import clock
from apps.reservations import facade as reservations
from apps.reservations.checks import oversell_compensation, oversell_plan, seat_history
from apps.reservations.models import ReservationLine, ReservationTransition
from apps.reservations.staff import stock
from apps.reservations.staff.selection import Selection
from tests.reservations.checks.test_oversell_compensation import drop_constraints, share_seat, way
from tests.support.factories import backdate_deadline, hold, join, make_event, make_hold_request
from tests.support.orders.sale import buy
from tests.support.reservations.buyers import begin_payment, cancel, confirm, seat

pytestmark = pytest.mark.django_db

TICK = timedelta(microseconds=1)


def history(event: events.EventView, guid: str = "hall-A-1") -> seat_history.Timeline:
    return seat_history.timeline(event, events.seats_by_guid(event.id, [guid])[guid])


def who_held(*args: str) -> str:
    out = StringIO()
    call_command("who_held", *args, stdout=out)
    return out.getvalue().strip()


def steps(reservation_id: uuid.UUID) -> dict[str, datetime]:
    """Return when the reservation reached each status, by the ledger; the last time for a status reached twice."""
    rows = ReservationTransition.objects.filter(reservation_id=reservation_id).order_by("id")
    return dict(rows.values_list("to_status", "at"))


def holder(event: events.EventView, moment: datetime) -> Any:
    """Return status and reservation at the moment; None if the seat is free."""
    spans = history(event).at(moment)
    assert len(spans) <= 1
    return (spans[0].state, spans[0].reservation_id) if spans else None


def test_hold_release_second_hold_payment_and_return_are_each_exact_to_the_microsecond() -> None:
    event = make_event()
    first = hold(event, seats=["hall-A-1", "hall-A-2"])
    reservations.release(first.id, who="buyer")
    second = hold(event, seats=["hall-A-1"])
    begin_payment(second.id)
    confirm(second.id, clock.now())
    cancel(second.id)
    one, two = steps(first.id), steps(second.id)
    for moment, before, after in [
        (one["pending_payment"], None, ("held", first.id)),
        (one["canceled"], ("held", first.id), None),
        (two["pending_payment"], None, ("held", second.id)),
        (two["paying"], ("held", second.id), ("paying", second.id)),
        (two["confirmed"], ("paying", second.id), ("sold", second.id)),
        (two["canceled"], ("sold", second.id), None),
    ]:
        assert holder(event, moment - TICK) == before
        assert holder(event, moment) == after, "a span that begins at the moment counts, one that ends at it does not"
    assert history(event).free_since(clock.now()) == two["canceled"]
    assert history(event).free_since(one["pending_payment"] - TICK) is None
    assert [span.state for span in history(event, "hall-A-2").spans] == ["held"]
    assert history(event, "hall-E-10").spans == ()


def test_a_late_payment_has_the_seat_again_from_its_own_moment() -> None:
    """Expired, free in between, and sold again by a payment that was made in time."""
    event = make_event()
    view = begin_payment(hold(event, seats=["hall-A-1"]).id)
    in_time = clock.now()
    backdate_deadline(view.id)
    reservations.sweep_all()
    confirm(view.id, in_time)
    at = steps(view.id)
    assert holder(event, at["expired"] - TICK) == ("paying", view.id)
    assert holder(event, at["expired"]) is None
    assert holder(event, at["confirmed"] - TICK) is None
    assert holder(event, at["confirmed"]) == ("sold", view.id)
    assert [span.ended_as for span in history(event).spans] == ["paying", "expired", ""]


def test_a_seat_that_was_replaced_by_another_was_held_until_then() -> None:
    event = make_event()
    entry = join(event)
    view = hold(event, entry, seats=["hall-A-1"])
    (outcome,) = reservations.hold([make_hold_request(event, entry, seats=["hall-A-2"], replace=str(view.id))])
    assert isinstance(outcome, reservations.Held), outcome
    at = steps(view.id)["canceled"]
    assert holder(event, at - TICK) == ("held", view.id)
    assert holder(event, at) is None
    assert [span.reservation_id for span in history(event, "hall-A-2").spans] == [outcome.reservation_id]


def test_a_blocked_seat_was_blocked_until_staff_put_it_back() -> None:
    event = make_event()
    seats = Selection(seats=("hall-A-1",))
    stock.block_seats(event, seats, "house", who="staff:1", why="for the mayor")
    stock.unblock_seats(event, seats, who="staff:2")
    view = hold(event, seats=["hall-A-1"])
    blocked, held = history(event).spans
    assert (blocked.state, blocked.who, blocked.why, blocked.ended_as) == (
        "blocked", "staff:1", "house: for the mayor", "available",
    )  # fmt: skip
    assert blocked.until is not None
    assert history(event).at(blocked.until) == ()
    assert held.reservation_id == view.id
    assert "blocked by staff:1" in who_held("hall-A-1", "--at", (blocked.until - TICK).isoformat())


def test_a_moved_buyer_had_the_old_seat_until_the_move_and_the_new_one_from_then_on() -> None:
    """Two buyers bought hall-B-5, and one of them was moved to hall-B-7, a house seat until that moment."""
    show = way(make_event(), "house_seats")
    drop_constraints()
    first, second = (buy(hold(show, seats=[guid])).reservation_id for guid in ("hall-B-5", "hall-E-1"))
    share_seat(first, second, "hall-B-5")
    stock.block_seats(show, Selection(seats=("hall-B-7",)), "house", who="ann", why="for the mayor")
    between = clock.now()
    assert [
        done.was_applied for done in oversell_compensation.apply(oversell_plan.plan(show), by="op", approved_by="Ada")
    ] == [True]
    blocked, sold = history(show, "hall-B-7").spans
    assert (blocked.who, blocked.ended_as, blocked.until) == ("ann", "sold", sold.since)
    assert (sold.state, sold.reservation_id, sold.until, sold.who) == ("sold", second, None, "op")
    assert history(show, "hall-B-7").at(between) == (blocked,)
    assert "must never happen" not in who_held("hall-B-7", "--at", between.isoformat())
    left = history(show, "hall-B-5")
    assert {span.reservation_id for span in left.at(between)} == {first, second}, "the double sale is shown"
    assert [span.reservation_id for span in left.at(clock.now())] == [first]
    assert [span.ended_as for span in left.spans if span.reservation_id == second] == [
        "paying", "sold", "moved to hall-B-7",
    ]  # fmt: skip
    assert "then moved to hall-B-7" in who_held("hall-B-5", "--at", between.isoformat())
    # Canceled on the new seat: nothing of that is shown for the old one.
    cancel(second)
    assert history(show, "hall-B-7").spans[-1].ended_as == "canceled"
    assert [span.reservation_id for span in history(show, "hall-B-5").at(clock.now())] == [first]


def test_an_impossible_overlap_is_shown_and_not_hidden() -> None:
    """Two reservations at once, which no constraint would allow: both are named."""
    event = make_event()
    one, other = hold(event, seats=["hall-A-1"]), hold(event, seats=["hall-A-2"])
    ReservationLine.objects.filter(reservation_id=other.id).update(seat=seat("hall-A-1"), live=False)
    assert {span.reservation_id for span in history(event).at(clock.now())} == {one.id, other.id}
    assert "must never happen" in who_held("hall-A-1")


def test_the_command_names_buyer_order_and_both_limits() -> None:
    event = make_event()
    view = hold(event, seats=["hall-A-1"])
    order = buy(view)
    sold = steps(view.id)["confirmed"]
    output = who_held("hall-A-1")
    assert f"sold by {history(event).spans[-1].buyer}, reservation {view.id}, order {order.number}, since" in output
    assert "until now" in output
    found = json.loads(who_held("hall-A-1", "--at", (sold - TICK).isoformat(), "--json"))
    (span,) = found["held_by"]
    assert (span["state"], span["ended_as"], span["order"]) == ("paying", "sold", order.number)
    again = json.loads(who_held("hall-A-1", "--at", span["until"], "--json"))
    assert again["held_by"][0]["state"] == "sold", "a limit that it prints can be queried"
    free = json.loads(who_held("hall-A-1", "--at", "2020-01-01", "--json"))
    assert (free["free"], free["free_since"], free["held_by"]) == (True, None, [])


def test_a_time_without_an_offset_is_in_the_venues_time_zone() -> None:
    now = datetime(2027, 1, 1, tzinfo=UTC)
    assert seat_history.parse_moment("2026-11-21T20:00", "Europe/Berlin", now) == datetime(2026, 11, 21, 19, tzinfo=UTC)
    assert seat_history.parse_moment("2026-11-21T20:00Z", "Europe/Berlin", now) == datetime(
        2026, 11, 21, 20, tzinfo=UTC
    )
    assert seat_history.parse_moment("2026-07-01T20:00+05:30", "Europe/Berlin", now) == datetime(
        2026, 7, 1, 14, 30, tzinfo=UTC
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-10-25T02:30", "is ambiguous in Europe/Berlin"),
        ("2026-03-29T02:30", "does not exist in Europe/Berlin"),
        ("2027-01-02", "in the future"),
        ("yesterday", "is not a time"),
        ("", "is not a time"),
        ("2026-02-30", "is not a time"),
        ("9" * 400, "is not a time"),
        ("9999-12-31T23:59-14:00", "in the future"),
        ("2026-11-21T20:00\x00", "is not a time"),
        ("0001-01-01T00:00+14:00", "out of range"),
        ("0001-01-01T00:00", "out of range"),
    ],
)
def test_an_invalid_moment_is_refused_with_its_reason(text: str, words: str) -> None:
    with pytest.raises(seat_history.BadMoment, match=words):
        seat_history.parse_moment(text, "Europe/Berlin", datetime(2027, 1, 1, tzinfo=UTC))


def test_the_first_moment_of_all_is_invalid_west_of_greenwich() -> None:
    """It has a date in UTC, and none in the time zone of the venue."""
    with pytest.raises(seat_history.BadMoment, match="out of range"):
        seat_history.parse_moment("0001-01-01T00:00Z", "America/New_York", datetime(2027, 1, 1, tzinfo=UTC))
    first = datetime(1, 1, 1, tzinfo=UTC)
    assert seat_history.parse_moment("0001-01-01T00:00Z", "Europe/Berlin", datetime(2027, 1, 1, tzinfo=UTC)) == first


def test_an_invalid_query_is_refused_in_one_line() -> None:
    make_event()
    make_event("opera", venue="The Other Venue")
    for args, words in [
        (["hall-A-1"], "2 events have a seat 'hall-A-1'; name one with --event: concert, opera"),
        (["hall-Z-1"], "no event has a seat"),
        (["hall\x00"], "no event has a seat"),
        (["hall-A-1", "--event", "nowhere"], "no published event"),
        (["hall-Z-1", "--event", "opera"], "opera: no seat 'hall-Z-1'"),
        (["hall-A-1", "--event", "opera", "--at", "soon"], "is not a time"),
    ]:
        with pytest.raises(CommandError) as refused:
            who_held(*args)
        assert words in str(refused.value)
        assert len(str(refused.value).splitlines()) == 1
    assert "free, and never held before" in who_held("hall-A-1", "--event", "opera")


@pytest.mark.parametrize(
    "typed",
    [
        "audit ?",
        "reconcile ?",
        "compensate ?",
        "preload_gate ?",
        "who_held ?",
        "who_held hall-A-1 --event ?",
        "who_held hall-A-1 --at ?",
        "stock ? show",
        "stock concert block ? --for house",
        "stock concert block --section ? --for house",
        "stock concert block --section hall --row ? --for house",
        "stock concert resize ? 5",
        "stock concert reprice ? 5",
        "stock concert add-price ? 5",
        "stock concert move hall-A-1 --to ?",
        "room ? show",
        "rebuild_queue ?",
    ],
)
def test_bytes_that_are_not_text_are_refused_in_one_line_by_every_command(typed: str) -> None:
    """A shell passes any bytes; those that are not UTF-8 arrive as half of a surrogate pair."""
    make_event(rows=1, seats_per_row=1)
    with pytest.raises(CommandError) as refused:
        call_command(*typed.replace("?", "\udcff").split(), stdout=StringIO())
    assert len(str(refused.value).splitlines()) == 1


def test_the_seats_page_shows_its_history_and_answers_for_a_moment(client: Client) -> None:
    client.force_login(get_user_model().objects.create_superuser("chief"))
    event = make_event()
    page = f"/admin/reservations/seatinventory/{seat('hall-A-1').pk}/change/"
    assert "No one has held this seat yet" in client.get(page).content.decode()
    view = hold(event, seats=["hall-A-1"])
    order = buy(view)
    shown = client.get(page).content.decode()
    assert shown.count(str(view.id)) >= 3
    assert order.number in shown
    at = steps(view.id)
    assert "At 2020-01-01" in (page_at := client.get(page, {"at": "2020-01-01"}).content.decode())
    assert "never held before" in page_at
    page_at = client.get(page, {"at": at["paying"].isoformat()}).content.decode()
    assert "paying by visitor:" in page_at
    assert "then sold" in page_at
    for bad in ("soon", "\x00", "9999-12-31", "0001-01-01T00:00+14:00", "<script>"):
        response = client.get(page, {"at": bad})
        assert response.status_code == 200
        assert "errornote" in response.content.decode()
        assert "<script>." not in response.content.decode()


def test_a_history_takes_three_short_reads_and_the_names_of_orders(django_assert_max_num_queries: Any) -> None:
    event = make_event()
    for _ in range(3):
        reservations.release(hold(event, seats=["hall-A-1"]).id, who="buyer")
    place = events.seats_by_guid(event.id, ["hall-A-1"])["hall-A-1"]
    assert connection.in_atomic_block
    # Includes the savepoint of the test and the limits of the transaction.
    with django_assert_max_num_queries(7):
        assert len(seat_history.timeline(event, place).spans) == 3
