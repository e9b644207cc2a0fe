"""Best available in an event with many areas: few statements, linear work, and still together wherever possible."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from apps.events import facade as events
from apps.kernel.http import problems
from apps.reservations import facade as reservations
from apps.reservations.errors import SoldOut
from apps.reservations.holds import event_cache, service
from apps.reservations.holds.requests import EventLookup, resolve_best_available
from apps.reservations.holds.seat_choice import area_candidates, candidates, longest_runs
from apps.reservations.holds.seat_choice.area_candidates import FIRST_MAX, SCATTERED_SECTIONS, Proposer
from apps.reservations.holds.seat_choice.areas import Area, Areas
from apps.reservations.holds.seat_choice.best_available import BestAvailable, fitting_count
from apps.reservations.holds.seat_choice.free_runs import FreeSeat
from apps.reservations.models import BlockedFor, SeatInventory
from tests.support.factories import assert_audit_clean, hold, join, make_event, make_hold_request
from tests.support.races import statements
from tests.support.reservations.buyers import is_held, outcome_types, problem_of

pytestmark = pytest.mark.django_db(transaction=True)

HALLS = 24
CHOOSING = ("free_areas", "adjacent_areas", "free_seats", "adjacent_seats", "free_seats_accessible")
TIERS = 6


def halls(count: int = HALLS) -> tuple[str, ...]:
    return tuple(f"H{number}" for number in range(count))


@pytest.fixture
def single_seats() -> events.EventView:
    """In every hall six rows of one seat, each of another price."""
    return make_event(
        rows=TIERS,
        seats_per_row=1,
        halls=halls(),
        tiers={f"T{number}": 1_000 + number for number in range(TIERS)},
        tier_of={f"h{hall}-{'ABCDEF'[tier]}": f"T{tier}" for hall in range(HALLS) for tier in range(TIERS)},
    )


@pytest.fixture
def pairs_apart() -> events.EventView:
    """In every hall one row of three, of which the middle seat is taken, but not in hall 20."""
    event = make_event(rows=1, seats_per_row=3, halls=halls())
    taken = [f"h{hall}-A-2" for hall in range(HALLS) if hall != 20]
    for start in range(0, len(taken), 8):
        hold(event, seats=taken[start : start + 8])
    return event


def anywhere(event: events.EventView, quantity: int, **more: Any) -> reservations.HoldRequest:
    return make_hold_request(event, best_available={"quantity": quantity, **more})


def besides(event: events.EventView, quantity: int, **more: Any) -> reservations.HoldRequest:
    """Request seats anywhere besides what else the payload says."""
    return make_hold_request(event, more.pop("entry", None), best_available={"quantity": quantity}, **more)


def decide(*requests: reservations.HoldRequest) -> tuple[list[reservations.HoldOutcome], list[str]]:
    """Return the outcomes of one batch, and the statements that chose seats."""
    with statements() as names:
        outcomes = reservations.hold(requests)
    return outcomes, [name for name in names if name in CHOOSING]


def seats_of(outcome: reservations.HoldOutcome) -> list[str]:
    assert isinstance(outcome, reservations.Held), outcome
    return sorted(seat.seat_id for seat in reservations.get_reservation(outcome.reservation_id).seats)


def test_a_party_that_sits_together_nowhere_reads_only_the_first_sections(single_seats: events.EventView) -> None:
    """Of 144 areas in 24 sections: before, all sections were read."""
    (outcome,), read = decide(anywhere(single_seats, 2))
    assert {seat[:3] for seat in seats_of(outcome)} == {"h0-"}
    assert read.count("free_areas") == 1
    assert read.count("adjacent_areas") == 2, "of the next 16 sections, then of the rest"
    assert read.count("free_seats") == max(FIRST_MAX, SCATTERED_SECTIONS)
    assert_audit_clean()


def test_a_party_sits_in_the_only_section_where_it_sits_together(pairs_apart: events.EventView) -> None:
    (outcome,), read = decide(anywhere(pairs_apart, 2))
    assert seats_of(outcome) == ["h20-A-1", "h20-A-2"]
    assert read.count("free_seats") == FIRST_MAX + 1
    (outcome,), read = decide(anywhere(pairs_apart, 2))
    assert seats_of(outcome) == ["h0-A-1", "h0-A-3"]
    assert_audit_clean()


def test_beyond_the_seats_that_are_examined_a_party_sits_apart(
    pairs_apart: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sections before hall 20 have 32 free seats that are examined."""
    monkeypatch.setattr(area_candidates, "EXAMINED_SEATS_MAX", 20)
    (outcome,), read = decide(anywhere(pairs_apart, 2))
    assert seats_of(outcome) == ["h0-A-1", "h0-A-3"]
    assert (read.count("adjacent_areas"), read.count("free_seats")) == (1, max(FIRST_MAX, SCATTERED_SECTIONS))
    assert_audit_clean()


def test_what_a_large_search_found_is_kept_for_a_moment(
    single_seats: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longest_runs, "SEATS_MIN", 1)
    first, read = decide(anywhere(single_seats, 2))
    assert read.count("adjacent_areas") == 2
    next_ones, read = decide(anywhere(single_seats, 3), anywhere(single_seats, 2))
    assert "adjacent_areas" not in read
    assert {seat[:2] for outcome in first + next_ones for seat in seats_of(outcome)} <= {"h0", "h1"}
    monkeypatch.setattr(longest_runs, "SECONDS", 0)
    monkeypatch.setattr(longest_runs, "_found", {})
    for _ in range(2):
        _, read = decide(anywhere(single_seats, 2))
        assert read.count("adjacent_areas") == 2, "it is searched again"
    assert_audit_clean()


def test_a_party_in_one_section_is_not_searched_for_side_by_side_again(monkeypatch: pytest.MonkeyPatch) -> None:
    event = make_event(rows=12, seats_per_row=1)
    for name, value in {"READ_MIN": 3, "READ_TO_WANTED": 0, "READ_ADJACENT_MAX": 10}.items():
        monkeypatch.setattr(candidates, name, value)
    monkeypatch.setattr(longest_runs, "SEATS_MIN", 9)
    in_hall = {"section": "hall", "quantity": 2}
    (first,), read = decide(make_hold_request(event, best_available=in_hall))
    assert (read.count("free_seats"), read.count("adjacent_seats")) == (1, 1)
    assert isinstance(first, reservations.Held)
    (second,), read = decide(make_hold_request(event, best_available=in_hall))
    assert (read.count("free_seats"), read.count("adjacent_seats")) == (1, 0)
    assert len(seats_of(second)) == 2
    assert_audit_clean()


def test_what_was_found_is_known_for_larger_parties_and_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longest_runs, "_found", {})
    monkeypatch.setattr(longest_runs, "ENTRIES_MAX", 2)
    longest_runs.keep(1, (2,), 3, 4_000)
    assert [longest_runs.seats_without(1, (2,), quantity) for quantity in (2, 3, 4, 5)] == [None, None, 4_000, 4_000]
    assert longest_runs.seats_without(1, (), 4) is None
    for section_id in (2, 3):
        longest_runs.keep(section_id, (2,), 3, 4_000)
    assert [longest_runs.seats_without(section_id, (2,), 4) for section_id in (1, 2, 3)] == [None, None, 4_000]
    monkeypatch.setattr(longest_runs, "SECONDS", -1.0)
    longest_runs.keep(3, (2,), 3, 4_000)
    assert longest_runs.seats_without(3, (2,), 4) is None


def test_the_only_adjacent_seats_may_be_of_two_prices() -> None:
    event = make_event(
        rows=2,
        seats_per_row=1,
        halls=halls(),
        tiers={"Gold": 9_000},
        tier_of={f"h{hall}-A": "Gold" for hall in range(HALLS)},
    )
    assert seats_of(decide(anywhere(event, 2))[0][0]) == ["h0-A-1", "h0-B-1"]


def test_a_party_that_is_too_large_is_refused_without_reading_a_section(pairs_apart: events.EventView) -> None:
    (outcome,), read = decide(anywhere(pairs_apart, 4))
    problem = problem_of(outcome)
    assert (problem.type, problem.extra["available"]) == ("not-enough-left", 3)
    assert set(read) == {"free_areas"}
    assert_audit_clean()


def test_a_batch_fills_all_areas_to_the_last_seat() -> None:
    """Twenty-four pairs for 24 rows of two, more than one request may read."""
    event = make_event(rows=1, seats_per_row=2, halls=halls())
    assert area_candidates.READS_MAX < HALLS
    outcomes, read = decide(*(anywhere(event, 2) for _ in range(HALLS + 1)))
    assert outcome_types(outcomes[:HALLS]) == ["held"] * HALLS
    assert not is_held(outcomes[HALLS])
    assert read.count("free_seats") == HALLS
    assert_audit_clean()


def test_the_work_of_a_choice_is_proportional_to_the_areas(single_seats: events.EventView) -> None:
    """Before, the tuple of all areas was hashed twice for each of them."""
    hashed = 0

    class CountedArea(Area):
        def __hash__(self) -> int:
            nonlocal hashed
            hashed += 1
            return super().__hash__()

    found = anywhere(single_seats, 2).best
    assert found is not None
    assert len(found.areas) == HALLS * TIERS
    demand = replace(found, areas=Areas(CountedArea(*area) for area in found.areas))
    with connection.cursor() as cursor:
        proposer = Proposer(cursor, [demand] * 3, set())
        for _ in range(3):
            seats = proposer.propose(demand, {}).seats
            assert seats is not None
            proposer.take(seats)
    assert hashed <= len(demand.areas)


def test_requests_of_every_kind_share_one_count_of_the_areas(single_seats: events.EventView) -> None:
    """They name a seat besides, replace a reservation, or want more seats. Before, all areas were counted again for
    each of those that name a seat and for each quantity, while the holds of all events waited."""
    mine = [join(single_seats) for _ in range(3)]
    replaced = [hold(single_seats, one, seats=[f"h{at}-F-1"]) for at, one in enumerate(mine)]
    requests = [
        *(besides(single_seats, 1 + at % 3, seats=[f"h{at}-E-1"]) for at in range(8)),
        *(besides(single_seats, 1, replace=str(one.id), entry=own) for one, own in zip(replaced, mine, strict=True)),
        anywhere(single_seats, 6),
    ]
    outcomes, read = decide(*requests)
    assert outcome_types(outcomes) == ["held"] * len(requests)
    assert read.count("free_areas") == 1
    assert read.count("adjacent_areas") <= 8, "for each quantity of those that name a seat, not for each of them"
    assert len({seat for outcome in outcomes for seat in seats_of(outcome)}) == sum(one.seat_count for one in requests)
    assert_audit_clean()


def test_a_named_seat_does_not_count_for_its_request_but_for_others() -> None:
    """One hall of three seats. A limit of the count must not hide that more seats are free than one request wants."""
    event = make_event(rows=1, seats_per_row=3)
    everything = [f"hall-A-{number}" for number in (1, 2, 3)]
    (refused,), _ = decide(besides(event, 1, seats=everything))
    assert isinstance(problem_of(refused), SoldOut)
    (refused,), _ = decide(besides(event, 2, seats=everything[:2]))
    assert problem_of(refused).extra["available"] == 1
    (refused, held), _ = decide(besides(event, 3, seats=everything[:1]), anywhere(event, 3))
    assert (is_held(refused), is_held(held)) == (False, True), "the loser's named seat is free for the other"
    assert_audit_clean()


@pytest.mark.parametrize("seed", range(12))
def test_the_counts_agree_with_all_free_seats(seed: int) -> None:
    """For requests with random named and own seats, of several prices, in a hall with accessible seats: whether a
    request fits, and how many seats do if it does not."""
    chance = random.Random(seed)
    names = [f"h{hall}-{row}-{number}" for hall in range(3) for row in "ABCDE" for number in (1, 2)]
    event = make_event(
        rows=5,
        seats_per_row=2,
        halls=halls(3),
        accessible=frozenset(chance.sample(names, 8)),
        tiers={f"T{number}": 1_000 + number for number in range(5)},
        tier_of={f"h{hall}-{row}": f"T{at}" for hall in range(3) for at, row in enumerate("ABCDE"[: 3 + hall])},
    )
    seats = [
        FreeSeat(*row)
        for row in SeatInventory.objects.order_by("seat_id").values_list(
            "seat_id", "section_id", "row_index", "place_index", "rank", "category_id", "accessible", "companion"
        )
    ]
    sold = chance.sample(seats, chance.choice([10, 20, 26]))
    SeatInventory.objects.filter(seat_id__in=[seat.seat_id for seat in sold]).update(
        status=3, blocked_for=BlockedFor.HOUSE
    )
    free = [seat for seat in seats if seat not in sold]
    asked: list[tuple[BestAvailable, Mapping[int, FreeSeat], set[int]]] = []
    for _ in range(12):
        accessible = chance.random() < 0.4
        quantity = chance.randint(1, 8)
        wanted = {"accessible": True, "companions": chance.randrange(quantity)} if accessible else {}
        demand = anywhere(event, quantity, **wanted).best
        assert demand is not None
        own = {seat.seat_id: seat for seat in chance.sample(sold, chance.choice([0, 0, 4]))}
        named = {seat.seat_id for seat in chance.sample(seats, chance.choice([0, 1, 6]))}
        asked.append((demand, own, named))
    every_named = frozenset(seat_id for _, _, named in asked for seat_id in named)
    for demand, own, named in asked:
        with connection.cursor() as cursor:
            demands = [one for one, _, _ in asked]
            proposer = Proposer(cursor, demands, set(every_named), named=every_named)
            found = proposer.propose(demand, own, named)
            alone = Proposer(cursor, demands, set(named), named=frozenset(named)).propose(demand, own, named)
        usable = [seat for seat in [*free, *own.values()] if seat.seat_id not in named]
        most = max(
            fitting_count([s for s in usable if s.section_id == section], demand)
            for section in {s.section_id for s in seats}
        )
        assert (alone.seats is not None) == (most >= demand.quantity)
        for proposal in (found, alone):
            if proposal.seats is None:
                assert proposal.fitting_count == most
            else:
                assert {seat.seat_id for seat in proposal.seats} <= {seat.seat_id for seat in usable}


def test_a_batch_chooses_seats_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are left then try again. The first one and those for named seats are always decided."""
    event = make_event(rows=1, seats_per_row=8)
    monkeypatch.setattr(service, "CHOICE_SECONDS_MAX", 0.0)
    requests = [
        anywhere(event, 2),
        anywhere(event, 1),
        make_hold_request(event, seats=["hall-A-8"]),
        anywhere(event, 1),
    ]
    outcomes, read = decide(*requests)
    assert [is_held(outcome) for outcome in outcomes] == [True, False, True, False]
    assert isinstance(problem_of(outcomes[1]), problems.Busy)
    assert (read.count("free_areas"), read.count("free_seats")) == (1, 1)
    monkeypatch.undo()
    again, _ = decide(*requests)
    assert outcome_types(again) == ["held"] * 4, "the same answers, and now the other ones"
    assert_audit_clean()


def test_events_with_few_areas_choose_first(single_seats: events.EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that mixes events spends the time of the others last."""
    small = make_event("small", rows=1, seats_per_row=4)
    monkeypatch.setattr(service, "CHOICE_SECONDS_MAX", 0.0)
    large = [anywhere(single_seats, 1) for _ in range(3)]
    outcomes, _ = decide(*large, make_hold_request(small, best_available={"section": "hall", "quantity": 2}))
    assert [is_held(outcome) for outcome in outcomes] == [False, False, False, True]
    assert_audit_clean()


@pytest.mark.parametrize("asked", [{}, {"category": "T3"}, {"price_max_minor": 1_002}])
def test_the_areas_of_an_event_are_found_once_for_all_requests(
    single_seats: events.EventView, asked: dict[str, Any]
) -> None:
    seating = event_cache.seating.read(single_seats.id)
    lookup = EventLookup(seating.sections, seating.categories, {}, seating.guarded, seating.areas)
    one, other = (resolve_best_available(single_seats, lookup, {"quantity": 2, **asked}, {}) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.areas
    assert one.areas is other.areas


def test_offers_read_only_prices_that_have_seats_side_by_side(pairs_apart: events.EventView) -> None:
    with statements() as names:
        offers = reservations.propose_offers(pairs_apart, join(pairs_apart), {"quantity": 2})
    assert [offer.seat_ids for offer in offers] == [["h20-A-1", "h20-A-2"]]
    assert names.count("free_areas") == 1
    assert names.count("free_seats") == FIRST_MAX + 1


@pytest.mark.parametrize("section", [{"section": "hall"}, {}], ids=["section", "anywhere"])
def test_a_request_for_accessible_seats_where_none_is_left_reads_no_other_seats(section: dict[str, str]) -> None:
    """Sixty thousand free seats were read before each refusal, while all holds of the event waited."""
    event = make_event(rows=3, seats_per_row=4)
    refused = make_hold_request(event, best_available={"quantity": 1, "accessible": True, **section})
    (outcome,), read = decide(refused)
    assert not is_held(outcome)
    assert isinstance(problem_of(outcome), SoldOut)
    assert "free_seats" not in read
    assert read.count("free_seats_accessible") <= 2, "once before the refusal, and once to confirm it"
    granted = make_hold_request(event, best_available={"quantity": 1, **section})
    assert [is_held(one) for one in decide(refused, granted)[0]] == [False, True]
    assert_audit_clean()


def test_seats_for_companions_are_not_read_for_others() -> None:
    """A hundred thousand of them were read twice before each refusal."""
    make_event(rows=3, seats_per_row=4)
    SeatInventory.objects.filter(row_index__gt=0).update(companion=True)
    demand = BestAvailable(SeatInventory.objects.all()[0].section_id, 5)
    with connection.cursor() as cursor:
        proposer = Proposer(cursor, [demand], set())
        assert proposer.propose(demand, {}) == (None, 4)
    assert [len(read.seats) for read in proposer._reads.values()] == [4]


@pytest.mark.parametrize("locked_count", [0, 4, 8, 10, 11])
def test_accessible_seats_beyond_the_first_read_are_found(locked_count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rivals have locked the best ones. The first read has four of twelve accessible seats."""
    monkeypatch.setattr(candidates, "READ_MIN", 1)
    monkeypatch.setattr(candidates, "READ_AROUND", 1)
    names = [f"hall-{row}-{number}" for row in "ABC" for number in range(1, 5)]
    make_event(rows=3, seats_per_row=4, accessible=frozenset(names))
    best = list(SeatInventory.objects.order_by("rank").values_list("seat_id", flat=True))
    demand = BestAvailable(SeatInventory.objects.all()[0].section_id, 2, accessible=True)
    with connection.cursor() as cursor:
        proposal = Proposer(cursor, [demand], set(best[:locked_count])).propose(demand, {})
    if locked_count == 11:
        assert proposal.seats is None
    else:
        assert proposal.seats is not None
        assert {seat.seat_id for seat in proposal.seats} <= set(best[locked_count:])
