"""Sections whose holds need an access code: admission, refusals, and what counts as a use."""

import json
import uuid
from datetime import timedelta
from typing import Any

import pytest

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.fastpath import cache
from apps.kernel.http import idempotency, problems
from apps.queue import facade as queue
from apps.reservations import facade as reservations
from apps.reservations.gate import gate, hold_demand
from apps.reservations.models import AccessCode, InventoryChange, Reservation
from apps.reservations.staff.access_restrictions import guard
from tests.support.factories import (
    assert_audit_clean,
    audit_breaches,
    backdate_deadline,
    hold,
    join,
    make_access_code,
    make_event,
    make_hold_request,
)
from tests.support.races import statements
from tests.support.reservations.buyers import begin_payment, cancel, confirm, outcome_types, problem_of, submit_hold
from tests.support.reservations.gates import ask_gate, disable_expiry, open_gate

pytestmark = pytest.mark.django_db(transaction=True)

BOX = {"seats": ["hall-A-1"]}
FLOOR = {"ga_section": "floor", "ga_quantity": 2}
BEST = {"best_available": {"section": "hall", "quantity": 2}}
CODE = {"access_code": "FANCLUB"}
STAFF: dict[str, Any] = {"who": "staff:ann", "why": "test"}


@pytest.fixture
def show() -> events.EventView:
    """The hall needs a code; the floor does not."""
    return make_event(general_admission=50, needs_access=("hall",))


@pytest.fixture
def presale() -> events.EventView:
    return make_event(general_admission=50, needs_access=("floor", "hall"))


def submit(request: reservations.HoldRequest) -> str:
    """Submit the hold; return the problem's type if it is refused, otherwise an empty string."""
    outcome = submit_hold(request)
    return outcome.problem.type if isinstance(outcome, reservations.Refused) else ""


def try_to_hold(event: events.EventView, entry: queue.EntryView | None = None, **payload: Any) -> str:
    return submit(make_hold_request(event, entry, **payload))


def reservation(view: reservations.ReservationView) -> Reservation:
    return Reservation.objects.get(pk=view.id)


# --- admission --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [BOX, BEST, BOX | FLOOR])
def test_without_a_code_no_hold_succeeds_where_one_is_needed(show, wanted: dict[str, Any]) -> None:
    make_access_code(show)
    problem = problem_of(submit_hold(make_hold_request(show, **wanted)))
    assert (problem.type, problem.status, problem.extra) == ("access-code-required", 403, {"sections": ["hall"]})
    assert not Reservation.objects.exists()


@pytest.mark.parametrize("wanted", [BOX, BEST, BOX | FLOOR])
def test_a_code_opens_its_section_and_the_hold_names_it(show, wanted: dict[str, Any]) -> None:
    code = make_access_code(show)
    held = hold(show, **wanted, **CODE)
    assert reservation(held).access_code_id == code.pk
    assert_audit_clean()


def test_general_admission_may_need_a_code_too(presale) -> None:
    make_access_code(presale, "floor")
    assert try_to_hold(presale, **FLOOR) == "access-code-required"
    assert try_to_hold(presale, **FLOOR, **CODE) == ""
    assert_audit_clean()


@pytest.mark.parametrize("typed", ["fanclub", " Fan Club ", "ＦＡＮＣＬＵＢ"])
def test_a_code_may_be_typed_in_any_spelling(show, typed: str) -> None:
    make_access_code(show)
    assert try_to_hold(show, **BOX, access_code=typed) == ""


@pytest.mark.parametrize("empty", ["", " ", None])
def test_an_empty_code_counts_as_none(show, empty: str | None) -> None:
    assert try_to_hold(show, **BOX, access_code=empty) == "access-code-required"


@pytest.mark.parametrize("unusable", [7, ["FANCLUB"], "X" * 41, "A\x00B", "\ud800", "A\x07B", True])
def test_an_unusable_code_is_refused_by_its_field(show, unusable: Any) -> None:
    with pytest.raises(problems.Invalid) as refused:
        make_hold_request(show, **BOX, access_code=unusable)
    assert list(refused.value.extra["errors"]) == ["access_code"]
    assert hold_demand.parse_demand(show, {**BOX, "access_code": unusable}) is None


def test_a_code_that_is_not_needed_is_neither_checked_nor_used(show) -> None:
    """So a link with a code remains usable after the section is opened to every visitor."""
    code = make_access_code(show, uses_max=1)
    for typed in ("FANCLUB", "NONSENSE"):
        assert reservation(hold(show, **FLOOR, access_code=typed)).access_code_id is None
    guard(show, "hall", needs_access=False, **STAFF)
    assert reservation(hold(show, **BOX, access_code="NONSENSE")).access_code_id is None
    assert code.reservations.count() == 0
    assert_audit_clean()


def test_a_wrong_code_reveals_nothing_about_other_codes(presale) -> None:
    """Unknown, disabled, another event's, or for another section: one response, byte for byte."""
    other = make_event("other", needs_access=("hall",))
    make_access_code(other, code="OTHERS")
    make_access_code(presale, code="WITHDRAWN", is_active=False)
    make_access_code(presale, "floor", code="FLOORS")
    answers = {
        str(problem_of(submit_hold(make_hold_request(presale, **BOX, access_code=typed))).document())
        for typed in ("UNKNOWN", "OTHERS", "WITHDRAWN", "FLOORS")
    }
    assert len(answers) == 1
    assert "access-code-wrong" in answers.pop()


def test_a_code_for_one_section_does_not_open_two(presale) -> None:
    make_access_code(presale, "floor")
    assert try_to_hold(presale, **BOX, **FLOOR, **CODE) == "access-code-wrong"
    make_access_code(presale, "floor", "hall", code="BOTH")
    assert try_to_hold(presale, **BOX, **FLOOR, access_code="BOTH") == ""


@pytest.mark.parametrize(("times", "word"), [({"valid_from": 1}, "yet"), ({"valid_until": -1}, "no longer")])
def test_a_code_outside_its_period_opens_nothing(show, times: dict[str, int], word: str) -> None:
    make_access_code(show, **{name: clock.now() + timedelta(hours=hours) for name, hours in times.items()})
    problem = problem_of(submit_hold(make_hold_request(show, **BOX, **CODE)))
    assert (problem.type, problem.status) == ("access-code-not-valid", 409)
    assert word in problem.detail


def test_the_code_is_in_no_response_but_is_part_of_the_request(show) -> None:
    """The key's response is the same for the same code, and another code is another request."""
    make_access_code(show)
    entry = join(show)
    first = submit_hold(make_hold_request(show, entry, key="one", **BOX, **CODE))
    assert isinstance(first, reservations.Held)
    assert "FANCLUB" not in first.answer.body
    assert "access" not in first.answer.body
    assert submit_hold(make_hold_request(show, entry, key="one", **BOX, **CODE)) == first
    assert submit(make_hold_request(show, entry, key="one", **BOX, access_code="OTHER")) == "idempotency-mismatch"
    assert submit(make_hold_request(show, entry, key="one", **BOX)) == "idempotency-mismatch"


def test_a_lost_response_is_repeated_though_a_code_is_needed_by_now(show) -> None:
    guard(show, "hall", needs_access=False, **STAFF)
    entry = join(show)
    first = submit_hold(make_hold_request(show, entry, key="one", **BOX))
    guard(show, "hall", needs_access=True, **STAFF)
    assert submit_hold(make_hold_request(show, entry, key="one", **BOX)) == first


# --- uses -------------------------------------------------------------------------------------------------------------


def test_uses_are_counted_and_returned_however_a_reservation_ends(show) -> None:
    code = make_access_code(show, uses_max=1)

    def is_used_up() -> bool:
        return try_to_hold(show, seats=["hall-B-1"], **CODE) == "access-code-used-up"

    released = hold(show, **BOX, **CODE)
    assert is_used_up()
    reservations.release(released.id, who="buyer")
    swept = hold(show, **BOX, **CODE)
    assert is_used_up()
    backdate_deadline(swept.id)
    assert reservations.sweep(event_id=show.id).reservations == 1
    bought = hold(show, **BOX, **CODE)
    begin_payment(bought.id)
    assert is_used_up()
    confirm(bought.id, clock.now())
    assert is_used_up()
    cancel(bought.id)
    assert try_to_hold(show, **BOX, **CODE) == ""
    assert code.reservations.count() == 4
    assert_audit_clean()


def test_an_expired_use_is_swept_for_the_next_buyer(show) -> None:
    make_access_code(show, uses_max=1)
    late = hold(show, seats=["hall-B-1"], **CODE)
    backdate_deadline(late.id)
    assert try_to_hold(show, **BOX, **CODE) == ""
    assert reservation(late).status == "expired"
    assert_audit_clean()


def test_one_buyer_uses_a_code_at_most_as_often_as_allowed(show) -> None:
    make_access_code(show, uses_per_buyer_max=1)
    bought = hold(show, join(show, visitor_id="visitor-one-0001"), **BOX, **CODE)
    begin_payment(bought.id)
    confirm(bought.id, clock.now())
    again = join(show, visitor_id="visitor-one-0001")
    problem = problem_of(submit_hold(make_hold_request(show, again, seats=["hall-B-1"], **CODE)))
    assert (problem.type, problem.extra) == ("access-code-buyer-limit", {"cap": 1})
    assert try_to_hold(show, seats=["hall-B-1"], **CODE) == ""
    assert_audit_clean(without_money=True)


def test_one_batch_takes_no_more_uses_than_there_are(show) -> None:
    make_access_code(show, uses_max=2)
    requests = [make_hold_request(show, seats=[f"hall-A-{number}"], **CODE) for number in range(1, 6)]
    outcomes = reservations.hold(requests)
    words = ["" if isinstance(one, reservations.Held) else one.problem.type for one in outcomes]
    assert words == ["", "", *["access-code-used-up"] * 3]
    assert_audit_clean()


def test_replacing_a_hold_keeps_the_code_and_its_use(show) -> None:
    code = make_access_code(show, uses_max=1, uses_per_buyer_max=1)
    entry = join(show)
    first = hold(show, entry, **BOX, **CODE)
    second = hold(show, entry, **BEST, replace=str(first.id))
    assert reservation(second).access_code_id == code.pk
    typed = hold(show, entry, seats=["hall-C-1"], replace=str(second.id), **CODE)
    assert reservation(typed).access_code_id == code.pk
    assert try_to_hold(show, **BOX, **CODE) == "access-code-used-up"
    assert_audit_clean()


def test_replacing_by_a_hold_that_needs_no_code_returns_the_use(show) -> None:
    make_access_code(show, uses_max=1)
    entry = join(show)
    first = hold(show, entry, **BOX, **CODE)
    replacing = make_hold_request(show, entry, **FLOOR, replace=str(first.id))
    assert outcome_types(reservations.hold([replacing, make_hold_request(show, **BEST, **CODE)])) == ["held", "held"]
    assert Reservation.objects.filter(access_code__isnull=False, status="pending_payment").count() == 1
    assert_audit_clean()


def test_a_replacement_refused_for_its_code_keeps_the_old_hold(show) -> None:
    entry = join(show)
    first = hold(show, entry, **FLOOR)
    assert try_to_hold(show, entry, **BOX, replace=str(first.id)) == "access-code-required"
    assert try_to_hold(show, entry, **BOX, replace=str(first.id), access_code="NONSENSE") == "access-code-wrong"
    assert reservation(first).status == "pending_payment"


def test_a_late_payment_confirms_only_within_the_codes_limits(show) -> None:
    """Any buyer could have its use once it had expired."""
    make_access_code(show, uses_max=1)
    late = hold(show, **BOX, **CODE)
    begin_payment(late.id)
    occurred_at = clock.now()
    backdate_deadline(late.id)
    reservations.sweep(event_id=show.id)
    other = hold(show, seats=["hall-B-1"], **CODE)
    with pytest.raises(reservations.ReservationExpired, match="access code"):
        confirm(late.id, occurred_at - timedelta(seconds=2))
    reservations.release(other.id, who="buyer")
    confirm(late.id, occurred_at - timedelta(seconds=2))
    assert_audit_clean(without_money=True)


# --- staff -----------------------------------------------------------------------------------------------------------


def test_a_hold_from_before_a_code_was_needed_stays_valid(show) -> None:
    guard(show, "hall", needs_access=False, **STAFF)
    held = hold(show, **BOX)
    assert guard(show, "hall", needs_access=True, **STAFF)
    assert not guard(show, "hall", needs_access=True, **STAFF)
    begin_payment(held.id)
    confirm(held.id, clock.now())
    assert try_to_hold(show, seats=["hall-A-2"]) == "access-code-required"
    assert_audit_clean(without_money=True)
    kinds = list(InventoryChange.objects.order_by("id").values_list("kind", flat=True))
    assert kinds == ["opened", "guarded"]


def test_an_unknown_section_cannot_need_a_code(show) -> None:
    with pytest.raises(problems.Invalid):
        guard(show, "cellar", needs_access=True, **STAFF)


# --- the auditor -----------------------------------------------------------------------------------------------------


def test_the_auditor_finds_a_code_used_more_often_than_allowed(show) -> None:
    code = make_access_code(show)
    for number in (1, 2):
        hold(show, seats=[f"hall-A-{number}"], **CODE)
    AccessCode.objects.filter(pk=code.pk).update(uses_max=1)
    assert audit_breaches() == ["I5: concert: access code FANCLUB: used by 2 reservations of at most 1"]


def test_the_auditor_finds_a_buyer_with_more_uses_than_allowed(show) -> None:
    code = make_access_code(show)
    held = [hold(show, seats=[f"hall-A-{number}"], **CODE) for number in (1, 2)]
    Reservation.objects.update(buyer=held[0].buyer)
    AccessCode.objects.filter(pk=code.pk).update(uses_per_buyer_max=1)
    (breach,) = audit_breaches()
    assert breach.endswith(f"access code FANCLUB of {held[0].buyer}: used by 2 reservations of at most 1")


def test_the_auditor_finds_a_hold_without_a_code(show) -> None:
    make_access_code(show)
    held = hold(show, **BOX, **CODE)
    Reservation.objects.update(access_code=None, created_at=clock.now() + timedelta(minutes=5))
    assert audit_breaches() == [
        f"I5: concert: reservation {held.id} is pending_payment in hall, which requires an access code, without one"
    ]


def test_the_auditor_finds_a_code_of_another_event(show) -> None:
    held = hold(show, **FLOOR)
    code = make_access_code(make_event("other"))
    Reservation.objects.update(access_code=code)
    (breach,) = audit_breaches()
    assert breach.startswith(f"I5: concert: reservation {held.id} is pending_payment by access code {code.pk}")


# --- cost for other holds ---------------------------------------------------------------------------------------------

PLAIN = [
    {"seats": ["hall-A-1"]},
    {"ga_section": "floor", "ga_quantity": 1},
    {"best_available": {"section": "hall", "quantity": 2}},
]


@pytest.mark.parametrize("wanted", PLAIN)
def test_a_hold_of_an_event_without_codes_makes_no_more_queries(wanted: dict[str, Any]) -> None:
    event = make_event(general_admission=50)
    make_access_code(event)
    request = make_hold_request(event, **wanted, **CODE)
    with statements() as seen:
        assert submit(request) == ""
    assert not [name for name in seen if "access" in name or "code" in name or "section" in name]


def test_a_hold_in_another_section_locks_no_code(show) -> None:
    for wanted in ({}, FLOOR):
        request = make_hold_request(show, **(wanted or {"ga_section": "floor", "ga_quantity": 1}))
        with statements() as seen:
            assert submit(request) == ""
        assert not [name for name in seen if "access" in name or "code" in name]


def test_a_hold_refused_for_its_code_locks_no_seat(show) -> None:
    request = make_hold_request(show, **BOX)
    with statements() as seen:
        assert submit(request) == "access-code-required"
    assert "lock_seats_skipping" not in seen


def test_codes_are_locked_between_caps_and_seats() -> None:
    event = make_event(per_buyer_max=4, needs_access=("hall",))
    make_access_code(event, uses_max=1)
    request = make_hold_request(event, **BOX, **CODE)
    with statements() as seen:
        assert submit(request) == ""
    order = ["lock_caps_skipping", "lock_access_codes", "access_codes", "lock_seats_skipping"]
    assert [name for name in seen if name in order] == order


# --- the gate --------------------------------------------------------------------------------------------------------


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> events.EventView:
    """Two tickets that need a code; the gate is open."""
    disable_expiry(monkeypatch)
    event = make_event(rows=0, general_admission=2, needs_access=("floor",))
    open_gate(event)
    return event


def test_the_gate_requires_a_code_before_it_reports_sold_out(gated) -> None:
    make_access_code(gated)
    problem = ask_gate(gated, **FLOOR)
    assert problem is not None
    assert (problem.type, problem.extra) == ("access-code-required", {"sections": ["floor"]})
    assert ask_gate(gated, **FLOOR, **CODE) is None
    hold(gated, **FLOOR, **CODE)
    assert getattr(ask_gate(gated, **FLOOR), "type", "") == "access-code-required"
    assert getattr(ask_gate(gated, **FLOOR, **CODE), "type", "") == "sold-out"


def test_the_gate_requires_no_code_of_a_buyer_who_held_before_one_was_needed(gated) -> None:
    guard(gated, "floor", needs_access=False, **STAFF)
    cache.clear_all()
    entry = join(gated)
    key = uuid.uuid4().hex
    body = reservations.hold_one(gated, entry, dict(FLOOR), key).body
    guard(gated, "floor", needs_access=True, **STAFF)
    cache.clear_all()
    assert reservations.hold_one(gated, entry, dict(FLOOR), key).body == body


def test_the_gate_requires_the_code_of_a_named_seat_whose_section_it_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disable_expiry(monkeypatch)
    event = make_event(rows=1, seats_per_row=1, needs_access=("hall",))
    make_access_code(event)
    open_gate(event)
    assert ask_gate(event, **BOX) is None, "its section is not known yet"
    hold(event, **BOX, **CODE)
    assert getattr(ask_gate(event, **BOX), "type", "") == "access-code-required"
    assert getattr(ask_gate(event, **BOX, **CODE), "type", "") == "seats-unavailable"


def test_the_gate_refuses_many_requests_at_once(gated) -> None:
    questions = [gate.Question(gated, join(gated).id, payload, "key") for payload in (FLOOR, FLOOR | CODE, FLOOR)]
    types = [problem.type if problem is not None else "" for problem in gate.refusals(questions)]
    assert types == ["access-code-required", "", "access-code-required"]


def test_the_database_decides_as_the_gate_does(gated) -> None:
    entry = join(gated)
    problem = problem_of(submit_hold(make_hold_request(gated, entry, **FLOOR)))
    from_gate = ask_gate(gated, **FLOOR)
    assert from_gate is not None
    assert json.loads(idempotency.canonical(problem.document())) == from_gate.document()
