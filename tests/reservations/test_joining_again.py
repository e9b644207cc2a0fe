"""One buyer, one live hold, one answer to a key, also for who leaves the line with something in hand and joins again;
and what the gate may say before anybody is looked up."""

from typing import Any

import pytest

from apps.events import facade as events
from apps.queue import facade as queue
from apps.queue import line
from apps.reservations import facade as reservations
from apps.reservations.gates import gate
from tests.api.calls import Api, assert_problem
from tests.factories import assert_audit_clean, hold, join, join_as, make_event
from tests.reservations.gates import open_gate
from ticketing.kernel import problems

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def api() -> Api:
    return Api()


SEAT = {"seats": ["hall-A-1"]}
OTHER = {"seats": ["hall-A-2"]}


class Buyer:
    """Somebody who holds a seat, has left the line, and is in it again."""

    def __init__(self, event: events.EventView) -> None:
        self.caller = queue.Caller(visitor_id=queue.new_visitor_id())
        self.event, self.first = event, join_as(event, self.caller)
        self.answer = reservations.hold_one(event, self.first, SEAT, "a-key")
        line.leave(event, self.caller)
        self.again = join_as(event, self.caller)
        assert self.again.id != self.first.id


def test_the_same_key_gives_the_same_answer() -> None:
    buyer = Buyer(make_event())
    assert reservations.hold_one(buyer.event, buyer.again, SEAT, "a-key") == buyer.answer
    assert_audit_clean()


def test_a_key_is_one_s_own() -> None:
    """Another buyer may use the same, and one buyer the same at another event."""
    event, other = make_event(), make_event("other")
    caller = queue.Caller(visitor_id=queue.new_visitor_id())
    first = reservations.hold_one(event, join_as(event, caller), SEAT, "a-key")
    assert reservations.hold_one(other, join_as(other, caller), SEAT, "a-key") != first
    assert reservations.hold_one(event, join(event), OTHER, "a-key") != first


def test_nobody_holds_twice() -> None:
    buyer = Buyer(make_event())
    with pytest.raises(reservations.ReservationExists) as refused:
        reservations.hold_one(buyer.event, buyer.again, OTHER, "another")
    assert refused.value.extra["reservation"] in buyer.answer.body
    assert_audit_clean()


def test_what_one_has_may_be_changed_from_the_new_place() -> None:
    buyer = Buyer(make_event())
    held = reservations.live_reservation_of(buyer.first.id)
    assert held is not None
    answer = reservations.hold_one(buyer.event, buyer.again, {**OTHER, "replace": str(held.id)}, "another")
    assert "hall-A-2" in answer.body
    assert reservations.get_reservation(held.id).status == "canceled"
    assert_audit_clean()


def test_nobody_else_s_may_be_changed() -> None:
    event = make_event()
    buyer = Buyer(event)
    held = reservations.live_reservation_of(buyer.first.id)
    assert held is not None
    with pytest.raises(problems.NotOwner):
        reservations.hold_one(event, join(event), {**OTHER, "replace": str(held.id)}, "another")


def test_the_new_place_s_token_pays_for_what_one_has(api: Api) -> None:
    make_event()
    visitor = queue.new_visitor_id()
    first = api.admission("concert", visitor_id=visitor)
    held = api.post("/events/concert/reservations", SEAT, token=first, key="a-key").json()["reservation_id"]
    api.delete("/events/concert/queue", token=first)
    again, stranger = api.admission("concert", visitor_id=visitor), api.admission("concert")
    details = {"email": "ann@example.org", "name": "Ann", "payment_method": "sandbox"}
    path = f"/reservations/{held}/checkout"
    assert_problem(api.post(path, details, token=stranger, key="s-key"), 403, "not-owner")
    answer = api.post(path, details, token=again, key="b-key")
    assert answer.status_code == 202, answer.content
    order = answer.json()["order_id"]
    assert_problem(api.get(f"/orders/{order}", token=stranger), 403, "not-owner")
    assert api.get(f"/orders/{order}", token=first).json() == api.get(f"/orders/{order}", token=again).json()


def test_the_new_place_s_token_opens_and_releases_what_one_has(api: Api) -> None:
    make_event()
    visitor = queue.new_visitor_id()
    first = api.admission("concert", visitor_id=visitor)
    held = api.post("/events/concert/reservations", SEAT, token=first, key="a-key").json()["reservation_id"]
    api.delete("/events/concert/queue", token=first)
    again, stranger = api.admission("concert", visitor_id=visitor), api.admission("concert")
    assert again != first
    assert_problem(api.get(f"/reservations/{held}", token=stranger), 403, "not-owner")
    assert api.get(f"/reservations/{held}", token=again).json()["status"] == "pending_payment"
    assert api.delete(f"/reservations/{held}", token=again).json()["status"] == "canceled"
    assert_audit_clean()


def test_the_gate_s_refusal_asks_postgresql_for_nothing(api: Api, django_assert_num_queries: Any) -> None:
    event = make_event(rows=0, general_admission=1)
    place = {"ga_section": "floor", "ga_quantity": 1}
    holder, late, path = api.admission("concert"), api.admission("concert"), "/events/concert/reservations"
    assert api.post(path, place, token=holder, key="a-key").status_code == 201
    open_gate(event)
    assert_problem(api.post(path, place, token=late, key="b-key"), 409, "sold-out")
    refused = gate.asked.labels("refused")._value.get()
    with django_assert_num_queries(0):
        assert_problem(api.post(path, place, token=late, key="c-key"), 409, "sold-out")
    assert gate.asked.labels("refused")._value.get() == refused + 1
    assert api.post(path, place, token=holder, key="a-key").status_code == 201, "who holds is never refused"


def test_what_is_wrong_is_said_before_what_is_sold_out(api: Api) -> None:
    """The gate is asked early, and knows nothing of these."""
    event = make_event(rows=0, general_admission=1)
    make_event("other")
    place, path = {"ga_section": "floor", "ga_quantity": 1}, "/events/concert/reservations"
    hold(event, **place)
    open_gate(event)
    token = api.admission("concert")
    assert_problem(api.post(path, place, token=token, key="b-key"), 409, "sold-out")
    assert_problem(api.post(path, place, token=token), 400, "idempotency-key-required")
    assert_problem(api.post(path, {**place, "color": "red"}, token=token, key="c"), 422, "invalid")
    assert_problem(api.post(path, b"{", token=token, key="d"), 400, "malformed")
    assert_problem(api.post(path, place, token=api.admission("other"), key="e"), 403, "token-wrong-event")
    assert_problem(api.post(path, place, key="f"), 401, "token-missing")
