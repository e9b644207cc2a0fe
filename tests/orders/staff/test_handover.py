"""An order that staff have given to another person: the account and the browser that placed it lose it."""

import json
import re
from datetime import timedelta

import pytest
from allauth.account.models import EmailAddress
from django.core import mail
from django.test import Client, RequestFactory

from apps.accounts.models import User
from apps.events.models import Event
from apps.kernel import clock
from apps.kernel.http import problems
from apps.orders import access
from apps.orders.cancellation import order_cancellation
from apps.orders.facade import attach_orders
from apps.orders.models import Order, ReturnPolicy
from apps.orders.privacy import retention
from apps.orders.privacy.account_data import AccountData
from apps.orders.selectors import get_order
from apps.orders.staff.buyer_correction import correct_buyer
from apps.queue import facade as queue
from apps.queue.entries import vip_links
from apps.queue.models import QueueEntry, RoomAct, VipLink
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation
from tests.orders.privacy.test_person import person
from tests.support.api_client import Api, assert_problem
from tests.support.factories import assert_audit_clean, hold, join, make_event
from tests.support.orders.sale import EMAIL, SAME_ORIGIN, buy, deliver_outbox, joined_browser, place_order
from tests.support.orders.transfers import accepted, offer, sold_order

pytestmark = pytest.mark.django_db(transaction=True)
NEW = "bob@example.org"
READS = ("", "tickets.pdf", "event.ics")


def hand_over(order: Order, email: str = NEW) -> str:
    done = correct_buyer(order.pk, email=email, name="Bob", why="sold to Bob", who="staff:1", is_handed_over=True)
    deliver_outbox()
    order.refresh_from_db()
    return done


def bought_in(browser: Client, slug: str) -> Order:
    """The browser holds a seat and buys it."""
    held = browser.post(
        f"/api/events/{slug}/reservations",
        {"seats": ["hall-A-1"]},
        content_type="application/json",
        headers=SAME_ORIGIN | {"idempotency-key": "one"},
    )
    assert held.status_code == 201, held.content
    reservation = held.json()["reservation_id"]
    form = {"email": EMAIL, "name": "Ann", "payment_method": "sandbox", "idempotency_key": "one"}
    done = browser.post(f"/reservations/{reservation}/checkout", form, headers=SAME_ORIGIN)
    assert done.status_code == 303, done.content
    deliver_outbox()
    return Order.objects.get(reservation=reservation)


def statuses(browser: Client, order: Order) -> set[int]:
    return {browser.get(f"/orders/{order.pk}/{name}").status_code for name in READS}


@pytest.mark.parametrize("has_account", [False, True], ids=["guest", "account"])
def test_the_browser_and_the_account_that_placed_it_lose_it(has_account: bool) -> None:
    make_event("concert")
    browser = joined_browser("concert")
    order = bought_in(browser, "concert")
    if has_account:
        user = User.objects.create_user("ann", EMAIL)
        assert attach_orders(order.buyer.removeprefix("visitor:"), user.pk) == 1
        browser.force_login(user)
    own_link = access.order_link(order.pk)
    assert statuses(browser, order) == {200}
    assert hand_over(order) == "name and email address and owner"
    assert statuses(browser, order) == {403}
    assert str(order.pk) not in browser.get("/tickets/").content.decode()
    for path in ("return/", "cancel/", "reissue/"):
        assert browser.post(f"/orders/{order.pk}/{path}", headers=SAME_ORIGIN).status_code in (403, 404)
    assert browser.get(f"/reservations/{order.reservation_id}/checkout").status_code == 403
    assert Client().get(own_link).status_code == 401
    # The new owner has the mailed link.
    newcomer = Client()
    newcomer.get(access.order_link(order.pk))
    assert statuses(newcomer, order) == {200}
    assert mail.outbox[-1].to == [NEW]
    assert_audit_clean()


def test_a_later_log_in_does_not_take_it_back() -> None:
    make_event("concert")
    browser = joined_browser("concert")
    order = bought_in(browser, "concert")
    hand_over(order)
    user = User.objects.create_user("ann", EMAIL)
    assert attach_orders(order.buyer.removeprefix("visitor:"), user.pk) == 0
    order.refresh_from_db()
    assert order.account_id is None


@pytest.mark.parametrize("through_fast_path", [False, True], ids=["site", "fast path"])
def test_the_token_that_placed_it_reads_and_returns_nothing(through_fast_path: bool) -> None:
    api = Api(through_fast_path=through_fast_path)
    event = make_event("concert", general_admission=5)
    ReturnPolicy.objects.create(event_id=event.id, until_hours=24)
    token = api.admission("concert")
    held = api.post("/events/concert/reservations", {"seats": ["hall-A-1"]}, token=token, key="h")
    path = f"/reservations/{held.json()['reservation_id']}/checkout"
    body = {"email": EMAIL, "name": "Ada", "payment_method": "sandbox"}
    order = Order.objects.get(pk=api.post(path, body, token=token, key="c").json()["order_id"])
    deliver_outbox()
    assert api.get(f"/orders/{order.pk}", token=token).status_code == 200
    hand_over(order)
    assert_problem(api.get(f"/orders/{order.pk}", token=token), 403, "not-owner")
    assert api.get("/orders", token=token).json() == {"orders": []}
    body_of_return = {"tickets": [order.tickets.get(voided_at=None).code]}
    assert_problem(api.post(f"/orders/{order.pk}/refunds", body_of_return, token=token, key="r"), 403, "not-owner")
    assert_problem(api.post(path, body, token=token, key="d"), 403, "not-owner")
    with pytest.raises(problems.NotOwner):
        access.require_order_access(queue.Caller(entry_id=order.entry_id), RequestFactory().get("/"), order.pk)
    assert_audit_clean()


def test_its_export_is_the_new_owners_and_queue_entry_and_reservation_stay_the_former_ones() -> None:
    user = User.objects.create_user("ann", EMAIL)
    event = make_event("concert")
    entry = join(event, account_id=user.pk)
    order = buy(hold(event, seats=["hall-A-1"], entry=entry))
    Order.objects.filter(pk=order.pk).update(account=user.pk)
    hand_over(order)
    former, new = (json.loads(person(email, "export")) for email in (EMAIL, NEW))
    assert former["orders"] == []
    assert [one["number"] for one in new["orders"]] == [order.number]
    assert len(former["queue_entries"]) == len(former["reservations"]) == 1
    assert new["queue_entries"] == new["reservations"] == []


def test_the_former_owner_is_erased_and_the_order_stays_the_new_owners() -> None:
    """Also with another order of the former owner, which counts as the same buyer's in the figures of the sale."""
    user = User.objects.create_user("ann", EMAIL)
    event = make_event("concert", per_buyer_max=8)
    link = vip_links.make_link(event.id, note="for Ann", who="boss")
    token = vip_links.address_of(link, event.slug).rstrip("/").rpartition("/")[2]
    vip_links.redeem_link(event, token, queue.Caller(account_id=user.pk))
    reservations.release(hold(event, seats=["hall-A-3"], entry=join(event, account_id=user.pk)).id, "visitor")
    order, refunded = (
        buy(hold(event, seats=[seat], entry=join(event, account_id=user.pk))) for seat in ("hall-A-1", "hall-A-2")
    )
    Order.objects.update(account=user.pk)
    order_cancellation.refund_order(refunded.pk, "staff:1")
    hand_over(order)
    assert person(EMAIL, "erase", "--yes").startswith("erased")
    assert VipLink.objects.get().note == ""
    assert not RoomAct.objects.filter(what=RoomAct.What.LET_THROUGH).exclude(why="").exists()
    assert not QueueEntry.objects.filter(account=user.pk).exists()
    order.refresh_from_db()
    assert (order.email, order.name) == (NEW, "Bob")
    assert Reservation.objects.get(pk=order.reservation_id).email == NEW
    assert {refunded.buyer} == set(Order.objects.values_list("buyer", flat=True)), (
        "one buyer in the figures of the sale"
    )
    newcomer = Client()
    newcomer.get(access.order_link(order.pk))
    assert statuses(newcomer, order) == {200}
    assert_audit_clean()


def test_the_figures_of_the_sale_stay_when_both_owners_are_erased_and_when_the_orders_are() -> None:
    """A published report of the sale has been computed from them."""
    user = User.objects.create_user("ann", EMAIL)
    event = make_event("concert", per_buyer_max=8)
    order, _ = (
        buy(hold(event, seats=[seat], entry=join(event, account_id=user.pk))) for seat in ("hall-A-1", "hall-A-2")
    )
    buy(hold(event, seats=["hall-B-1"]), email="guest@example.org")
    Order.objects.exclude(email="guest@example.org").update(account=user.pk)
    hand_over(order)
    Event.objects.filter(pk=event.id).update(starts_at=clock.now() - timedelta(days=2))

    def buyers() -> tuple[int, int]:
        found = reservations.report_figures().count_sale(event, clock.now(), [2**31])
        return len(found.tickets_of_buyers), found.account_buyers

    assert buyers() == (2, 1)
    for email in (EMAIL, NEW):
        assert person(email, "erase", "--yes").startswith("erased: 1 order")
        assert buyers() == (2, 1)
    retention.erase_orders(clock.now())
    assert not Order.objects.exclude(email__endswith="@erased.invalid").exists()
    assert not Reservation.objects.filter(account=user.pk).exists()
    assert buyers() == (2, 1)
    assert_audit_clean()


def test_the_new_owner_does_not_see_to_whom_the_former_one_passed_tickets() -> None:
    order = sold_order()
    first, second = order.tickets.order_by("pk")
    accepted(order, first, "friend@example.org")
    offer(order, second, "second@example.org")
    assert len(get_order(order.pk).transfers) == 2
    hand_over(order)
    offer(order, order.tickets.get(transfer=None, voided_at=None), "third@example.org")
    view = get_order(order.pk)
    assert [one.email for one in view.transfers] == ["third@example.org"]
    assert {ticket.holder for ticket in view.tickets if not ticket.valid} == {""}
    assert [ticket.holder for ticket in view.valid_tickets] == ["Bob"]
    exported = person(NEW, "export")
    assert "third@example.org" in exported
    assert not re.search("friend|second@", exported)
    hand_over(order, "carol@example.org")
    assert get_order(order.pk).transfers == (), "nor does a third one see those of the second"
    assert_audit_clean()


def test_its_invoice_stays_the_former_owners() -> None:
    user = User.objects.create_user("ann", EMAIL)
    EmailAddress.objects.create(user=user, email=EMAIL, verified=True, primary=True)
    event = make_event("concert")
    order = buy(hold(event, seats=["hall-A-1"], entry=join(event, account_id=user.pk)))
    Order.objects.filter(pk=order.pk).update(account=user.pk)
    deliver_outbox()
    number = order.invoices.get().number
    path = f"/orders/{order.pk}/invoices/{number}.pdf"
    owner = Client()
    owner.force_login(user)
    assert owner.get(path).status_code == 200
    hand_over(order)
    newcomer = Client()
    newcomer.get(access.order_link(order.pk))
    assert number not in newcomer.get(f"/orders/{order.pk}/").content.decode()
    assert newcomer.get(f"/api/orders/{order.pk}").json()["invoices"] == []
    assert newcomer.get(path).status_code == 404
    assert EMAIL not in json.dumps(json.loads(person(NEW, "export"))["orders"])
    assert json.loads(person(NEW, "export"))["documents_in_orders_of_others"] == []
    (kept,) = json.loads(person(EMAIL, "export"))["documents_in_orders_of_others"]
    assert (kept["number"], kept["buyer"]["email"]) == (number, EMAIL)
    assert any("invoices" in text for text in AccountData().find_kept(user.pk))


def test_an_earlier_correction_can_be_completed() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    correct_buyer(order.pk, email=NEW, name="Bob", why="sold to Bob", who="staff:1")
    deliver_outbox()
    before, link = set(order.tickets.values_list("code", flat=True)), access.order_link(order.pk)
    mail.outbox.clear()
    assert hand_over(order) == "owner"
    assert order.tickets.filter(voided_at=None).exclude(code__in=before).count() == 1
    assert access.order_link(order.pk) != link
    assert [one.to for one in mail.outbox] == [[NEW]]
    assert hand_over(order) == ""
    assert_audit_clean()


def test_only_a_paid_order_is_given_to_another_person() -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    with pytest.raises(problems.Invalid, match="is not paid"):
        hand_over(order)
    order.refresh_from_db()
    assert (order.email, order.is_handed_over) == (EMAIL, False)


def test_staff_give_it_to_another_person_on_its_page(admin_client: Client) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    page, act = f"/admin/orders/order/{order.pk}/change/", f"/admin/orders/order/{order.pk}/act/"
    assert "The address is another person’s" in admin_client.get(page).content.decode()
    fields = {"action": "correct", "email": NEW, "name": "Bob", "why": "sold to Bob", "is_handed_over": "on"}
    done = admin_client.post(act, fields, headers=SAME_ORIGIN, follow=True).content.decode()
    assert "Corrected the name and email address and owner." in done
    assert "The address is another person’s" not in done
    order.refresh_from_db()
    assert order.is_handed_over
