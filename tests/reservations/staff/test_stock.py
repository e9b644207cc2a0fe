"""Blocking, resizing and repricing during a sale: only free stock, all or nothing, recorded, and the counts agree."""

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.events import facade as events
from apps.events.models import Section
from apps.events.public_plan import documents
from apps.kernel import clock
from apps.kernel.checks import reconciler
from apps.kernel.http import problems
from apps.reservations import facade as reservations
from apps.reservations.models import GeneralAdmissionInventory, InventoryChange, Reservation, SeatInventory
from apps.reservations.staff import large_changes, stock, tiers
from apps.reservations.staff.refusals import recording_refusals
from apps.reservations.staff.selection import Selection
from apps.reservations.staff.stock_summary import latest_changes, read_section_stock
from tests.support.factories import (
    SEAT_PRICE_MINOR,
    assert_audit_clean,
    backdate_deadline,
    hold,
    make_event,
    make_hold_request,
)
from tests.support.reservations.buyers import begin_payment, confirm, problem_of, seat, submit_hold

pytestmark = pytest.mark.django_db

BY = {"who": "ann", "why": "sound desk"}
ROW_A, ROW_B = Selection(section="hall", rows=("A",)), Selection(section="hall", rows=("B",))


@pytest.fixture
def event() -> events.EventView:
    """5 rows of 10 seats and 20 general-admission tickets; hall-A-1 and two tickets are held, hall-B-1 is sold."""
    made = make_event(general_admission=20)
    hold(made, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    confirm(begin_payment(hold(made, seats=["hall-B-1"]).id).id, clock.now())
    return made


def floor() -> GeneralAdmissionInventory:
    return GeneralAdmissionInventory.objects.get()


def changes() -> list[tuple[Any, ...]]:
    rows = InventoryChange.objects.order_by("id")
    return [(row.kind, row.quantity, row.detail.get("before"), row.detail.get("after")) for row in rows]


def test_a_row_is_blocked_completely_or_not_at_all(event: events.EventView) -> None:
    with pytest.raises(reservations.SeatsUnavailable) as refused:
        stock.block_seats(event, ROW_A, "house", **BY)
    assert refused.value.extra == {"unavailable": ["hall-A-1"]}
    assert refused.value.detail == "Not free (1 of 10): hall-A-1 held. Nothing was blocked."
    assert changes() == []
    assert stock.block_seats(event, ROW_A, "house", **BY, only_free=True) == 9
    assert seat("hall-A-1").status == SeatInventory.Status.HELD
    assert changes() == [("blocked", 1, "available", "house")] * 9
    assert {(row.who, row.why) for row in InventoryChange.objects.all()} == {("ann", "sound desk")}
    assert_audit_clean(without_money=True)


def test_a_reason_changes_and_the_same_reason_again_changes_nothing(event: events.EventView) -> None:
    seats = Selection(seats=("hall-C-1", "hall-C-2", "hall-C-1"))
    assert stock.block_seats(event, seats, "house", **BY) == 2
    assert stock.block_seats(event, seats, "house", **BY) == 0
    assert stock.block_seats(event, seats, "out_of_use", **BY) == 2
    assert changes()[2:] == [("blocked", 1, "house", "out_of_use")] * 2
    assert stock.unblock_seats(event, seats, **BY, reason="house") == 0
    assert stock.unblock_seats(event, Selection(section="hall"), **BY) == 2
    assert stock.unblock_seats(event, Selection(section="hall"), **BY) == 0
    assert changes()[4:] == [("unblocked", 1, "out_of_use", "available")] * 2
    assert seat("hall-B-1").status == SeatInventory.Status.SOLD
    assert_audit_clean(without_money=True)


def test_one_large_change_is_made_at_a_time_and_small_ones_beside_it(
    event: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_changes, "LARGE_SEATS", 9)
    row = Selection(section="hall", rows=("C",))
    acts: list[Callable[[Selection], int]] = [
        lambda seats: stock.block_seats(event, seats, "house", **BY),
        lambda seats: stock.unblock_seats(event, seats, **BY),
        lambda seats: tiers.move_seats(event, seats, "Stalls", **BY),
    ]
    with large_changes.changing_alone(event.organizer_id, 10):
        for act in acts:
            with pytest.raises(problems.Busy):
                act(row)
        assert changes() == []
        assert stock.block_seats(event, Selection(seats=("hall-C-1",)), "out_of_use", **BY) == 1
    assert acts[0](row) == 10
    assert {tuple(change[2:]) for change in changes()[1:]} == {("out_of_use", "house"), ("available", "house")}


def test_organizers_take_turns_with_large_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that makes them all the time keeps no other from making one."""
    with large_changes.changing_alone(1, 10_000), pytest.raises(problems.Busy), large_changes.changing_alone(2, 10_000):
        pass
    with pytest.raises(problems.Busy), large_changes.changing_alone(1, 10_000):
        pass
    with large_changes.changing_alone(2, 10_000):
        monkeypatch.setattr(large_changes.turns, "_accounts", set())  # As in another process.
        with pytest.raises(problems.Busy), large_changes.changing_alone(2, 10_000):
            pass
        monkeypatch.setattr(large_changes.turns, "_accounts", {2})
    with large_changes.changing_alone(1, 10_000):
        pass


def test_a_blocked_seat_cannot_be_bought_in_any_way(event: events.EventView) -> None:
    stock.block_seats(event, Selection(section="hall"), "out_of_use", **BY, only_free=True)
    problem = problem_of(submit_hold(make_hold_request(event, seats=["hall-C-1"])))
    assert (problem.type, problem.extra) == ("seats-unavailable", {"unavailable": ["hall-C-1"]})
    assert (
        problem_of(submit_hold(make_hold_request(event, best_available={"section": "hall", "quantity": 1}))).type
        == "sold-out"
    )
    hall = next(section for section in events.list_sections(event.id) if section.slug == "hall")
    assert reservations.free_counts([hall.id]) == {hall.id: 0}
    assert reservations.seat_statuses(section_id=hall.id)[seat("hall-C-1").pk] == "blocked"
    stock.unblock_seats(event, Selection(seats=("hall-C-1",)), **BY)
    hold(event, seats=["hall-C-1"])
    assert_audit_clean(without_money=True)


def test_a_late_payment_does_not_get_a_seat_that_was_blocked_meanwhile(event: events.EventView) -> None:
    late = begin_payment(hold(event, seats=["hall-D-1"]).id)
    occurred_at = clock.now()
    backdate_deadline(late.id)
    assert stock.block_seats(event, Selection(seats=("hall-D-1",)), "out_of_use", **BY) == 1
    assert Reservation.objects.get(pk=late.id).status == "expired"
    with pytest.raises(reservations.ReservationExpired):
        confirm(late.id, occurred_at)
    assert seat("hall-D-1").blocked_for == "out_of_use"
    assert_audit_clean(without_money=True)


def test_a_blocked_seat_with_a_buyer_is_not_put_on_sale(event: events.EventView) -> None:
    """hall-A-1 is blocked although it has a buyer, which no service does. If it were free with a line on it, no buyer
    could hold it."""
    stock.block_seats(event, Selection(section="hall", rows=("A",)), "house", **BY, only_free=True)
    holder = seat("hall-A-1").reservation_id
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(status=3, reservation_id=None, blocked_for="house")
    with pytest.raises(reservations.SeatsUnavailable) as refused:
        stock.unblock_seats(event, ROW_A, **BY)
    assert refused.value.detail == (
        f"Cannot unblock: hall-A-1 belongs to reservation {holder}. Nothing was unblocked; manage.py reconcile concert "
        "--repair assigns each seat to its reservation."
    )
    assert seat("hall-A-2").status == SeatInventory.Status.BLOCKED
    reconciler.run(event.id, repair_by="ann")
    assert stock.unblock_seats(event, ROW_A, **BY) == 9
    assert seat("hall-A-1").reservation_id == holder
    assert_audit_clean(without_money=True)


def test_tickets_are_blocked_for_either_reason_and_never_more_than_are_free(event: events.EventView) -> None:
    assert stock.block_general_admission(event, "floor", 5, "house", **BY).free == 13
    stock.block_general_admission(event, "floor", 3, "out_of_use", **BY)
    assert (floor().blocked, floor().house, floor().taken) == (8, 5, 2)
    with pytest.raises(reservations.NotEnoughLeft) as refused:
        stock.block_general_admission(event, "floor", 11, "house", **BY)
    assert refused.value.extra == {"available": 10}
    with pytest.raises(reservations.NotEnoughLeft) as refused:
        stock.unblock_general_admission(event, "floor", 4, "out_of_use", **BY)
    assert refused.value.extra == {"available": 3}
    assert stock.unblock_general_admission(event, "floor", 4, "house", **BY).free == 14
    assert (floor().blocked, floor().house) == (4, 1)
    assert changes()[0] == (
        "blocked", 5, {"capacity": 20, "house": 0, "out_of_use": 0}, {"capacity": 20, "house": 5, "out_of_use": 0},
    )  # fmt: skip
    stock.block_general_admission(event, "floor", 9, "out_of_use", **BY)
    problem = problem_of(submit_hold(make_hold_request(event, ga_section="floor", ga_quantity=6)))
    assert (problem.type, problem.extra) == ("not-enough-left", {"available": 5})
    assert_audit_clean(without_money=True)


def test_a_form_sent_twice_blocks_once(event: events.EventView) -> None:
    stock.block_general_admission(event, "floor", 5, "house", **BY, seen=0)
    with pytest.raises(stock.ChangedMeanwhile):
        stock.block_general_admission(event, "floor", 5, "house", **BY, seen=0)
    assert floor().blocked == 5


def test_a_section_grows_and_never_shrinks_below_what_is_held_sold_or_blocked(event: events.EventView) -> None:
    confirm(begin_payment(hold(event, ga_section="floor", ga_quantity=3).id).id, clock.now())
    stock.block_general_admission(event, "floor", 4, "house", **BY)
    before = events.plan_version(event.id)
    assert stock.resize(event, "floor", 30, **BY).free == 21
    assert events.plan_version(event.id) != before
    with pytest.raises(stock.CapacityInUse) as refused:
        stock.resize(event, "floor", 8, **BY)
    assert refused.value.extra == {"least": 9}
    assert Section.objects.get(slug="floor").capacity == 30
    assert stock.resize(event, "floor", 9, **BY).free == 0
    assert Section.objects.get(slug="floor").capacity == floor().capacity == 9
    assert stock.resize(event, "floor", 9, **BY).free == 0
    assert [change[:2] for change in changes()] == [("blocked", 4), ("resized", 10), ("resized", -21)]
    assert problem_of(submit_hold(make_hold_request(event, ga_section="floor", ga_quantity=1))).type == "sold-out"
    for capacity in (0, -1, 10**9):
        with pytest.raises(problems.Invalid):
            stock.resize(event, "floor", capacity, **BY)
    assert_audit_clean(without_money=True)


def test_lapsed_reservations_block_no_change(event: events.EventView) -> None:
    """Shrinking a section and blocking seats meet reservations past their deadline: these are ended first."""
    backdate_deadline(hold(event, seats=["hall-C-1"], ga_section="floor", ga_quantity=7).id)
    assert stock.resize(event, "floor", 2, **BY).free == 0
    backdate_deadline(hold(event, seats=["hall-C-2"]).id)
    assert stock.block_seats(event, Selection(section="hall", rows=("C",)), "house", **BY) == 10
    assert_audit_clean(without_money=True)


def test_a_new_price_applies_to_new_holds_only(event: events.EventView) -> None:
    before, version = hold(event, seats=["hall-C-1"]), events.plan_version(event.id)
    changed = tiers.reprice(event, "Standard", 7_500, **BY)
    assert (changed.before, changed.after) == (SEAT_PRICE_MINOR, 7_500)
    assert reservations.get_reservation(before.id).total_minor == SEAT_PRICE_MINOR
    assert hold(event, seats=["hall-C-2"]).total_minor == 7_500
    assert begin_payment(before.id).total_minor == SEAT_PRICE_MINOR
    assert events.plan_version(event.id) != version
    tiers.reprice(event, "Standard", 7_500, **BY)
    assert [change.detail for change in InventoryChange.objects.all()] == [
        {"category": "Standard", "before": SEAT_PRICE_MINOR, "after": 7_500}
    ]
    for price in (-1, 10**12 + 1):
        with pytest.raises(problems.Invalid):
            tiers.reprice(event, "Standard", price, **BY)
    with pytest.raises(problems.Invalid, match="categories are “Standard”"):
        tiers.reprice(event, "Gold\x00", 1, **BY)


def test_free_and_blocked_seats_move_to_another_price_and_the_plan_shows_it(event: events.EventView) -> None:
    tiers.add_price(event, "Last row", 1_000, **BY)
    tiers.add_price(event, "Last row", 1_000, **BY)
    with pytest.raises(problems.Invalid):
        tiers.add_price(event, "Last row", 2_000, **BY)
    stock.block_seats(event, Selection(seats=("hall-E-1",)), "house", **BY)
    before, version = documents.plan_document("concert"), events.plan_version(event.id)
    assert tiers.move_seats(event, Selection(section="hall", rows=("E",)), "Last row", **BY) == 10
    assert tiers.move_seats(event, Selection(section="hall", rows=("E",)), "Last row", **BY) == 0
    assert events.plan_version(event.id) != version
    assert documents.plan_document("concert") != before
    hall = next(section for section in events.list_sections(event.id) if section.slug == "hall")
    assert [price.category for price in hall.prices] == ["Standard", "Last row"]
    assert hold(event, seats=["hall-E-2"]).total_minor == 1_000
    demand = {"section": "hall", "quantity": 2, "category": "Last row"}
    assert {held.row for held in hold(event, best_available=demand).seats} == {"E"}
    assert (seat("hall-E-1").blocked_for, seat("hall-E-1").category.key) == ("house", "Last row")
    # Moved and moved back: the counts per category are the old ones, the plan's version is not.
    versions = {events.plan_version(event.id)}
    for category in ("Standard", "Last row"):
        tiers.move_seats(event, Selection(seats=("hall-E-9",)), category, **BY)
        versions.add(events.plan_version(event.id))
    assert len(versions) == 3
    with pytest.raises(reservations.SeatsUnavailable) as refused:
        tiers.move_seats(event, Selection(section="hall", rows=("B",)), "Last row", **BY)
    assert refused.value.detail.endswith("hall-B-1 sold. Nothing was moved.")
    assert_audit_clean(without_money=True)


def test_a_section_drops_a_category_without_seats() -> None:
    event = make_event(general_admission=20)
    tiers.add_price(event, "All of it", 1_000, **BY)
    assert tiers.move_seats(event, Selection(section="hall"), "All of it", **BY) == 50
    prices = {section.slug: [price.category for price in section.prices] for section in events.list_sections(event.id)}
    assert prices == {"hall": ["All of it"], "floor": ["Floor"]}
    assert_audit_clean()


def test_missing_objects_are_named(event: events.EventView) -> None:
    for selection, words in [
        (Selection(), "give seats, or a section"),
        (Selection(seats=("hall-A-1",), section="hall"), "give seats, or a section"),
        (Selection(rows=("A",)), "give seats, or a section"),
        (Selection(seats=("hall-Z-9", "x\x00", "\ud800")), "unknown seats: hall-Z-9, 'x\\x00', '\\ud800'"),
        (Selection(section="floor"), "no section with seats 'floor'; there are hall"),
        (Selection(section="hall", rows=("A", "Z")), "no row Z in hall; there are A, B, C, D, E"),
    ]:
        with pytest.raises(problems.Invalid) as refused:
            stock.block_seats(event, selection, "house", **BY)
        assert words in refused.value.detail


def test_the_stock_adds_up_and_the_latest_acts_are_described(event: events.EventView) -> None:
    stock.block_seats(event, ROW_B, "house", **BY, only_free=True)
    stock.block_seats(event, Selection(seats=("hall-C-1",)), "out_of_use", **BY)
    stock.block_general_admission(event, "floor", 5, "out_of_use", **BY)
    stock.resize(event, "floor", 25, **BY)
    tiers.reprice(event, "Standard", 6_000, **BY)
    found = {one.section.slug: one for one in read_section_stock(event.id)}
    hall, ground = found["hall"], found["floor"]
    assert (hall.capacity, hall.free, hall.held, hall.sold, hall.house, hall.out_of_use) == (50, 38, 1, 1, 9, 1)
    assert (ground.capacity, ground.free, ground.held, ground.sold, ground.house, ground.out_of_use) == (
        25, 18, 2, 0, 0, 5,
    )  # fmt: skip
    assert [change.words for change in latest_changes(event, 10)] == [
        "Standard $50.00 → $60.00",
        "floor: capacity 20 → 25",
        "floor: out of use 0 → 5",
        "hall-C-1: out of use",
        "9 of hall: house seats",
    ]


def run(*words: str) -> str:
    out = StringIO()
    call_command("stock", "concert", *words, stdout=out)
    return out.getvalue().strip()


def test_the_command_does_every_act_and_shows_the_stock(event: events.EventView) -> None:
    assert run("block", "--section", "hall", "--row", "C", "--for", "house", "--why", "press") == (
        "concert: 10 now house seats"
    )
    assert run("block", "hall-C-1", "--for", "house") == "concert: all were blocked already"
    assert run("unblock", "hall-C-1", "--for", "house") == "concert: 1 unblocked"
    assert run("block", "--section", "floor", "--quantity", "3", "--for", "out-of-use").endswith("floor has 15 free")
    assert run("unblock", "--section", "floor", "--quantity", "1", "--for", "out-of-use").endswith("16 free")
    assert run("resize", "floor", "30") == "concert: floor has capacity 30, 26 free"
    assert run("reprice", "Standard", "6000") == "concert: Standard costs $60.00; it was $50.00"
    assert run("reprice", "Standard", "6000") == "concert: Standard costs $60.00, unchanged"
    assert run("add-price", "Back", "1000", "--color", "#123456") == "concert: Back costs $10.00"
    assert run("move", "hall-E-1", "hall-E-2", "--to", "Back") == "concert: 2 moved to Back"
    shown = run("show")
    assert "  hall           50    39     1     1      9           0" in shown
    assert "  floor          30    26     2     0      0           2" in shown
    assert "price  Back: $10.00 (1000)" in shown
    assert "10 of hall: house seats (press)" in shown
    assert_audit_clean(without_money=True)


def test_the_command_refuses_in_one_line(event: events.EventView) -> None:
    for words, expected in [
        (("block", "hall-A-1", "--for", "house"), "Not free (1 of 1): hall-A-1 held"),
        (("block", "--for", "house"), "give seats, or a section"),
        (("block", "hall-C-1"), "--for"),
        (("block", "hall-C-1", "--for", "fun"), "fun"),
        (("block", "hall-C-1", "--quantity", "2", "--for", "house"), "--quantity needs one --section"),
        (("block", "--section", "hall", "--quantity", "2", "--for", "house"), "no general-admission section 'hall'"),
        (("block", "--section", "floor", "--quantity", "0", "--for", "house"), "must be between 1"),
        (("block", "--section", "floor", "--quantity", "x", "--for", "house"), "not a whole number"),
        (("unblock", "--section", "floor", "--quantity", "1"), "--quantity needs --for"),
        (("unblock", "--section", "floor", "--quantity", "1", "--for", "house"), "Only 0 tickets of Floor"),
        (("resize", "floor", "1"), "cannot shrink below 2"),
        (("resize", "hall", "60"), "no general-admission section 'hall'; there are floor"),
        (("reprice", "Gold", "1"), "there is no 'Gold'"),
        (("reprice", "Standard", "65.00"), "smallest unit) '65.00' is not a whole number"),
        (("add-price", "", "1"), "must be a name of 1 to 80"),
        (("add-price", "New", "1", "--color", "url(x)"), "#rrggbb"),
        (("move", "hall-A-1", "--to", "Floor"), "hall-A-1 held. Nothing was moved"),
    ]:
        with pytest.raises(CommandError) as refused:
            run(*words)
        assert expected in str(refused.value)
        assert "\n" not in str(refused.value)
    assert not InventoryChange.objects.filter(refusal="").exists()
    recorded = list(InventoryChange.objects.order_by("id").values_list("kind", "quantity", "detail", "refusal"))
    assert len(recorded) == 15, "all but those that the parser refuses"
    assert recorded[0] == (
        "blocked",
        0,
        {"before": None, "after": "seats=['hall-A-1'] reason=house"},
        "Not free (1 of 1): hall-A-1 held. Nothing was blocked.",
    )
    assert recorded[-1][0] == "moved"
    assert latest_changes(event, 1)[0].words == (
        "Refused: moved to another price (seats=['hall-A-1'] to=Floor). "
        "Not free (1 of 1): hall-A-1 held. Nothing was moved."
    )
    assert_audit_clean(without_money=True)


def test_a_change_that_timed_out_is_not_recorded_as_refused(event: events.EventView) -> None:
    with pytest.raises(problems.Busy), recording_refusals(event.id, InventoryChange.Kind.MOVED, "x", who="a", why=""):
        raise problems.Busy
    assert not InventoryChange.objects.exists()


def test_the_command_names_missing_rows_and_the_command_that_adds_them(event: events.EventView) -> None:
    SeatInventory.objects.filter(seat__guid__in=["hall-C-1", "hall-C-2"]).delete()
    GeneralAdmissionInventory.objects.all().delete()
    adds = "Nothing was changed; manage.py reconcile concert --repair adds missing rows."
    row = ["--section", "hall", "--row", "C"]
    for words, what in [
        (["block", *row, "--for", "house"], "hall-C-1, hall-C-2"),
        (["unblock", "hall-C-1"], "hall-C-1"),
        (["move", *row, "--to", "Floor"], "hall-C-1, hall-C-2"),
        (["resize", "floor", "30"], "Floor"),
        (["block", "--section", "floor", "--quantity", "1", "--for", "house"], "Floor"),
    ]:
        with pytest.raises(CommandError) as refused:
            run(*words)
        assert str(refused.value) == f"concert: Not in the inventory: {what}. {adds}"
    assert "hall" in run("show")
    assert Section.objects.get(slug="floor").capacity == 20
    reconciler.run(event.id, repair_by="ann")
    assert run("resize", "floor", "30").startswith("concert: floor has capacity 30")
    assert run("block", *row, "--for", "house") == "concert: 10 now house seats"


def test_the_command_accepts_public_events_only() -> None:
    with pytest.raises(CommandError, match="there is no published event"):
        run("show")
