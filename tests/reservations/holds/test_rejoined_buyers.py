"""One buyer, one live hold, one answer to a key, also for who joins again or logs in meanwhile; and what the gate says
before anybody is looked up."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import reverse

from apps.events import facade as events
from apps.kernel.http import problems
from apps.queue import facade as queue
from apps.queue.identity.caller import set_visitor_cookie
from apps.queue.models import QueueEntry
from apps.queue.room import operations
from apps.reservations import facade as reservations
from apps.reservations.gate import gate
from tests.support.api_client import Api, assert_problem
from tests.support.factories import assert_audit_clean, hold, join, join_directly, make_event, make_hold_request
from tests.support.queue.snapshots import keep_caches_fresh
from tests.support.reservations.gates import disable_expiry, open_gate

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def api() -> Api:
    return Api()


SEAT = {"seats": ["hall-A-1"]}
OTHER = {"seats": ["hall-A-2"]}


class Buyer:
    """Somebody who holds a seat, was taken out of the line by an operator, and is in it again."""

    def __init__(self, event: events.EventView) -> None:
        self.caller = queue.Caller(visitor_id=queue.new_visitor_id())
        self.event, self.first = event, join_directly(event, self.caller)
        self.answer = reservations.hold_one(event, self.first, SEAT, "a-key")
        operations.remove(self.first.id, who="ann")
        self.again = join_directly(event, self.caller)
        assert self.again.id != self.first.id


def test_the_same_key_gives_the_same_answer() -> None:
    buyer = Buyer(make_event())
    assert reservations.hold_one(buyer.event, buyer.again, SEAT, "a-key") == buyer.answer
    assert_audit_clean()


def test_a_key_is_one_s_own() -> None:
    """Another buyer may use the same, and one buyer the same at another event."""
    event, other = make_event(), make_event("other")
    caller = queue.Caller(visitor_id=queue.new_visitor_id())
    first = reservations.hold_one(event, join_directly(event, caller), SEAT, "a-key")
    assert reservations.hold_one(other, join_directly(other, caller), SEAT, "a-key") != first
    assert reservations.hold_one(event, join(event), OTHER, "a-key") != first


def test_nobody_holds_twice() -> None:
    buyer = Buyer(make_event())
    with pytest.raises(reservations.ReservationExists) as refused:
        reservations.hold_one(buyer.event, buyer.again, OTHER, "another")
    assert refused.value.extra["reservation"] in buyer.answer.body
    assert_audit_clean()


def test_what_one_place_holds_no_other_may_change() -> None:
    """Not the buyer's own new one either, and the other way round: an admission buys once."""
    buyer = Buyer(make_event())
    held = reservations.live_reservation_of(buyer.first.id)
    assert held is not None
    for entry in (buyer.again, join(buyer.event)):
        with pytest.raises(problems.NotOwner):
            reservations.hold_one(buyer.event, entry, {**OTHER, "replace": str(held.id)}, "another")
    reservations.release(held.id, who="test")
    answer = reservations.hold_one(buyer.event, buyer.again, OTHER, "a-third")
    newer = reservations.live_reservation_of(buyer.again.id)
    assert newer is not None
    assert str(newer.id) in answer.body
    with pytest.raises(problems.NotOwner):
        reservations.hold_one(buyer.event, buyer.first, {**SEAT, "replace": str(newer.id)}, "a-fourth")
    assert_audit_clean()


def test_nobody_leaves_with_something_in_hand(api: Api) -> None:
    """Neither by the API nor by the page, which leads to what is held; once it is given back one may go."""
    make_event()
    visitor, browser = queue.new_visitor_id(), Client()
    token = api.admission("concert", visitor_id=visitor)
    held = api.post("/events/concert/reservations", SEAT, token=token, key="a-key").json()["reservation_id"]
    assert_problem(api.delete("/events/concert/queue", token=token), 409, "still-holding")
    set_visitor_cookie(HttpRequest(), answer := HttpResponse(), visitor)
    browser.cookies.update(answer.cookies)
    page = browser.post(
        reverse("queue:leave", args=["concert"]), headers={"Sec-Fetch-Site": "same-origin"}, follow=True
    )
    assert page.request["PATH_INFO"] == reverse("reservations:reservation", args=[held])
    assert "You still hold tickets" in page.content.decode()
    assert api.delete(f"/reservations/{held}", token=token).status_code == 200
    assert api.delete("/events/concert/queue", token=token).json()["status"] == "left"


def test_who_logs_in_meanwhile_gets_the_same_answer_and_holds_once() -> None:
    """A guest's answer was lost on the way; the log-in made the place an account's."""
    event, user = make_event(per_buyer_max=2), User.objects.create_user("ann@example.org")
    guest = queue.Caller(visitor_id=queue.new_visitor_id())
    pair = {"seats": ["hall-A-1", "hall-A-2"]}
    first = reservations.hold_one(event, join_directly(event, guest), pair, "a-key")
    queue.merge_guest_entries(guest.visitor_id, user.pk)
    entry = queue.claim_or_get_entry(event, queue.Caller(account_id=user.pk))
    assert entry is not None
    assert entry.buyer == f"account:{user.pk}"
    assert reservations.hold_one(event, entry, pair, "a-key") == first
    held = reservations.live_reservation_of(entry.id)
    assert held is not None
    four = {"seats": [f"hall-B-{n}" for n in range(1, 5)], "replace": str(held.id)}
    with pytest.raises(reservations.PurchaseCapReached):
        reservations.hold_one(event, entry, four, "another")
    reservations.release(held.id, who="test")
    assert reservations.hold_one(event, entry, pair, "a-key") == first, "no second hold by an old key"
    assert reservations.live_reservation_of(entry.id) is None
    assert_audit_clean()


def test_a_guest_s_click_and_the_account_s_next_one_in_one_list_hold_once() -> None:
    event, user = make_event(), User.objects.create_user("ann@example.org")
    guest = queue.Caller(visitor_id=queue.new_visitor_id())
    as_guest = make_hold_request(event, join_directly(event, guest), **SEAT)
    queue.merge_guest_entries(guest.visitor_id, user.pk)
    as_account = make_hold_request(event, queue.claim_or_get_entry(event, queue.Caller(account_id=user.pk)), **OTHER)
    outcomes = reservations.hold([as_guest, as_account])
    assert [isinstance(outcome, reservations.Held) for outcome in outcomes] == [True, False]
    assert_audit_clean()


def joined_again(api: Api) -> tuple[str, str, str, str]:
    """What a buyer holds, the tokens of the place that held it and of the buyer's place now, and a stranger's."""
    make_event()
    visitor = queue.new_visitor_id()
    first = api.admission("concert", visitor_id=visitor)
    held = api.post("/events/concert/reservations", SEAT, token=first, key="a-key").json()["reservation_id"]
    operations.remove(QueueEntry.objects.get(visitor_id=visitor).pk, who="ann")
    return held, first, api.admission("concert", visitor_id=visitor), api.admission("concert")


def test_the_new_place_s_token_pays_for_what_one_has(api: Api) -> None:
    held, first, again, stranger = joined_again(api)
    details = {"email": "ann@example.org", "name": "Ann", "payment_method": "sandbox"}
    path = f"/reservations/{held}/checkout"
    assert_problem(api.post(path, details, token=stranger, key="s-key"), 403, "not-owner")
    answer = api.post(path, details, token=again, key="b-key")
    assert answer.status_code == 202, answer.content
    order = answer.json()["order_id"]
    assert_problem(api.get(f"/orders/{order}", token=stranger), 403, "not-owner")
    assert api.get(f"/orders/{order}", token=first).json() == api.get(f"/orders/{order}", token=again).json()


def test_the_new_place_s_token_opens_and_releases_what_one_has(api: Api) -> None:
    held, first, again, stranger = joined_again(api)
    assert again != first
    assert_problem(api.get(f"/reservations/{held}", token=stranger), 403, "not-owner")
    assert api.get(f"/reservations/{held}", token=again).json()["status"] == "pending_payment"
    assert api.delete(f"/reservations/{held}", token=again).json()["status"] == "canceled"
    assert_audit_clean()


def test_the_gate_s_refusal_asks_postgresql_for_nothing(
    api: Api, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    disable_expiry(monkeypatch)
    keep_caches_fresh(monkeypatch)
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
