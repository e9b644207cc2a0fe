"""One buyer, one live hold, one response to a key, also for a buyer who joins again or logs in meanwhile; and the
gate's refusals before any buyer is read."""

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.events import facade as events
from apps.kernel.http import problems
from apps.queue import facade as queue
from apps.queue.identity.caller import set_visitor_cookie, visitor_id_of_secret
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
    """A buyer who holds a seat, was removed from the queue by an operator, and has joined again."""

    def __init__(self, event: events.EventView) -> None:
        self.caller = queue.Caller(visitor_id=queue.new_visitor_secret())
        self.event, self.first = event, join_directly(event, self.caller)
        self.answer = reservations.hold_one(event, self.first, SEAT, "a-key")
        operations.remove(self.first.id, who="ann")
        self.again = join_directly(event, self.caller)
        assert self.again.id != self.first.id


def test_the_same_key_gives_the_same_response() -> None:
    buyer = Buyer(make_event())
    assert reservations.hold_one(buyer.event, buyer.again, SEAT, "a-key") == buyer.answer
    assert_audit_clean()


def test_a_key_belongs_to_its_buyer() -> None:
    """Another buyer may use the same key, and one buyer the same key at another event."""
    event, other = make_event(), make_event("other")
    caller = queue.Caller(visitor_id=queue.new_visitor_secret())
    first = reservations.hold_one(event, join_directly(event, caller), SEAT, "a-key")
    assert reservations.hold_one(other, join_directly(other, caller), SEAT, "a-key") != first
    assert reservations.hold_one(event, join(event), OTHER, "a-key") != first


def test_no_buyer_holds_twice() -> None:
    buyer = Buyer(make_event())
    with pytest.raises(reservations.ReservationExists) as refused:
        reservations.hold_one(buyer.event, buyer.again, OTHER, "another")
    assert refused.value.extra["reservation"] in buyer.answer.body
    assert_audit_clean()


def test_a_hold_of_one_entry_cannot_be_replaced_by_another() -> None:
    """Not even between two entries of one buyer, in either direction: an admission buys once."""
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


def test_no_buyer_leaves_while_holding(api: Api) -> None:
    """Neither by the API nor by the page, which leads to the hold; once it is released the buyer may leave."""
    make_event()
    visitor, browser = queue.new_visitor_secret(), Client()
    token = api.admission("concert", visitor_id=visitor)
    held = api.post("/events/concert/reservations", SEAT, token=token, key="a-key").json()["reservation_id"]
    assert_problem(api.delete("/events/concert/queue", token=token), 409, "still-holding")
    set_visitor_cookie(HttpRequest(), answer := HttpResponse(), visitor)
    browser.cookies.update(answer.cookies)
    page = browser.post(
        reverse("queue:leave", args=["concert"]), headers={"Sec-Fetch-Site": "same-origin"}, follow=True
    )
    assert page.request["PATH_INFO"] == reverse("reservations:reservation", args=[held])
    assert "You still have reserved tickets" in page.content.decode()
    assert api.delete(f"/reservations/{held}", token=token).status_code == 200
    assert api.delete("/events/concert/queue", token=token).json()["status"] == "left"


def test_a_buyer_who_logs_in_meanwhile_gets_the_same_response_and_holds_once() -> None:
    """A guest's response was lost; the log-in moved the entry to an account."""
    event, user = make_event(per_buyer_max=2), User.objects.create_user("ann@example.org")
    guest = queue.Caller(visitor_id=queue.new_visitor_secret())
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


def test_a_guests_request_and_the_accounts_next_one_in_one_batch_hold_once() -> None:
    event, user = make_event(), User.objects.create_user("ann@example.org")
    guest = queue.Caller(visitor_id=queue.new_visitor_secret())
    as_guest = make_hold_request(event, join_directly(event, guest), **SEAT)
    queue.merge_guest_entries(guest.visitor_id, user.pk)
    as_account = make_hold_request(event, queue.claim_or_get_entry(event, queue.Caller(account_id=user.pk)), **OTHER)
    outcomes = reservations.hold([as_guest, as_account])
    assert [isinstance(outcome, reservations.Held) for outcome in outcomes] == [True, False]
    assert_audit_clean()


def joined_again(api: Api) -> tuple[str, str, str, str]:
    """Return a buyer's reservation, the tokens of the entry that made it and of the buyer's current entry, and another
    buyer's token."""
    make_event()
    visitor = queue.new_visitor_secret()
    first = api.admission("concert", visitor_id=visitor)
    held = api.post("/events/concert/reservations", SEAT, token=first, key="a-key").json()["reservation_id"]
    operations.remove(QueueEntry.objects.get(visitor_id=visitor_id_of_secret(visitor)).pk, who="ann")
    return held, first, api.admission("concert", visitor_id=visitor), api.admission("concert")


def test_the_new_entrys_token_pays_for_the_hold(api: Api) -> None:
    held, first, again, stranger = joined_again(api)
    details = {"email": "ann@example.org", "name": "Ann", "payment_method": "sandbox"}
    path = f"/reservations/{held}/checkout"
    assert_problem(api.post(path, details, token=stranger, key="s-key"), 403, "not-owner")
    answer = api.post(path, details, token=again, key="b-key")
    assert answer.status_code == 202, answer.content
    order = answer.json()["order_id"]
    assert_problem(api.get(f"/orders/{order}", token=stranger), 403, "not-owner")
    assert api.get(f"/orders/{order}", token=first).json() == api.get(f"/orders/{order}", token=again).json()


def test_the_new_entrys_token_reads_and_releases_the_hold(api: Api) -> None:
    held, first, again, stranger = joined_again(api)
    assert again != first
    assert_problem(api.get(f"/reservations/{held}", token=stranger), 403, "not-owner")
    assert api.get(f"/reservations/{held}", token=again).json()["status"] == "pending_payment"
    assert api.delete(f"/reservations/{held}", token=again).json()["status"] == "canceled"
    assert_audit_clean()


def test_the_gates_refusal_makes_no_query(
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
    assert api.post(path, place, token=holder, key="a-key").status_code == 201, "a holder is never refused"


def test_errors_of_the_request_are_reported_before_sold_out(api: Api) -> None:
    """The gate decides early, and knows nothing of these errors."""
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
