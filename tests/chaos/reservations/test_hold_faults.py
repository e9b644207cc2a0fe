"""Faults during the group commit of holds: the connection is cut at each statement, a request is invalid, or two
requests of one batch conflict.

Every request gets an answer, and a retry gets the same answer. No seat is held twice, or held without a reservation.
"""

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
    """Cuts the batcher's connection in each of its first `times` attempts at the batch that follows the leader's.

    `step` says where: less than `statement_count`, before that statement (from 0); equal to it, after the last
    statement, so that the COMMIT fails; greater, after the commit, so that only the server's answer is lost.
    """

    def __init__(self, step: int, times: int, statement_count: int) -> None:
        self.step, self.times, self.count = step, times, statement_count
        self.attempt = 0
        self.at = -1
        self.cut_count = 0
        self.names: list[str] = []

    @property
    def is_on(self) -> bool:
        return 1 < self.attempt <= 1 + self.times

    def watch(self, name: str, when: str) -> None:
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

    def after_commit(self, *args: Any, write: Any, **options: Any) -> Any:
        verdicts = _decide_once(*args, write=write, **options)
        if self.is_on and self.step > self.count:
            self.cut()
            with write() as cursor:
                cursor.execute("SELECT 1")
        return verdicts

    def cut(self) -> None:
        self.cut_count += 1
        terminate_batcher_session()


_decide_once = service.decide_once


class Sale:
    """A batch of two requests. One buyer holds a seat and a ticket and replaces them with the two best seats and two
    tickets; another buyer holds a seat and a ticket."""

    def __init__(self) -> None:
        self.event = make_event(rows=2, seats_per_row=6, general_admission=6, per_buyer_max=6)
        self.leader = make_hold_request(self.event, seats=["hall-B-1"])
        reservations.hold([self.leader])

    def run(self, monkeypatch: pytest.MonkeyPatch, cuts: Cuts) -> list[Any]:
        """Return the outcome of each request: its answer's body, or the type of its problem."""
        self.entries = [join(self.event), join(self.event)]
        self.old = hold(self.event, self.entries[0], seats=["hall-A-1"], ga_section="floor", ga_quantity=1)
        self.payloads: list[dict[str, Any]] = [
            {
                "best_available": {"section": "hall", "quantity": 2}, "ga_section": "floor", "ga_quantity": 2,
                "replace": str(self.old.id),
            },
            {"seats": ["hall-B-6"], "ga_section": "floor", "ga_quantity": 1},
        ]  # fmt: skip
        outcomes: list[Any] = []
        with sql.observe(cuts.watch), monkeypatch.context() as patch:
            patch.setattr(service, "decide_once", cuts.after_commit)
            for caller in hold_in_one_batch(self.leader, self.hold_requests()):
                try:
                    outcomes.append(caller.result().answer.body)
                except problems.Problem as problem:
                    outcomes.append(type(problem))
        return outcomes

    def hold_requests(self) -> list[reservations.HoldRequest]:
        """Return the two requests. Each call uses the same idempotency key and new reservation ids."""
        pairs = zip(self.entries, self.payloads, strict=True)
        return [make_hold_request(self.event, entry, key="same", **payload) for entry, payload in pairs]

    def retry(self) -> list[str]:
        outcomes = [service.holds.submit_sync(request, TIMEOUT_MS) for request in self.hold_requests()]
        assert all(map(is_held, outcomes)), outcomes
        return [outcome.answer.body for outcome in outcomes if isinstance(outcome, reservations.Held)]

    def require_held_once(self, bodies: list[str]) -> None:
        """Assert that each request has one live reservation, named in its answer, and that only the leader has another.

        Afterwards both reservations are released.
        """
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
def test_wherever_the_connection_is_cut_nothing_is_held_twice_or_lost(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the connection is cut in the first attempt only, every request still gets its answer. If it is cut in the
    second attempt too, the outcome is unknown, and a retry with the same key gets the answer."""
    sale = Sale()
    uncut = Cuts(0, 0, 0)
    outcomes = sale.run(monkeypatch, uncut)
    sale.require_held_once(outcomes)
    assert {"lock_replaced_skipping", "lock_caps_skipping", "free_seats", "lock_seats_skipping",
            "lock_general_admission", "release_general_admission", "take_seats", "take_general_admission",
            "insert_reservations", "insert_lines", "insert_transitions",
            "remember_answers"} <= set(uncut.names)  # fmt: skip
    # The second reads the id of the transaction, in the round trip of the COMMIT.
    assert uncut.names[-2:] == ["remember_answers", "read_transaction"], "no other statement precedes the COMMIT"
    for step in range(len(uncut.names) + 2):
        cuts = Cuts(step, times, len(uncut.names))
        outcomes = sale.run(monkeypatch, cuts)
        assert cuts.cut_count == times, (step, cuts.cut_count)
        if times == 2:
            assert outcomes == [OutcomeUnknown] * 2, step
        again = sale.retry()
        assert outcomes in (again, [OutcomeUnknown] * 2), step
        sale.require_held_once(again)
    assert_audit_clean()


def test_an_answer_that_is_lost_after_the_commit_is_found_by_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an observer of statements, the COMMIT is sent together with the writes. The connection is cut after the
    COMMIT, so the whole batch is decided again."""
    event = make_event(general_admission=4)
    leader = make_hold_request(event, seats=["hall-E-10"])
    reservations.hold([leader])
    execute_batch, cut = roundtrip.Cursor.execute_batch, []

    def execute_and_cut(self: roundtrip.Cursor, texts: list[str], *, commits: bool = False) -> Any:
        done = execute_batch(self, texts, commits=commits)
        if commits and not cut:
            cut.append(self.connection.info.backend_pid)
            self.connection.close()
            raise psycopg.OperationalError("the connection is cut")
        return done

    monkeypatch.setattr(roundtrip.Cursor, "execute_batch", execute_and_cut)
    requests = [
        make_hold_request(event, ga_section="floor", ga_quantity=1),
        make_hold_request(event, seats=["hall-A-1"]),
    ]
    outcomes = [caller.result() for caller in hold_in_one_batch(leader, requests)]
    assert len(cut) == 1
    assert [outcome.reservation_id for outcome in outcomes] == [request.reservation_id for request in requests]
    assert (seat("hall-A-1").status, get_general_admission().taken, Reservation.objects.count()) == (1, 1, 3)
    assert_audit_clean()


@pytest.mark.parametrize("cap", [None, 6])
@pytest.mark.parametrize(
    ("payload", "round_trips_expected"), [({"ga_section": "floor", "ga_quantity": 1}, 2), ({"seats": ["hall-A-1"]}, 3)]
)
def test_a_batch_needs_two_round_trips_and_one_more_each_for_seats_and_caps(
    payload: dict[str, Any], round_trips_expected: int, cap: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round trip locks and reads, and one writes and commits. If the request names seats, another one between them
    reads which are free. If the event has a cap per buyer, another one comes first."""
    event = make_event(general_admission=4, per_buyer_max=cap)
    request = make_hold_request(event, **payload)  # It also joins the queue; those round trips are not counted.
    send_batch, sent = roundtrip.Cursor._send_batch, []

    def send_and_count(self: roundtrip.Cursor, texts: list[str]) -> Any:
        sent.append(texts)
        return send_batch(self, texts)

    monkeypatch.setattr(roundtrip.Cursor, "_send_batch", send_and_count)
    with connect() as on:
        (outcome,) = reservations.hold([request], transactions.writes_on(on))
    assert is_held(outcome)
    assert len(sent) == round_trips_expected + (cap is not None)
    assert sent[-1][-1] == "COMMIT"
    assert_audit_clean()


# --- invalid requests -------------------------------------------------------------------------------------------------

INVALID_FIELDS: dict[str, Callable[[reservations.HoldRequest], dict[str, Any]]] = {
    "a key with a NUL": lambda request: {"idempotency_key": "\x00"},
    "a buyer with a NUL": lambda request: {"buyer": "visitor:\x00"},
    "a section id beyond 64 bits": lambda request: {"quantities": {2**70: 1}},
    "a seat id beyond 64 bits": lambda request: {"seats": {2**70: "hall-A-9"}},
    "the id of an existing reservation": lambda request: {
        "reservation_id": Reservation.objects.earliest("created_at").pk
    },
    "an event id beyond 64 bits": lambda request: {"event": dataclasses.replace(request.event, id=2**70)},
}


@pytest.mark.parametrize("fault", INVALID_FIELDS)
def test_an_invalid_request_fails_alone_and_the_others_keep_their_order(fault: str) -> None:
    """A request that validation should have refused reaches a batch, after two valid requests and before three. Each
    valid request is for one ticket, and three tickets are left: the first three valid requests get them."""
    event = make_event(general_admission=3, per_buyer_max=4)
    leader = make_hold_request(event, seats=["hall-E-10"])
    reservations.hold([leader])
    requests = [
        make_hold_request(event, seats=[f"hall-A-{number}"], ga_section="floor", ga_quantity=1)
        for number in range(1, 6)
    ]
    invalid = make_hold_request(event, seats=["hall-B-1"])
    invalid = dataclasses.replace(invalid, **INVALID_FIELDS[fault](invalid))
    requests.insert(2, invalid)
    callers = hold_in_one_batch(leader, requests)
    assert isinstance(callers.pop(2).error(), psycopg.Error)
    outcomes = [caller.result() for caller in callers]
    assert [is_held(outcome) for outcome in outcomes] == [True, True, True, False, False]
    assert [problem_of(outcome).type for outcome in outcomes[3:]] == ["sold-out"] * 2
    assert (seat("hall-B-1").status, get_general_admission().taken) == (0, 3)
    assert_audit_clean()


# --- conflicts within a batch ---------------------------------------------------------------------------------------


def test_two_requests_of_one_batch_for_the_same_seat_or_the_last_ticket_are_decided_in_order() -> None:
    event = make_event(general_admission=1)
    leader = make_hold_request(event, seats=["hall-E-10"])
    reservations.hold([leader])
    payloads: list[dict[str, Any]] = [{"seats": ["hall-A-1"]}, {"ga_section": "floor", "ga_quantity": 1}] * 2
    requests = [make_hold_request(event, **payload) for payload in payloads]
    outcomes = [caller.result() for caller in hold_in_one_batch(leader, requests)]
    assert [is_held(outcome) for outcome in outcomes] == [True, True, False, False]
    assert [problem_of(outcome).type for outcome in outcomes[2:]] == ["seats-unavailable", "sold-out"]
    assert seat("hall-A-1").reservation_id == requests[0].reservation_id
    assert_audit_clean()


def test_requests_of_one_batch_with_the_same_admission_or_key_are_decided_in_order() -> None:
    """The second request of a double click gets the answer of the first, byte for byte. Another hold of the same
    admission is refused, and the refusal names the existing reservation. The same key with another body is refused."""
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
