"""Hold, replace, release, lapse, sweep, pay, give back, block, resize, reprice and move, in any order: the house says
what the book says, word for word and seat by seat, and the auditor finds nothing."""

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
PLACES = 10
KEPT = 2
"""Of them by the house, when the doors open."""
CAP = 5
PATIENT_MS = 60_000
"""Nobody is in anybody's way here: however slow the machine is, nothing is refused for that."""
STAFF: dict[str, Any] = {"who": "staff:ann", "why": "test"}

_slugs = count()

buyers = st.integers(0, BUYERS - 1)
recent = st.integers(0, 5)
seats = st.sets(st.sampled_from(SEATS), min_size=1, max_size=3)
reasons = st.sampled_from(["house", "out_of_use"])
chance = st.sampled_from([False, False, False, True])
likely = st.sampled_from([True, True, True, False])
named = st.builds(lambda chosen: {"seats": sorted(chosen)}, seats)
places = st.builds(lambda quantity: {"ga_section": "floor", "ga_quantity": quantity}, st.integers(1, 4))
best = st.builds(
    lambda quantity, kind: {"best_available": {"section": "hall", "quantity": quantity, **kind}},
    st.integers(1, 4),
    st.sampled_from([{}, {}, {"accessible": True}]),
)
company = st.just({"best_available": {"section": "hall", "quantity": 2, "accessible": True, "companions": 1}})
exact = st.builds(lambda one, other: one | other, named, places)
mixed = st.one_of(exact, st.builds(lambda one, other: one | other, best, places))
selections = st.one_of(named, places, best, mixed, company)
alike = st.builds(lambda quantity: {"best_available": {"section": "hall", "quantity": quantity}}, st.integers(1, 4))


class House(RuleBasedStateMachine):
    """Eight seats and ten places, six buyers of whom three share an e-mail address; beside it the book."""

    def __init__(self) -> None:
        super().__init__()
        number = next(_slugs)
        self.event = make_event(
            f"show-{number}", venue=f"venue {number}", rows=2, seats_per_row=4, accessible=ACCESSIBLE,
            general_admission=PLACES, per_buyer_max=CAP,
        )  # fmt: skip
        tiers.add_price(self.event, "Better", 2 * SEAT_PRICE_MINOR, **STAFF)
        prices = {"Standard": SEAT_PRICE_MINOR, "Better": 2 * SEAT_PRICE_MINOR, "Floor": PLACE_PRICE_MINOR}
        self.book = InventoryModel(dict.fromkeys(SEATS, "Standard"), ACCESSIBLE, prices, PLACES, CAP)
        stock.block_places(self.event, "floor", KEPT, "house", **STAFF)
        self.book.block_places(KEPT, "house")
        self.hall, self.floor = (section.id for section in events.list_sections(self.event.id))
        self.entries = [join(self.event, visitor_id=self.visitor(buyer)) for buyer in range(BUYERS)]
        self.bodies: dict[uuid.UUID, str] = {}

    def visitor(self, buyer: int) -> str:
        return f"visitor-{buyer}-{self.event.slug}"

    def claim(self, recent: int, *, among: str = "") -> uuid.UUID:
        """One of the claims there are, the youngest first; of this status, if there is any."""
        names = [name for name, one in self.book.claims.items() if one.status == among] or list(self.book.claims)
        return names[-1 - recent % len(names)]

    def buyer_of(self, name: uuid.UUID) -> int:
        return [f"visitor:{self.visitor(buyer)}" for buyer in range(BUYERS)].index(self.book.claims[name].buyer)

    def live(self, buyer: int) -> uuid.UUID | None:
        entry = self.entries[buyer].id
        mine = [name for name, one in self.book.claims.items() if one.entry == entry and one.status in LIVE]
        return mine[0] if mine else None

    def wish(self, buyer: int, payload: dict[str, Any], key: str = "") -> reservations.HoldRequest:
        return reservations.resolve(self.event, self.entries[buyer], payload, key or uuid.uuid4().hex)

    def decide(self, requests: Sequence[tuple[reservations.HoldRequest, dict[str, Any]]]) -> None:
        """The house and the book decide the same list, and say the same."""
        outcomes = reservations.hold([request for request, _ in requests])
        words, wishes = [], []
        for (request, payload), outcome in zip(requests, outcomes, strict=True):
            wish = HoldDemand(request.reservation_id, request.entry_id, request.buyer, request.idempotency_key, payload)
            if isinstance(outcome, reservations.Held):
                answer = json.loads(outcome.answer.body)
                assert outcome.answer.body == self.bodies.setdefault(outcome.reservation_id, outcome.answer.body)
                wish.got, wish.until = frozenset(answer["seats"]), answer["reserved_until"]
                words.append(HELD if outcome.reservation_id == request.reservation_id else REPLAYED)
            else:
                words.append(outcome.problem.type)
            wishes.append(wish)
        assert words == self.book.hold(wishes)

    # --- buyers ------------------------------------------------------------------------------------------------------

    @rule(buyer=buyers, payload=selections, whoever=chance)
    def hold(self, buyer: int, payload: dict[str, Any], whoever: bool) -> None:
        """Mostly one who holds nothing."""
        empty = [one for one in range(BUYERS) if self.live(one) is None]
        if empty and not whoever:
            buyer = empty[buyer % len(empty)]
        self.decide([(self.wish(buyer, payload), payload)])

    @precondition(lambda self: self.book.claims)
    @rule(payload=selections, recent=recent, buyer=buyers, whoever=chance)
    def replace(self, payload: dict[str, Any], recent: int, buyer: int, whoever: bool) -> None:
        """Mostly what one holds oneself; at times anything there is."""
        old = self.claim(recent, among=PENDING)
        if not whoever:
            buyer = self.buyer_of(old)
        payload = {**payload, "replace": str(old)}
        self.decide([(self.wish(buyer, payload), payload)])

    @precondition(lambda self: self.book.answers)
    @rule(recent=recent, other=st.booleans())
    def same_key_again(self, recent: int, other: bool) -> None:
        answered = list(self.book.answers.values())
        before = answered[-1 - recent % len(answered)]
        payload = {"seats": ["hall-A-1"], "ga_section": "floor", "ga_quantity": 4} if other else before.payload
        for buyer, entry in enumerate(self.entries):
            if entry.id == before.entry:
                self.decide([(self.wish(buyer, payload, before.key), payload)])

    @rule(
        wants=st.lists(
            st.tuples(buyers, st.one_of(named, places, exact), st.just(True) | chance), min_size=2, max_size=5
        ),
        double=st.booleans(),
    )
    def hold_together(self, wants: list[tuple[int, dict[str, Any], bool]], double: bool) -> None:
        """One list: some replace what they have, one may have clicked twice."""
        requests = []
        for buyer, wanted, replaces in wants:
            old = self.live(buyer) if replaces else None
            payload = {**wanted, "replace": str(old)} if old is not None else wanted
            requests.append((self.wish(buyer, payload), payload))
        if double:
            first, payload = requests[0]
            requests.append((self.wish(wants[0][0], payload, first.idempotency_key), payload))
        self.decide(requests)

    @rule(wants=st.lists(st.tuples(buyers, st.one_of(named, alike)), min_size=2, max_size=4))
    def choose_together(self, wants: list[tuple[int, dict[str, Any]]]) -> None:
        """One list in which some leave the choice to us. None replaces anything: which seats one gets is then known
        only in the end, and with it what is left for the others."""
        self.decide([(self.wish(buyer, payload), payload) for buyer, payload in wants])

    @precondition(lambda self: self.book.claims)
    @rule(recent=recent, among=st.sampled_from([PENDING, PAYING]))
    def lapse(self, recent: int, among: str) -> None:
        name = self.claim(recent, among=among)
        backdate_deadline(name)
        self.book.lapse(name)

    @rule()
    def sweep(self) -> None:
        swept = reservations.sweep(event_id=self.event.id).reservations
        assert self.book.sweep() == (swept > 0)

    @precondition(lambda self: self.book.claims)
    @rule(recent=recent)
    def release(self, recent: int) -> None:
        name = self.claim(recent)
        assert said(lambda: reservations.release(name, who="buyer")) == self.book.release(name)

    @precondition(lambda self: self.book.claims)
    @rule(recent=recent, sold=st.booleans())
    def give_back(self, recent: int, sold: bool) -> None:
        name = self.claim(recent, among=CONFIRMED if sold else "")
        assert said(lambda: cancel(name)) == self.book.give_back(name)

    @precondition(lambda self: self.book.claims)
    @rule(recent=recent)
    def begin_payment(self, recent: int) -> None:
        name = self.claim(recent, among=PENDING)
        email = "shared@example.org" if self.buyer_of(name) < 3 else f"{self.buyer_of(name)}@example.org"
        reservations.prepare_payment(self.event.id, email)
        assert said(lambda: begin_payment(name, email)) == self.book.begin_payment(name, email)

    @precondition(lambda self: self.book.claims)
    @rule(recent=recent, too_late=chance, among=st.sampled_from([PAYING, EXPIRED, ""]))
    def confirm(self, recent: int, too_late: bool, among: str) -> None:
        """In time, or within the grace after the deadline; or an hour too late."""
        name = self.claim(recent, among=among)
        when = clock.now() + timedelta(hours=too_late)
        assert said(lambda: confirm(name, when)) == self.book.confirm(name, too_late=too_late)
        # Whose admission is used up joins again, as the same buyer.
        buyer = self.buyer_of(name)
        self.entries[buyer] = join(self.event, visitor_id=self.visitor(buyer))

    # --- staff -------------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def staff(self, data: st.DataObject) -> None:
        """One of the things that staff do. Mostly buyers come."""
        data.draw(st.sampled_from([self.block, self.unblock, self.block_places, self.resize, self.reprice, self.move]))(
            data
        )

    def block(self, data: st.DataObject) -> None:
        chosen, reason, only_free = data.draw(seats), data.draw(reasons), data.draw(st.booleans())
        word = said(lambda: stock.block_seats(self.event, among(chosen), reason, only_free=only_free, **STAFF))
        assert word == self.book.retry_after_sweep(lambda: self.book.block(chosen, reason, only_free=only_free))

    def unblock(self, data: st.DataObject) -> None:
        chosen, reason = data.draw(seats), data.draw(st.sampled_from(["", "", "house"]))
        stock.unblock_seats(self.event, among(chosen), reason=reason, **STAFF)
        self.book.unblock(chosen, reason)

    def block_places(self, data: st.DataObject) -> None:
        quantity, reason = data.draw(st.integers(1, 3)), data.draw(reasons)
        word = said(lambda: stock.block_places(self.event, "floor", quantity, reason, **STAFF))
        assert word == self.book.retry_after_sweep(lambda: self.book.block_places(quantity, reason))

    @precondition(lambda self: any(self.book.blocked.values()))
    @rule(quantity=st.integers(1, 3), reason=reasons)
    def unblock_places(self, quantity: int, reason: str) -> None:
        word = said(lambda: stock.unblock_places(self.event, "floor", quantity, reason, **STAFF))
        assert word == self.book.retry_after_sweep(lambda: self.book.unblock_places(quantity, reason))

    def resize(self, data: st.DataObject) -> None:
        capacity = data.draw(st.integers(3, PLACES + 2))
        word = said(lambda: stock.resize(self.event, "floor", capacity, **STAFF))
        assert word == self.book.retry_after_sweep(lambda: self.book.resize(capacity))

    def reprice(self, data: st.DataObject) -> None:
        category, price = data.draw(st.sampled_from(["Standard", "Better", "Floor"])), data.draw(st.integers(1, 9_000))
        tiers.reprice(self.event, category, price, **STAFF)
        self.book.prices[category] = price

    def move(self, data: st.DataObject) -> None:
        chosen, category = data.draw(seats), data.draw(st.sampled_from(["Standard", "Better"]))
        word = said(lambda: tiers.move_seats(self.event, among(chosen), category, **STAFF))
        assert word == self.book.retry_after_sweep(lambda: self.book.move(chosen, category))

    # --- what there is -----------------------------------------------------------------------------------------------

    @invariant()
    def every_seat_is_whose_the_book_says(self) -> None:
        book, owners = self.book, self.book.owners()
        rows = SeatInventory.objects.filter(event_id=self.event.id).values_list(
            "seat__guid", "status", "reservation_id", "blocked_for"
        )
        for guid, status, owner, why in rows:
            assert (owner, why) == (owners.get(guid), book.why.get(guid, "")), guid
            taken = "" if owner is None else "sold" if book.claims[owner].status == CONFIRMED else "held"
            assert SeatInventory.Status(status).label == (taken or ("blocked" if why else "available")), guid

    @invariant()
    def every_count_is_the_book_s(self) -> None:
        book, there = self.book, reservations.availability(self.event.id)
        owners = Counter("sold" if book.claims[one].status == CONFIRMED else "held" for one in book.owners().values())
        assert there[self.hall] == reservations.Availability(
            len(SEATS), len(book.free()), owners["held"], owners["sold"], len(book.why)
        )
        assert there[self.floor] == reservations.Availability(
            book.capacity, book.places_left(), book.places(*LIVE), book.places(CONFIRMED), sum(book.blocked.values())
        )
        assert GeneralAdmissionInventory.objects.get(pk=self.floor).house == book.blocked["house"]

    @invariant()
    def every_reservation_stands_and_costs_what_the_book_says(self) -> None:
        rows = Reservation.objects.filter(event_id=self.event.id)
        assert {row.pk: (row.status, row.total_minor) for row in rows} == {
            name: (one.status, one.total) for name, one in self.book.claims.items()
        }
        for row in rows:
            until = self.book.claims[row.pk].until
            assert until in ("", clock.iso(row.expires_at)), "an end was put off, or brought forward"


def among(guids: set[str]) -> Selection:
    return Selection(seats=tuple(sorted(guids)))


def said(act: Callable[[], Any]) -> str:
    """The type of the problem it is refused with; nothing if it is not."""
    try:
        act()
    except problems.Problem as problem:
        return problem.type
    return ""


def test_in_whatever_order_the_house_says_what_the_book_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "secrets", SimpleNamespace(randbelow=lambda below: below - 1))
    monkeypatch.setattr(transaction, "STATEMENT_MS", PATIENT_MS)
    monkeypatch.setattr(transaction, "LOCK_WAIT_MS", PATIENT_MS)
    run_state_machine_as_test(House, settings=settings(max_examples=15, stateful_step_count=40, derandomize=True))
    assert_audit_clean(without_money=True)
