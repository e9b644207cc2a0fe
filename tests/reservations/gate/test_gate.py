"""The gate refuses sold-out demand, with one request to Redis; it refuses no available ticket and no holder for
long."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.events import facade as events
from apps.events.models import Event
from apps.kernel import clock, redis
from apps.kernel.http import problems
from apps.reservations import facade as reservations
from apps.reservations.gate import gate, rebuild
from apps.reservations.gate.gate_reconciliation import differences
from apps.reservations.lifecycle import after_commit, gate_counts
from apps.reservations.models import GeneralAdmissionInventory, Reservation
from apps.reservations.staff import stock
from apps.reservations.staff.selection import Selection
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, join, make_event
from tests.support.races import rival_at, run_at, storm, values
from tests.support.reservations.gates import (
    HOUR_MS,
    ask_gate,
    count_answers,
    count_left,
    disable_expiry,
    is_refused,
    jump_clock,
    open_gate,
    read_gate_field,
    section_of,
    write_gate_fields,
)

pytestmark = pytest.mark.django_db(transaction=True)

PLACE = {"ga_section": "floor", "ga_quantity": 1}
VALID_MS = gate.VALID_MS


@pytest.fixture(autouse=True)
def _no_count_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    disable_expiry(monkeypatch)


@pytest.fixture
def floor() -> events.EventView:
    """Two tickets and nothing else."""
    return make_event(rows=0, general_admission=2)


def buy(event: events.EventView, entry: Any = None, *, key: str = "a-key", **payload: Any) -> Any:
    """Return the API's response: the reservation's text, or the problem's type."""
    try:
        return reservations.hold_one(event, entry or join(event), payload, key).body
    except problems.Problem as problem:
        return problem.type


def sell_out(event: events.EventView) -> list[Any]:
    """Both tickets are held, each by another buyer, and an open gate knows it."""
    entries = [join(event), join(event)]
    for entry in entries:
        hold(event, entry, **PLACE)
    open_gate(event)
    return entries


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_sold_out_demand_takes_one_redis_request_and_no_query(floor: events.EventView) -> None:
    sell_out(floor)
    entry = join(floor)
    assert buy(floor, entry, key="first", **PLACE) == "sold-out"  # From now on this process has cached the sections.
    refused = count_answers("refused")
    with CaptureQueriesContext(connection) as statements:
        assert buy(floor, entry, key="second", **PLACE) == "sold-out"
    assert statements.captured_queries == []
    assert count_answers("refused") == refused + 1


def test_tickets_put_on_sale_are_available_at_once_and_tickets_taken_off_are_refused(floor: events.EventView) -> None:
    sell_out(floor)
    assert is_refused(floor, **PLACE)
    before = read_gate_field(floor, f"left {section_of(floor, 'floor')}")
    capacity = GeneralAdmissionInventory.objects.get().capacity
    stock.resize(floor, "floor", capacity + 2, who="ann")
    assert (before, read_gate_field(floor, f"left {section_of(floor, 'floor')}")) == ("0", "2")
    assert not is_refused(floor, **PLACE)
    assert not differences(floor.id)
    stock.block_general_admission(floor, "floor", 2, "house", who="ann")
    assert is_refused(floor, **PLACE)
    stock.unblock_general_admission(floor, "floor", 2, "house", who="ann")
    assert not is_refused(floor, **PLACE)
    assert not differences(floor.id)


def test_the_gate_counts_seats_that_staff_block_and_unblock() -> None:
    event = make_event(rows=1, seats_per_row=3)
    open_gate(event)
    seats = Selection(seats=("hall-A-1", "hall-A-2"))
    stock.block_seats(event, seats, "house", who="ann")
    assert not differences(event.id)
    stock.block_seats(event, seats, "out_of_use", who="ann")  # Off sale already.
    assert read_gate_field(event, f"left {section_of(event, 'hall')}") == "1"
    stock.unblock_seats(event, seats, who="ann")
    assert read_gate_field(event, f"left {section_of(event, 'hall')}") == "3"


def test_named_seats_of_a_full_section_are_refused_by_name() -> None:
    event = make_event(rows=1, seats_per_row=2, general_admission=5)
    hold(event, seats=["hall-A-1", "hall-A-2"])
    open_gate(event)
    for _ in range(2):  # The first request looks up the seats' sections, the second has them cached.
        problem = ask_gate(event, seats=["hall-A-2", "hall-A-1"])
        assert problem is not None
        assert (problem.type, problem.extra["unavailable"]) == ("seats-unavailable", ["hall-A-2", "hall-A-1"])
    assert is_refused(event, best_available={"section": "hall", "quantity": 1})
    assert not is_refused(event, **PLACE)
    assert not is_refused(event, seats=["hall-A-9"]), "an unknown seat is named by the database"


def test_demand_above_what_is_left_is_decided_by_the_database(floor: events.EventView) -> None:
    hold(floor, **PLACE)
    open_gate(floor)
    assert not is_refused(floor, ga_section="floor", ga_quantity=2)
    assert buy(floor, ga_section="floor", ga_quantity=2) == "not-enough-left"


NOT_PLAIN_DEMAND = [
    None,
    {},
    {**PLACE, "surprise": 1},
    {**PLACE, "replace": "8f7a9c1e-0000-4000-8000-000000000000"},
    {"ga_section": "floor", "ga_quantity": True},
    {"ga_section": "floor", "ga_quantity": 1_000_000},
    {"ga_section": "balcony", "ga_quantity": 1},
    {"ga_section": ["floor"], "ga_quantity": 1},
    {"seats": "hall-A-1"},
    {"seats": [["hall-A-1"]]},
    {"seats": ["\x00"]},
    {"seats": ["\ud800"]},
    {"seats": ["hall-A-1", "hall-A-1"]},
    {"best_available": {"section": "floor", "quantity": 1}},
    {"best_available": ["hall"]},
]


def test_anything_but_plain_demand_is_decided_by_the_database() -> None:
    """An invalid payload gets the error of its field, and a request that replaces a live hold is never refused by a
    count."""
    event = make_event(rows=1, seats_per_row=1, general_admission=1)
    hold(event, **PLACE, seats=["hall-A-1"])
    open_gate(event)
    entry = join(event)
    assert is_refused(event, entry, **PLACE, seats=["hall-A-1"])
    assert [
        payload for payload in NOT_PLAIN_DEMAND if gate.refusal(event, entry.id, payload, "a-key") is not None
    ] == []


def test_before_and_after_the_on_sale_the_database_gives_the_reason(floor: events.EventView) -> None:
    sell_out(floor)
    Event.objects.filter(pk=floor.id).update(status="canceled")
    assert not is_refused(events.get_event(floor.slug), join(floor), **PLACE)


# --- wrong counts -----------------------------------------------------------------------------------------------------


def test_a_count_that_is_too_high_sells_nothing_twice(floor: events.EventView) -> None:
    sell_out(floor)
    write_gate_fields(floor, left_floor=1_000)
    assert [buy(floor, **PLACE) for _ in range(3)] == ["sold-out"] * 3
    assert GeneralAdmissionInventory.objects.get().taken == 2
    assert_audit_clean()


def test_a_count_that_is_too_low_refuses_until_the_next_reset(floor: events.EventView) -> None:
    open_gate(floor)
    write_gate_fields(floor, left_floor=0)
    assert is_refused(floor, **PLACE)
    open_gate(floor)
    assert not is_refused(floor, **PLACE)
    assert_audit_clean()


def test_a_count_without_resets_refuses_for_less_than_five_seconds(floor: events.EventView) -> None:
    assert VALID_MS < 5_000
    open_gate(floor)
    write_gate_fields(floor, left_floor=0)
    assert is_refused(floor, **PLACE)
    read_at, until = int(read_gate_field(floor, "read_at")), int(read_gate_field(floor, "until"))
    assert until - read_at == gate.VALID_MS
    write_gate_fields(floor, until=read_at)  # The limit has passed.
    assert not is_refused(floor, **PLACE)
    assert "pending_payment" in buy(floor, **PLACE)


def test_a_gate_dated_in_the_future_refuses_no_request_and_is_replaced(floor: events.EventView) -> None:
    """Redis's clock was set back: the age of the counts is unknown."""
    open_gate(floor)
    write_gate_fields(floor, left_floor=0)
    write_gate_fields(
        floor,
        read_at=int(read_gate_field(floor, "read_at")) + HOUR_MS,
        until=int(read_gate_field(floor, "until")) + HOUR_MS,
    )
    assert not is_refused(floor, **PLACE)
    open_gate(floor)
    assert int(read_gate_field(floor, f"left {section_of(floor, 'floor')}")) == 2


# --- holders ----------------------------------------------------------------------------------------------------------


def test_the_holder_of_the_last_tickets_gets_the_same_response_again(floor: events.EventView) -> None:
    open_gate(floor)
    entries = [join(floor), join(floor)]
    first = [buy(floor, entry, **PLACE) for entry in entries]
    assert is_refused(floor, **PLACE)
    assert [buy(floor, entry, **PLACE) for entry in entries] == first
    assert buy(floor, entries[0], key="another", **PLACE) == "reservation-exists"


def test_a_process_that_dies_after_its_commit_costs_no_buyer_the_last_ticket(
    floor: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate has counted one ticket; its hold commits, and Redis is not updated; the next reset counts it. The
    buyer's retry must reach the database, another buyer's demand need not.

    The control is the same without the mark that the reset wrote.
    """
    hold(floor, **PLACE)
    open_gate(floor)
    entry = join(floor)
    with monkeypatch.context() as dying:
        dying.setattr(after_commit, "notify_held", lambda holds: None)
        hold(floor, entry, **PLACE, key="lost")
    assert int(read_gate_field(floor, f"left {section_of(floor, 'floor')}")) == 1
    open_gate(floor)
    assert not is_refused(floor, entry, **PLACE, key="lost")
    assert "pending_payment" in buy(floor, entry, **PLACE, key="lost")
    assert is_refused(floor, **PLACE)
    redis.client().zrem(gate_counts.keys(floor.id)[1], str(entry.id))
    assert is_refused(floor, entry, **PLACE, key="unheard-of")


def test_a_repeated_request_under_way_is_never_refused(floor: events.EventView) -> None:
    open_gate(floor)
    entry = join(floor)
    assert not is_refused(floor, entry, key="under-way", **PLACE)
    write_gate_fields(floor, left_floor=0)
    assert not is_refused(floor, entry, key="under-way", **PLACE)
    assert is_refused(floor, entry, key="another", **PLACE)
    gate.forget_request(floor.id, entry.id, "under-way")
    assert is_refused(floor, entry, key="under-way", **PLACE)


def test_a_final_refusal_by_the_database_removes_the_requests_mark_but_never_a_holds(floor: events.EventView) -> None:
    holder, *_ = sell_out(floor)
    write_gate_fields(floor, left_floor=1)
    late = join(floor)
    assert buy(floor, late, **PLACE) == "sold-out"
    assert buy(floor, holder, key="another", **PLACE) == "reservation-exists"
    write_gate_fields(floor, left_floor=0)
    refused = count_answers("refused")
    assert buy(floor, late, **PLACE) == "sold-out"
    assert count_answers("refused") == refused + 1
    assert not is_refused(floor, holder, key="another", **PLACE)


# --- lapsed holds -----------------------------------------------------------------------------------------------------


def test_a_passed_deadline_ends_the_refusals_and_the_hold_path_finds_the_ticket(floor: events.EventView) -> None:
    sell_out(floor)
    backdate_deadline(Reservation.objects.order_by("created_at").first().id)  # type: ignore[union-attr]
    open_gate(floor)
    assert not is_refused(floor, **PLACE)
    assert "pending_payment" in buy(floor, **PLACE), "the hold swept the lapsed reservation"
    assert buy(floor, **PLACE) == "sold-out"
    assert_audit_clean()


def test_the_gate_stores_the_next_deadline_itself(floor: events.EventView) -> None:
    """Without a reset or a sweep, the passing of the deadline alone ends the refusals."""
    sell_out(floor)
    place = section_of(floor, "floor")
    Reservation.objects.update(expires_at=clock.now() + timedelta(minutes=30))
    open_gate(floor)
    at, _, quantity = read_gate_field(floor, f"lapses {place}").partition(":")
    assert HOUR_MS // 3 <= int(at) - int(read_gate_field(floor, "read_at")) <= HOUR_MS // 2
    assert is_refused(floor, **PLACE)
    write_gate_fields(floor, lapses_floor=f"{read_gate_field(floor, 'read_at')}:{quantity}")
    assert not is_refused(floor, **PLACE)


def test_once_lapsed_tickets_are_swept_and_sold_the_gate_refuses_again_and_requests_the_next_deadline(
    floor: events.EventView,
) -> None:
    sell_out(floor)
    backdate_deadline(Reservation.objects.order_by("created_at").first().id)  # type: ignore[union-attr]
    open_gate(floor)
    assert reservations.sweep().reservations == 1
    assert not is_refused(floor, **PLACE)
    state = rebuild.read_state(floor.id)
    assert state is not None
    assert state.is_wanted
    hold(floor, **PLACE)
    assert is_refused(floor, **PLACE)


def test_demand_for_released_tickets_is_let_through_at_once(floor: events.EventView) -> None:
    sell_out(floor)
    assert is_refused(floor, **PLACE)
    reservations.release(Reservation.objects.order_by("created_at").first().id, "test")  # type: ignore[union-attr]
    assert not is_refused(floor, **PLACE)
    assert "pending_payment" in buy(floor, **PLACE)
    assert is_refused(floor, **PLACE)
    assert differences(floor.id) == []


def test_with_too_many_lapsed_reservations_no_request_is_refused(
    floor: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    sell_out(floor)
    for reservation in Reservation.objects.all():
        backdate_deadline(reservation.pk)
    monkeypatch.setattr(rebuild, "LAPSING_MAX", 1)
    write_gate_fields(floor, until=0)
    assert rebuild.reset(floor.id) == "lapsing"
    assert not is_refused(floor, **PLACE)


# --- concurrent resets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("existed", "outcome"), [(True, "later"), (False, "lost")])
def test_a_delayed_reset_never_replaces_a_later_one(floor: events.EventView, existed: bool, outcome: str) -> None:
    """The first reads two free tickets; both are held and another reset writes none, in the same gate or in one that
    begins anew; then the first arrives."""
    open_gate(floor)

    def rival() -> None:
        if not existed:
            redis.client().delete(*gate_counts.all_keys(floor.id))
        hold(floor, **PLACE)
        hold(floor, **PLACE)
        open_gate(floor)

    with rival_at("gate_free", "after", rival):
        assert rebuild.reset(floor.id) == outcome
    assert is_refused(floor, **PLACE)


def test_a_reset_that_comes_too_late_refuses_no_request(
    floor: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        hold(floor, **PLACE)
    monkeypatch.setattr(gate, "VALID_MS", 0)
    assert rebuild.reset(floor.id) == "late"
    assert not is_refused(floor, **PLACE)


def test_counted_holds_are_marked_whatever_commits_during_a_reset(floor: events.EventView) -> None:
    """A hold commits between the reading of the counts and that of the marks, and Redis is updated before the reset's
    counts arrive: they include the hold, and its entry is marked."""
    open_gate(floor)
    hold(floor, **PLACE)
    entry = join(floor)
    with rival_at("gate_free", "after", lambda: hold(floor, entry, **PLACE)):
        open_gate(floor)
    assert count_left(floor) == 0
    assert is_refused(floor, **PLACE)
    assert not is_refused(floor, entry, **PLACE)
    open_gate(floor)
    assert is_refused(floor, **PLACE)
    assert not is_refused(floor, entry, **PLACE)


def test_every_gate_that_is_due_is_reset_and_no_other(floor: events.EventView) -> None:
    assert rebuild.reset_due() == 1
    assert rebuild.reset_due() == 0, "it was reset a moment ago, by any process"

    def age(milliseconds: int) -> None:
        write_gate_fields(floor, read_at=int(read_gate_field(floor, "read_at")) - milliseconds)

    age(rebuild.CALM_AFTER_MS)
    assert rebuild.reset_due() == 1
    sell_out(floor)
    age(rebuild.RESET_AFTER_MS)
    assert rebuild.reset_due() == 1, "now its counts refuse"
    reservations.release(Reservation.objects.order_by("created_at").first().id, "test")  # type: ignore[union-attr]
    assert read_gate_field(floor, "wanted") == ""
    hold(floor, **PLACE)
    assert read_gate_field(floor, "wanted") == "1", "a section has become empty"
    age(rebuild.WANTED_AFTER_MS)
    assert rebuild.reset_due() == 1
    assert read_gate_field(floor, "wanted") == ""
    assert rebuild.states() == {"open": 1, "shut": 0, "refused": 0}


def test_marks_are_read_in_pages_and_a_gate_that_lost_many_stays_shut_until_all_are_restored(
    floor: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = sell_out(floor)
    redis.client().flushall()
    monkeypatch.setattr(rebuild, "PAGE_MAX", 1)
    monkeypatch.setattr(rebuild, "PAGES_MAX", 1)
    monkeypatch.setattr(rebuild, "OVERLAP", timedelta(0))
    outcomes = [rebuild.reset(floor.id) for _ in range(3)]
    assert outcomes == ["catching_up", "catching_up", "open"]
    assert is_refused(floor, **PLACE)
    assert [is_refused(floor, entry, **PLACE) for entry in entries] == [False, False]


@pytest.mark.parametrize("hours", [25, -25])
def test_marks_are_read_again_after_a_jump_of_the_redis_clock(
    floor: events.EventView, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """A mark ends a day after its hold. After a jump ahead it would be removed too early, and its holder refused."""
    monkeypatch.setattr(rebuild, "OVERLAP", timedelta(0))
    open_gate(floor)
    entries = sell_out(floor)
    open_gate(floor)
    epoch = read_gate_field(floor, "epoch")
    jump_clock(floor, hours * HOUR_MS)
    assert not is_refused(floor, **PLACE), "the age of the counts is unknown"
    open_gate(floor)
    assert read_gate_field(floor, "epoch") != epoch
    assert is_refused(floor, **PLACE)
    assert [is_refused(floor, entry, **PLACE) for entry in entries] == [False, False]


def test_a_clock_that_jumps_during_a_reset_is_noticed_by_the_next_one(
    floor: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reset has read the gate; the clock jumps; the reset writes marks with new dates beside those that have ended
    by now. The next reset must not take these for the last day's."""
    open_gate(floor)
    entries = sell_out(floor)
    open_gate(floor)
    monkeypatch.setattr(rebuild, "OVERLAP", timedelta(0))

    with run_at("gate_free", "before", lambda: jump_clock(floor, 25 * HOUR_MS)):
        assert rebuild.reset(floor.id) == "lost"
    open_gate(floor)
    assert is_refused(floor, **PLACE)
    assert [is_refused(floor, entry, **PLACE) for entry in entries] == [False, False]


def test_concurrent_holds_and_releases_behind_a_gate_end_clean() -> None:
    """24 buyers demand one of 10 tickets each; each that gets one releases it and is followed by the next, which
    retries for as long as it gets sold-out; meanwhile the gate is reset, and loses everything once."""
    event = make_event(rows=0, general_admission=10)
    open_gate(event)
    entries = [join(event) for _ in range(24)]

    def shop(number: int) -> bool:
        for turn in range(12):
            if number == 0 and turn == 4:
                redis.client().flushall()
            if number < 2 or turn % 4 == 3:
                rebuild.reset(event.id)
            outcome = buy(event, entries[number], key=f"turn-{turn}", **PLACE)
            if "pending_payment" in outcome:
                if number % 2:
                    return True
                reservations.release(reservations.live_reservation_of(entries[number].id).id, "test")  # type: ignore[union-attr]
                return True
            assert outcome in ("sold-out", "busy", "idempotency-in-progress"), outcome
        return False

    values(storm(24, shop))
    open_gate(event)
    assert differences(event.id) == []
    taken = GeneralAdmissionInventory.objects.get().taken
    sold = [buy(event, **PLACE) for _ in range(10 - taken)]
    assert all("pending_payment" in outcome for outcome in sold), (
        "free tickets are sold, and no demand for them is refused"
    )
    assert buy(event, **PLACE) == "sold-out"
    assert_audit_clean()


def test_tickets_put_on_sale_are_not_mistaken_for_lapsed_ones() -> None:
    """One ticket has lapsed and waits for a sweep; another comes on sale and is taken. The first is still available."""
    event = make_event(rows=0, general_admission=2)
    stock.block_general_admission(event, "floor", 1, "house", who="ann")
    backdate_deadline(hold(event, **PLACE).id)
    open_gate(event)
    assert not is_refused(event, **PLACE)
    stock.unblock_general_admission(event, "floor", 1, "house", who="ann")
    hold(event, **PLACE)
    assert not is_refused(event, **PLACE)
    assert "reservation_id" in buy(event, **PLACE)
    assert_audit_clean()
