"""What goes wrong under a hold's group commit: the line is cut at each of its statements, a request is poison, two of
one batch want the same. Everybody gets an answer, the same key the same one, and nothing is held twice or by nobody."""

import dataclasses
import json
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from apps.kernel.db import roundtrip, sql, transactions
from apps.kernel.group_commit.batcher import OutcomeUnknown
from apps.kernel.http import problems
from apps.reservations import facade as reservations
from apps.reservations.holds import service
from apps.reservations.models import Reservation, SeatInventory
from tests.support.batches import TIMEOUT_MS, connect
from tests.support.factories import assert_audit_clean, hold, join, make_event, make_hold_request
from tests.support.reservations.batched_holds import hold_in_one_batch, is_batcher_thread, terminate_batcher_session
from tests.support.reservations.buyers import get_general_admission, is_held, problem_of, seat

pytestmark = pytest.mark.django_db(transaction=True)


class Cuts:
    """Cuts the line in the batcher: in its first `times` attempts at the batch after the leader's, before the statement
    number `step` (from 0); after the last one, so that the COMMIT meets it; or when the commit is done and only the
    answer is under way."""

    def __init__(self, step: int, times: int, statement_count: int) -> None:
        self.step, self.times, self.count = step, times, statement_count
        self.attempt = 0
        self.at = -1
        self.came = 0
        self.names: list[str] = []

    @property
    def is_on(self) -> bool:
        return 1 < self.attempt <= 1 + self.times

    def look(self, name: str, when: str) -> None:
        if not is_batcher_thread():
            return
        if when == "before":
            begins = name == "create_caps"
            self.attempt += begins
            self.at = 0 if begins else self.at + 1
            if self.attempt == 2:
                self.names.append(name)
        wanted = ("before", self.step) if self.step < self.count else ("after", self.count - 1)
        if self.is_on and self.step <= self.count and (when, self.at) == wanted:
            self.cut()

    def after_commit(self, *asked: Any, write: Any, **how: Any) -> Any:
        verdicts = _decide_once(*asked, write=write, **how)
        if self.is_on and self.step > self.count:
            self.cut()
            with write() as cursor:
                cursor.execute("SELECT 1")
        return verdicts

    def cut(self) -> None:
        self.came += 1
        terminate_batcher_session()


_decide_once = service.decide_once


class Sale:
    """Somebody who holds seat 1 and a place replaces them by the two best seats and two places; in the same batch
    somebody else takes a seat and a place."""

    def __init__(self) -> None:
        self.event = make_event(rows=2, seats_per_row=6, general_admission=6, per_buyer_max=6)
        self.leader = make_hold_request(self.event, seats=["hall-B-1"])
        reservations.hold([self.leader])

    def run(self, monkeypatch: pytest.MonkeyPatch, cuts: Cuts) -> list[Any]:
        """What each of the two was told: its answer, or why there is none."""
        self.entries = [join(self.event), join(self.event)]
        self.old = hold(self.event, self.entries[0], seats=["hall-A-1"], ga_section="floor", ga_quantity=1)
        self.payloads: list[dict[str, Any]] = [
            {
                "best_available": {"section": "hall", "quantity": 2}, "ga_section": "floor", "ga_quantity": 2,
                "replace": str(self.old.id),
            },
            {"seats": ["hall-B-6"], "ga_section": "floor", "ga_quantity": 1},
        ]  # fmt: skip
        told: list[Any] = []
        with sql.observe(cuts.look), monkeypatch.context() as patch:
            patch.setattr(service, "decide_once", cuts.after_commit)
            for caller in hold_in_one_batch(self.leader, self.wishes()):
                try:
                    told.append(caller.result().answer.body)
                except problems.Problem as problem:
                    told.append(type(problem))
        return told

    def wishes(self) -> list[reservations.HoldRequest]:
        """The same keys, whatever reservation it will be."""
        pairs = zip(self.entries, self.payloads, strict=True)
        return [make_hold_request(self.event, entry, key="same", **payload) for entry, payload in pairs]

    def ask_again(self) -> list[str]:
        outcomes = [service.holds.submit_sync(request, TIMEOUT_MS) for request in self.wishes()]
        assert all(map(is_held, outcomes)), outcomes
        return [outcome.answer.body for outcome in outcomes if isinstance(outcome, reservations.Held)]

    def require_held_once(self, bodies: list[str]) -> None:
        """Each has one live reservation, the one its answer names, and nobody has anything else."""
        live = {row.entry_id: row.pk for row in Reservation.objects.filter(status="pending_payment")}
        answered = [uuid.UUID(json.loads(body)["reservation_id"]) for body in bodies]
        assert [live[entry.id] for entry in self.entries] == answered
        assert len(live) == 3
        assert reservations.get_reservation(self.old.id).status == "canceled"
        assert SeatInventory.objects.filter(status=SeatInventory.Status.HELD).count() == 1 + 2 + 1
        assert get_general_admission().taken == 2 + 1
        for one in answered:
            reservations.release(one, who="test")


@pytest.mark.parametrize("times", [1, 2])
def test_wherever_the_line_is_cut_nothing_is_held_twice_or_by_nobody(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut once, everybody gets an answer all the same. Cut again in the second attempt nobody knows what became of it,
    and the same key tells."""
    sale = Sale()
    whole = Cuts(0, 0, 0)
    told = sale.run(monkeypatch, whole)
    sale.require_held_once(told)
    assert {"lock_replaced_skipping", "lock_caps_skipping", "free_seats", "lock_seats_skipping",
            "lock_general_admission", "give_back_general_admission", "take_seats", "take_general_admission",
            "insert_reservations", "insert_lines", "insert_transitions",
            "remember_answers"} <= set(whole.names)  # fmt: skip
    assert whole.names[-1] == "remember_answers", "the commit comes next"
    for step in range(len(whole.names) + 2):
        cuts = Cuts(step, times, len(whole.names))
        told = sale.run(monkeypatch, cuts)
        assert cuts.came == times, (step, cuts.came)
        if times == 2:
            assert told == [OutcomeUnknown] * 2, step
        again = sale.ask_again()
        assert told in (again, [OutcomeUnknown] * 2), step
        sale.require_held_once(again)
    assert_audit_clean()


def test_an_answer_lost_together_with_the_commit_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody looks on, the COMMIT travels with the writes; the line is cut behind it, all is decided again."""
    event = make_event(general_admission=4)
    leader = make_hold_request(event, seats=["hall-E-10"])
    reservations.hold([leader])
    travel, cut = roundtrip.Cursor.execute_batch, []

    def travel_and_cut(self: roundtrip.Cursor, texts: list[str], *, commits: bool = False) -> Any:
        done = travel(self, texts, commits=commits)
        if commits and not cut:
            cut.append(self.connection.info.backend_pid)
            self.connection.close()
            raise psycopg.OperationalError("the line is cut")
        return done

    monkeypatch.setattr(roundtrip.Cursor, "execute_batch", travel_and_cut)
    requests = [
        make_hold_request(event, ga_section="floor", ga_quantity=1),
        make_hold_request(event, seats=["hall-A-1"]),
    ]
    outcomes = [caller.result() for caller in hold_in_one_batch(leader, requests)]
    assert len(cut) == 1
    assert [outcome.reservation_id for outcome in outcomes] == [request.reservation_id for request in requests]
    assert (seat("hall-A-1").status, get_general_admission().taken, Reservation.objects.count()) == (1, 1, 3)
    assert_audit_clean()


@pytest.mark.parametrize("most", [None, 6])
@pytest.mark.parametrize(
    ("payload", "journeys_expected"), [({"ga_section": "floor", "ga_quantity": 1}, 2), ({"seats": ["hall-A-1"]}, 3)]
)
def test_a_batch_goes_to_the_ledger_and_back_as_seldom_as_can_be(
    payload: dict[str, Any], journeys_expected: int, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What locks and reads, with named seats again for what is free, and what writes and commits; caps go ahead."""
    event = make_event(general_admission=4, per_buyer_max=most)
    request = make_hold_request(event, **payload)  # Joins the line, by journeys of its own.
    make, made = roundtrip.Cursor._send_batch, []

    def counted(self: roundtrip.Cursor, texts: list[str]) -> Any:
        made.append(texts)
        return make(self, texts)

    monkeypatch.setattr(roundtrip.Cursor, "_send_batch", counted)
    with connect() as on:
        (outcome,) = reservations.hold([request], transactions.writes_on(on))
    assert is_held(outcome)
    assert len(made) == journeys_expected + (most is not None)
    assert made[-1][-1] == "COMMIT"
    assert_audit_clean()


# --- poison ---------------------------------------------------------------------------------------------------------

POISONS: dict[str, Callable[[reservations.HoldRequest], dict[str, Any]]] = {
    "a key with a NUL": lambda request: {"idempotency_key": "\x00"},
    "a buyer with a NUL": lambda request: {"buyer": "visitor:\x00"},
    "a section beyond every number": lambda request: {"quantities": {2**70: 1}},
    "a seat beyond every number": lambda request: {"seats": {2**70: "hall-A-9"}},
    "a reservation that exists": lambda request: {"reservation_id": Reservation.objects.earliest("created_at").pk},
    "an event beyond every number": lambda request: {"event": dataclasses.replace(request.event, id=2**70)},
}


@pytest.mark.parametrize("poison", POISONS)
def test_a_poisoned_request_fails_alone_and_its_neighbours_keep_their_order(poison: str) -> None:
    """What no service lets through got into a batch all the same: two before it and two behind it want one last place
    each, and there are two left; the first two have them."""
    event = make_event(general_admission=3, per_buyer_max=4)
    leader = make_hold_request(event, seats=["hall-E-10"])
    reservations.hold([leader])
    requests = [
        make_hold_request(event, seats=[f"hall-A-{number}"], ga_section="floor", ga_quantity=1)
        for number in range(1, 6)
    ]
    bad = make_hold_request(event, seats=["hall-B-1"])
    bad = dataclasses.replace(bad, **POISONS[poison](bad))
    requests.insert(2, bad)
    callers = hold_in_one_batch(leader, requests)
    assert isinstance(callers.pop(2).error(), psycopg.Error)
    outcomes = [caller.result() for caller in callers]
    assert [is_held(outcome) for outcome in outcomes] == [True, True, True, False, False]
    assert [problem_of(outcome).type for outcome in outcomes[3:]] == ["sold-out"] * 2
    assert (seat("hall-B-1").status, get_general_admission().taken) == (0, 3)
    assert_audit_clean()


# --- one batch, one thing -------------------------------------------------------------------------------------------


def test_two_of_one_batch_for_one_seat_or_one_place_are_decided_in_the_order_they_came() -> None:
    event = make_event(general_admission=1)
    leader = make_hold_request(event, seats=["hall-E-10"])
    reservations.hold([leader])
    wants: list[dict[str, Any]] = [{"seats": ["hall-A-1"]}, {"ga_section": "floor", "ga_quantity": 1}] * 2
    requests = [make_hold_request(event, **payload) for payload in wants]
    outcomes = [caller.result() for caller in hold_in_one_batch(leader, requests)]
    assert [is_held(outcome) for outcome in outcomes] == [True, True, False, False]
    assert [problem_of(outcome).type for outcome in outcomes[2:]] == ["seats-unavailable", "sold-out"]
    assert seat("hall-A-1").reservation_id == requests[0].reservation_id
    assert_audit_clean()


def test_two_of_one_batch_with_one_admission_or_one_key_are_decided_in_the_order_they_came() -> None:
    """A double click gets the first one's answer, byte for byte; another wish beside it is told what there is; the same
    key for something else is a mistake of the caller's."""
    event = make_event()
    leader = make_hold_request(event, seats=["hall-E-10"])
    reservations.hold([leader])
    entry = join(event)
    requests = [
        make_hold_request(event, entry, key="one", seats=["hall-A-1"]),
        make_hold_request(event, entry, key="one", seats=["hall-A-1"]),
        make_hold_request(event, entry, key="two", seats=["hall-A-2"]),
        make_hold_request(event, entry, key="one", seats=["hall-A-2"]),
    ]
    first, second, third, fourth = (caller.result() for caller in hold_in_one_batch(leader, requests))
    assert is_held(first)
    assert second == first
    assert problem_of(third).type == "reservation-exists"
    assert problem_of(third).extra == {"reservation": str(requests[0].reservation_id)}
    assert problem_of(fourth).type == "idempotency-mismatch"
    assert (seat("hall-A-1").status, seat("hall-A-2").status) == (1, 0)
    assert_audit_clean()
