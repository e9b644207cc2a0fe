"""Hold, replace, release, lapse, sweep, pay, cancel, block, resize, reprice and move, in any order: the system gives
the same outcomes as the model, seat by seat, and the auditor finds nothing."""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.http import problems
from apps.reservations import facade as reservations
from apps.reservations.holds import transaction
from apps.reservations.holds.seat_choice import candidates
from apps.reservations.models import GeneralAdmissionInventory, Reservation, SeatInventory
from apps.reservations.staff import stock, tiers
from apps.reservations.staff.selection import Selection
from apps.reservations.staff.stock_summary import read_section_stock
from tests.support.factories import (
    PLACE_PRICE_MINOR,
    SEAT_PRICE_MINOR,
    assert_audit_clean,
    backdate_deadline,
    join,
    make_event,
)
from tests.support.reservations.buyers import begin_payment, cancel, confirm
from tests.support.reservations.inventory_model import (
    CONFIRMED,
    EXPIRED,
    HELD,
    LIVE,
    PAYING,
    PENDING,
    REPLAYED,
    HoldDemand,
    InventoryModel,
)

pytestmark = pytest.mark.django_db(transaction=True)

BUYERS = 6
SEATS = [f"hall-{row}-{number}" for row in "AB" for number in range(1, 5)]
ACCESSIBLE = frozenset({"hall-B-4"})
CAPACITY = 10
BLOCKED = 2
"""House seats: tickets blocked from the beginning."""
CAP = 5
PATIENT_MS = 60_000
"""No transactions run concurrently here: however slow the machine is, no request may time out."""
STAFF: dict[str, Any] = {"who": "staff:ann", "why": "test"}

_slugs = count()

buyers = st.integers(0, BUYERS - 1)
recent = st.integers(0, 5)
seats = st.sets(st.sampled_from(SEATS), min_size=1, max_size=3)
reasons = st.sampled_from(["house", "out_of_use"])
chance = st.sampled_from([False, False, False, True])
likely = st.sampled_from([True, True, True, False])
named = st.builds(lambda chosen: {"seats": sorted(chosen)}, seats)
tickets = st.builds(lambda quantity: {"ga_section": "floor", "ga_quantity": quantity}, st.integers(1, 4))
best = st.builds(
    lambda quantity, kind: {"best_available": {"section": "hall", "quantity": quantity, **kind}},
    st.integers(1, 4),
    st.sampled_from([{}, {"section": None}, {"accessible": True}, {"section": None, "price_max_minor": 10**6}]),
)
company = st.just({"best_available": {"section": "hall", "quantity": 2, "accessible": True, "companions": 1}})
exact = st.builds(lambda one, other: one | other, named, tickets)
mixed = st.one_of(exact, st.builds(lambda one, other: one | other, best, tickets))
selections = st.one_of(named, tickets, best, mixed, company)
alike = st.builds(lambda quantity: {"best_available": {"section": "hall", "quantity": quantity}}, st.integers(1, 4))


class InventoryMachine(RuleBasedStateMachine):
    """Eight seats and ten general admission tickets, and six buyers of whom three share an email address; beside them
    the model."""

    def __init__(self) -> None:
        super().__init__()
        number = next(_slugs)
        self.event = make_event(
            f"show-{number}", venue=f"venue {number}", rows=2, seats_per_row=4, accessible=ACCESSIBLE,
            general_admission=CAPACITY, per_buyer_max=CAP,
        )  # fmt: skip
        tiers.add_price(self.event, "Better", 2 * SEAT_PRICE_MINOR, **STAFF)
        prices = {"Standard": SEAT_PRICE_MINOR, "Better": 2 * SEAT_PRICE_MINOR, "Floor": PLACE_PRICE_MINOR}
        self.model = InventoryModel(dict.fromkeys(SEATS, "Standard"), ACCESSIBLE, prices, CAPACITY, CAP)
        stock.block_general_admission(self.event, "floor", BLOCKED, "house", **STAFF)
        self.model.block_general_admission(BLOCKED, "house")
        self.hall, self.floor = (section.id for section in events.list_sections(self.event.id))
        self.entries = [join(self.event, visitor_id=self.visitor(buyer)) for buyer in range(BUYERS)]
        self.bodies: dict[uuid.UUID, str] = {}

    def visitor(self, buyer: int) -> str:
        return f"visitor-{buyer}-{self.event.slug}"

    def claim(self, recent: int, *, among: str = "") -> uuid.UUID:
        """Return one of the existing claims, counted from the newest; of status `among`, if there is any."""
        names = [name for name, one in self.model.claims.items() if one.status == among] or list(self.model.claims)
        return names[-1 - recent % len(names)]

    def buyer_of(self, name: uuid.UUID) -> int:
        return [f"visitor:{self.visitor(buyer)}" for buyer in range(BUYERS)].index(self.model.claims[name].buyer)

    def live(self, buyer: int) -> uuid.UUID | None:
        entry = self.entries[buyer].id
        mine = [name for name, one in self.model.claims.items() if one.entry == entry and one.status in LIVE]
        return mine[0] if mine else None

    def make_request(self, buyer: int, payload: dict[str, Any], key: str = "") -> reservations.HoldRequest:
        return reservations.resolve(self.event, self.entries[buyer], payload, key or uuid.uuid4().hex)

    def decide(self, requests: Sequence[tuple[reservations.HoldRequest, dict[str, Any]]]) -> None:
        """Decide the same batch by the system and by the model, and compare the outcomes."""
        outcomes = reservations.hold([request for request, _ in requests])
        outcome_names, demands = [], []
        for (request, payload), outcome in zip(requests, outcomes, strict=True):
            demand = HoldDemand(
                request.reservation_id, request.entry_id, request.buyer, request.idempotency_key, payload
            )
            if isinstance(outcome, reservations.Held):
                answer = json.loads(outcome.answer.body)
                assert outcome.answer.body == self.bodies.setdefault(outcome.reservation_id, outcome.answer.body)
                demand.got, demand.until = frozenset(answer["seats"]), answer["reserved_until"]
                outcome_names.append(HELD if outcome.reservation_id == request.reservation_id else REPLAYED)
            else:
                outcome_names.append(outcome.problem.type)
            demands.append(demand)
        assert outcome_names == self.model.hold(demands)

    # --- buyers ------------------------------------------------------------------------------------------------------

    @rule(buyer=buyers, payload=selections, any_buyer=chance)
    def hold(self, buyer: int, payload: dict[str, Any], any_buyer: bool) -> None:
        """Mostly by a buyer who holds nothing."""
        empty = [one for one in range(BUYERS) if self.live(one) is None]
        if empty and not any_buyer:
            buyer = empty[buyer % len(empty)]
        self.decide([(self.make_request(buyer, payload), payload)])

    @precondition(lambda self: self.model.claims)
    @rule(payload=selections, recent=recent, buyer=buyers, any_buyer=chance)
    def replace(self, payload: dict[str, Any], recent: int, buyer: int, any_buyer: bool) -> None:
        """Mostly the buyer's own hold; sometimes any other."""
        old = self.claim(recent, among=PENDING)
        if not any_buyer:
            buyer = self.buyer_of(old)
        payload = {**payload, "replace": str(old)}
        self.decide([(self.make_request(buyer, payload), payload)])

    @precondition(lambda self: self.model.answers)
    @rule(recent=recent, other=st.booleans())
    def same_key_again(self, recent: int, other: bool) -> None:
        answered = list(self.model.answers.values())
        before = answered[-1 - recent % len(answered)]
        payload = {"seats": ["hall-A-1"], "ga_section": "floor", "ga_quantity": 4} if other else before.payload
        for buyer, entry in enumerate(self.entries):
            if entry.id == before.entry:
                self.decide([(self.make_request(buyer, payload, before.key), payload)])

    @rule(
        parties=st.lists(
            st.tuples(buyers, st.one_of(named, tickets, exact), st.just(True) | chance), min_size=2, max_size=5
        ),
        double=st.booleans(),
    )
    def hold_in_one_batch(self, parties: list[tuple[int, dict[str, Any], bool]], double: bool) -> None:
        """One batch: some buyers replace what they hold, one may have clicked twice."""
        requests = []
        for buyer, selection, replaces in parties:
            old = self.live(buyer) if replaces else None
            payload = {**selection, "replace": str(old)} if old is not None else selection
            requests.append((self.make_request(buyer, payload), payload))
        if double:
            first, payload = requests[0]
            requests.append((self.make_request(parties[0][0], payload, first.idempotency_key), payload))
        self.decide(requests)

    @rule(parties=st.lists(st.tuples(buyers, st.one_of(named, alike)), min_size=2, max_size=4))
    def choose_in_one_batch(self, parties: list[tuple[int, dict[str, Any]]]) -> None:
        """One batch in which some requests leave the choice of seats to the system. No request replaces a hold: the
        model could not know which seats are left for the others before the system has chosen."""
        self.decide([(self.make_request(buyer, payload), payload) for buyer, payload in parties])

    @precondition(lambda self: self.model.claims)
    @rule(recent=recent, among=st.sampled_from([PENDING, PAYING]))
    def lapse(self, recent: int, among: str) -> None:
        name = self.claim(recent, among=among)
        backdate_deadline(name)
        self.model.lapse(name)

    @rule()
    def sweep(self) -> None:
        swept = reservations.sweep(event_id=self.event.id).reservations
        assert self.model.sweep() == (swept > 0)

    @precondition(lambda self: self.model.claims)
    @rule(recent=recent)
    def release(self, recent: int) -> None:
        name = self.claim(recent)
        assert problem_type(lambda: reservations.release(name, who="buyer")) == self.model.release(name)

    @precondition(lambda self: self.model.claims)
    @rule(recent=recent, sold=st.booleans())
    def cancel_claim(self, recent: int, sold: bool) -> None:
        name = self.claim(recent, among=CONFIRMED if sold else "")
        assert problem_type(lambda: cancel(name)) == self.model.cancel(name)

    @precondition(lambda self: self.model.claims)
    @rule(recent=recent)
    def begin_payment(self, recent: int) -> None:
        name = self.claim(recent, among=PENDING)
        email = "shared@example.org" if self.buyer_of(name) < 3 else f"{self.buyer_of(name)}@example.org"
        reservations.prepare_payment(self.event.id, email)
        before = Reservation.objects.get(pk=name)
        problem = problem_type(lambda: begin_payment(name, email))
        assert problem == self.model.begin_payment(name, email)
        after = Reservation.objects.get(pk=name)
        assert after.expires_at == before.expires_at
        if before.pay_deadline is None and not problem:
            # Set once, and never before the end of the hold.
            assert after.pay_deadline is not None
            assert after.pay_deadline >= before.expires_at
        else:
            assert after.pay_deadline == before.pay_deadline

    @precondition(lambda self: self.model.claims)
    @rule(recent=recent, too_late=chance, among=st.sampled_from([PAYING, EXPIRED, ""]))
    def confirm(self, recent: int, too_late: bool, among: str) -> None:
        """In time, or within the grace period after the deadline; or an hour too late."""
        name = self.claim(recent, among=among)
        when = clock.now() + timedelta(hours=too_late)
        assert problem_type(lambda: confirm(name, when)) == self.model.confirm(name, too_late=too_late)
        # A buyer whose admission is completed joins again.
        buyer = self.buyer_of(name)
        self.entries[buyer] = join(self.event, visitor_id=self.visitor(buyer))

    # --- staff -------------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def staff(self, data: st.DataObject) -> None:
        """One of the operations of staff. Most steps are buyers' operations."""
        data.draw(
            st.sampled_from(
                [self.block, self.unblock, self.block_general_admission, self.resize, self.reprice, self.move]
            )
        )(data)

    def block(self, data: st.DataObject) -> None:
        chosen, reason, only_free = data.draw(seats), data.draw(reasons), data.draw(st.booleans())
        problem = problem_type(
            lambda: stock.block_seats(self.event, among(chosen), reason, only_free=only_free, **STAFF)
        )
        assert problem == self.model.retry_after_sweep(lambda: self.model.block(chosen, reason, only_free=only_free))

    def unblock(self, data: st.DataObject) -> None:
        chosen, reason = data.draw(seats), data.draw(st.sampled_from(["", "", "house"]))
        stock.unblock_seats(self.event, among(chosen), reason=reason, **STAFF)
        self.model.unblock(chosen, reason)

    def block_general_admission(self, data: st.DataObject) -> None:
        quantity, reason = data.draw(st.integers(1, 3)), data.draw(reasons)
        problem = problem_type(lambda: stock.block_general_admission(self.event, "floor", quantity, reason, **STAFF))
        assert problem == self.model.retry_after_sweep(lambda: self.model.block_general_admission(quantity, reason))

    @precondition(lambda self: any(self.model.blocked.values()))
    @rule(quantity=st.integers(1, 3), reason=reasons)
    def unblock_general_admission(self, quantity: int, reason: str) -> None:
        problem = problem_type(lambda: stock.unblock_general_admission(self.event, "floor", quantity, reason, **STAFF))
        assert problem == self.model.retry_after_sweep(lambda: self.model.unblock_general_admission(quantity, reason))

    def resize(self, data: st.DataObject) -> None:
        capacity = data.draw(st.integers(3, CAPACITY + 2))
        problem = problem_type(lambda: stock.resize(self.event, "floor", capacity, **STAFF))
        assert problem == self.model.retry_after_sweep(lambda: self.model.resize(capacity))

    def reprice(self, data: st.DataObject) -> None:
        category, price = data.draw(st.sampled_from(["Standard", "Better", "Floor"])), data.draw(st.integers(1, 9_000))
        tiers.reprice(self.event, category, price, **STAFF)
        self.model.prices[category] = price

    def move(self, data: st.DataObject) -> None:
        chosen, category = data.draw(seats), data.draw(st.sampled_from(["Standard", "Better"]))
        problem = problem_type(lambda: tiers.move_seats(self.event, among(chosen), category, **STAFF))
        assert problem == self.model.retry_after_sweep(lambda: self.model.move(chosen, category))

    # --- stock -------------------------------------------------------------------------------------------------------

    @invariant()
    def every_seat_has_the_owner_of_the_model(self) -> None:
        model, owners = self.model, self.model.owners()
        rows = SeatInventory.objects.filter(event_id=self.event.id).values_list(
            "seat__guid", "status", "reservation_id", "blocked_for"
        )
        for guid, status, owner, why in rows:
            assert (owner, why) == (owners.get(guid), model.why.get(guid, "")), guid
            taken = "" if owner is None else "sold" if model.claims[owner].status == CONFIRMED else "held"
            assert SeatInventory.Status(status).label == (taken or ("blocked" if why else "available")), guid

    @invariant()
    def every_count_equals_the_model(self) -> None:
        model, actual = self.model, {}
        for one in read_section_stock(self.event.id):
            actual[one.section.id] = (one.capacity, one.free, one.held, one.sold, one.blocked)
        owners = Counter("sold" if model.claims[one].status == CONFIRMED else "held" for one in model.owners().values())
        assert actual[self.hall] == (len(SEATS), len(model.free()), owners["held"], owners["sold"], len(model.why))
        assert actual[self.floor] == (
            model.capacity,
            model.tickets_left(),
            model.tickets(*LIVE),
            model.tickets(CONFIRMED),
            sum(model.blocked.values()),
        )
        assert GeneralAdmissionInventory.objects.get(pk=self.floor).house == model.blocked["house"]

    @invariant()
    def every_reservation_has_the_status_and_total_of_the_model(self) -> None:
        rows = Reservation.objects.filter(event_id=self.event.id)
        assert {row.pk: (row.status, row.total_minor) for row in rows} == {
            name: (one.status, one.total) for name, one in self.model.claims.items()
        }
        for row in rows:
            until = self.model.claims[row.pk].until
            assert until in ("", clock.iso(row.expires_at)), "a deadline was moved"


def among(guids: set[str]) -> Selection:
    return Selection(seats=tuple(sorted(guids)))


def problem_type(act: Callable[[], Any]) -> str:
    """Return the type of the problem that refuses the act; empty if it succeeds."""
    try:
        act()
    except problems.Problem as problem:
        return problem.type
    return ""


def test_any_sequence_of_operations_has_the_outcomes_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "secrets", SimpleNamespace(randbelow=lambda below: below - 1))
    monkeypatch.setattr(transaction, "STATEMENT_MS", PATIENT_MS)
    monkeypatch.setattr(transaction, "LOCK_WAIT_MS", PATIENT_MS)
    run_state_machine_as_test(
        InventoryMachine, settings=settings(max_examples=15, stateful_step_count=40, derandomize=True)
    )
    assert_audit_clean(without_money=True)
