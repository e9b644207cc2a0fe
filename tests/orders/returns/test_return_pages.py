"""Returning tickets in a browser without a script, and the staff's refund page."""

import re
from typing import Any

import pytest
from django.core import mail
from django.test import Client

from apps.events.models import Category, Event, OnSale, Section
from apps.kernel import clock
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.models import EventCancellation, Order, Refund, ReturnPolicy, Ticket
from apps.reservations import facade as reservations
from tests.orders.checkout.test_order_pages import chosen, joined_browser, key_in, pay
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy, deliver_outbox

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _audit() -> Any:
    yield
    assert_audit_clean()


@pytest.fixture
def bought() -> tuple[Client, str, list[str]]:
    """Return a browser, the page of its order of two seats, and their codes."""
    event = make_event(general_admission=20)
    ReturnPolicy.objects.create(event_id=event.id, until_hours=24)
    browser = joined_browser("concert")
    address = pay(browser, chosen(browser)).url
    deliver_outbox()
    return browser, address, list(Ticket.objects.order_by("id").values_list("code", flat=True))


def test_choose_tickets_see_the_refund_and_confirm(bought) -> None:
    browser, address, codes = bought
    assert "Return tickets" in browser.get(address).content.decode()
    path = f"{address}return"
    page = browser.get(path).content.decode()
    assert "Hall, row A, seat 1" in page
    assert "Refund: $50.00" in page
    page = browser.post(path, {"ticket": codes[:1]}, headers=SAME_ORIGIN).content.decode()
    assert '<h2 id="back-heading">Refund: $50.00</h2>' in page
    assert not Refund.objects.exists()
    form = {"ticket": codes[:1], "step": "return", "idempotency_key": key_in(page)}
    for _ in range(2):  # Submitted twice.
        assert browser.post(path, form, headers=SAME_ORIGIN).url == address
    assert Refund.objects.count() == 1
    assert "Your ticket was returned. Your refund of $50.00 is on its way." in browser.get("/tickets/").content.decode()
    assert "On its way." in browser.get(address).content.decode()
    mail.outbox.clear()
    deliver_outbox()
    page = browser.get(address).content.decode()
    assert "Partly refunded" in page
    assert "It can take a few days to appear" in page
    assert f"/tickets/{codes[0]}/" not in page
    assert f"/tickets/{codes[1]}/" in page
    Refund.objects.update(status="failed")
    assert "Your bank rejected the refund. The organizer will contact you." in browser.get(address).content.decode()


def test_a_refused_return_shows_the_reason_and_changes_nothing(bought) -> None:
    browser, address, codes = bought
    path = f"{address}return"
    assert browser.post(path, {}, headers=SAME_ORIGIN).status_code == 422
    assert browser.post(path, {"ticket": ["unknown"]}, headers=SAME_ORIGIN).status_code == 422
    assert browser.post(path, {"ticket": codes, "step": "return"}, headers=SAME_ORIGIN).status_code == 400
    Ticket.objects.filter(code=codes[0]).update(checked_in_at=clock.now())
    assert "Checked in: this ticket cannot be returned." in browser.get(path).content.decode()
    refused = browser.post(path, {"ticket": codes}, headers=SAME_ORIGIN)
    assert (refused.status_code, Refund.objects.count()) == (409, 0)
    ReturnPolicy.objects.update(until_hours=24 * 40)
    assert "Ticket returns closed on" in browser.get(path).content.decode()
    assert "Return tickets" not in browser.get(address).content.decode()
    ReturnPolicy.objects.all().delete()
    assert browser.get(path).url == address


def test_a_page_without_tickets_to_return_offers_no_return(bought) -> None:
    browser, address, codes = bought
    Ticket.objects.filter(code__in=codes).update(checked_in_at=clock.now())
    page = browser.get(f"{address}return").content.decode()
    assert "There are no tickets to return" in page
    assert "<button" not in page.split("<main")[1].split("</main>")[0]
    assert "Return tickets" not in browser.get(address).content.decode()


def test_another_visitor_cannot_return_tickets(bought) -> None:
    _, address, codes = bought
    for stranger in (Client(), joined_browser("concert")):
        response = stranger.post(f"{address}return", {"ticket": codes}, headers=SAME_ORIGIN)
        assert response.status_code in (401, 403, 302)
    assert not Refund.objects.exists()


def seen_in(page: str) -> str:
    return re.search(r'name="seen" value="(\d+)"', page)[1]  # type: ignore[index]


def test_staff_chooses_tickets_sees_the_amount_and_refunds(bought, admin_client) -> None:
    _, _, codes = bought
    order = Order.objects.get()
    assert ">Refund</a>" in admin_client.get(f"/admin/orders/order/{order.pk}/change/").content.decode()
    path = f"/admin/orders/order/{order.pk}/money/"
    assert "$100.00 not refunded" in admin_client.get(path).content.decode()
    first, second = order.tickets.order_by("pk")
    page = admin_client.post(path, {"action": "look", "ticket": [first.pk]}, headers=SAME_ORIGIN).content.decode()
    assert "$50.00 would be refunded" in page
    assert not any(ticket.code in page for ticket in (first, second)), "codes admit, and some staff may not see them"
    form = {"action": "return", "ticket": [first.pk], "seen": "4999", "why": "ill", "keep": "yes"}
    assert admin_client.post(path, form, headers=SAME_ORIGIN).status_code == 409
    for wrong in ([first.pk] * 2, [first.code], [10**18], ["x"]):
        assert admin_client.post(path, form | {"ticket": wrong}, headers=SAME_ORIGIN).status_code == 422
    assert admin_client.post(path, form | {"seen": seen_in(page)}, headers=SAME_ORIGIN).status_code == 302
    form = {"action": "goodwill", "amount": "7.00", "seen": "5000", "why": "ra\x00in"}
    for status in (302, 409):  # Submitted twice, refunded once.
        assert admin_client.post(path, form, headers=SAME_ORIGIN).status_code == status
    assert admin_client.post(path, form | {"seen": "4300", "amount": "x"}, headers=SAME_ORIGIN).status_code == 422
    refused = admin_client.post(path, form | {"seen": "4300", "amount": "7,00"}, headers=SAME_ORIGIN)
    assert "“7,00” can mean 7.00 or 700.00" in refused.content.decode()
    deliver_outbox()
    assert sorted(Refund.objects.values_list("amount_minor", flat=True)) == [700, 5000]
    failed = Refund.objects.get(amount_minor=700)
    Refund.objects.filter(pk=failed.pk).update(status="failed", failure="account closed")
    assert "account closed" in admin_client.get(path).content.decode()
    assert (
        admin_client.post(path, {"action": "again", "refund": str(failed.pk)}, headers=SAME_ORIGIN).status_code == 302
    )
    for refund in ("x", str(order.pk)):
        assert admin_client.post(path, {"action": "again", "refund": refund}, headers=SAME_ORIGIN).status_code in (
            409,
            422,
        )
    Ticket.objects.filter(code=codes[1]).update(checked_in_at=clock.now())
    form = {"action": "return", "ticket": [second.pk], "seen": "4300", "why": "ill"}
    assert admin_client.post(path, form, headers=SAME_ORIGIN).status_code == 409
    assert admin_client.post(path, form | {"inside": "yes"}, headers=SAME_ORIGIN).status_code == 302
    assert Order.objects.get().status == "refunded"


def test_only_staff_who_can_change_orders_see_the_refund_page(bought, client, django_user_model) -> None:
    path = f"/admin/orders/order/{Order.objects.get().pk}/money/"
    assert client.get(path).status_code == 302
    reader = django_user_model.objects.create_user("r@example.org", "r@example.org", "a good password", is_staff=True)
    client.force_login(reader)
    assert client.get(path).status_code == 403


def test_staff_cancels_an_event_by_typing_its_name_and_sees_the_progress(admin_client) -> None:
    event = make_event(general_admission=10)
    buy(hold(event, ga_section="floor", ga_quantity=2))
    assert "Cancel the event" in admin_client.get(f"/admin/events/event/{event.id}/changes/").content.decode()
    path = "/admin/orders/eventcancellation/add/"
    page = admin_client.get(f"{path}?event={event.id}").content.decode()
    assert "Type the name of the event" in page
    assert "1 order with 2 tickets: $50.00 will be refunded." in page
    form = {"event": event.id, "words": "No singer.", "confirm": "another"}
    assert "This is not the name of the event" in admin_client.post(path, form, headers=SAME_ORIGIN).content.decode()
    assert not EventCancellation.objects.exists()
    watch = admin_client.post(path, form | {"confirm": event.name}, headers=SAME_ORIGIN).url
    page = admin_client.get(watch).content.decode()
    assert "0 of 1" in page
    assert 'http-equiv="refresh"' in page
    deliver_outbox()
    assert "1 of 1" in admin_client.get(watch).content.decode()
    done = {"action": "resume", "_selected_action": [event.id]}
    assert admin_client.post("/admin/orders/eventcancellation/", done, headers=SAME_ORIGIN).status_code == 302
    assert "Refund progress" in admin_client.get(f"/admin/events/event/{event.id}/change/").content.decode()


def test_staff_sets_the_return_period(admin_client) -> None:
    event = make_event()
    path = "/admin/orders/returnpolicy/add/"
    assert admin_client.get(path).status_code == 200
    assert (
        "At most a year"
        in admin_client.post(path, {"event": event.id, "until_hours": 9_000}, headers=SAME_ORIGIN).content.decode()
    )
    assert (
        admin_client.post(
            path, {"event": event.id, "until_hours": 48, "keeps_fees": "on"}, headers=SAME_ORIGIN
        ).status_code
        == 302
    )
    assert ReturnPolicy.objects.get().until_hours == 48


def purged_reasons() -> list[str]:
    """Return the reasons of the messages that purge the event's page, and mark them as delivered."""
    waiting = OutboxMessage.objects.filter(topic=reservations.PAGE_CHANGED, done_at__isnull=True)
    reasons = [message.body["reason"] for message in waiting.order_by("id")]
    waiting.update(done_at=clock.now())
    return reasons


def test_a_changed_return_policy_purges_the_event_page(admin_client) -> None:
    event = make_event()
    reservations.publish_page_changes()
    assert purged_reasons() == ["published"]
    add = "/admin/orders/returnpolicy/add/"
    admin_client.post(add, {"event": event.id, "until_hours": 48, "keeps_fees": "on"}, headers=SAME_ORIGIN)
    assert purged_reasons() == ["changed"]
    assert "until 2 days before the start" in Client().get("/events/concert/").content.decode()
    change = f"/admin/orders/returnpolicy/{event.id}/"
    admin_client.post(f"{change}change/", {"until_hours": 9_000}, headers=SAME_ORIGIN)
    assert purged_reasons() == [], "the form was refused"
    admin_client.post(f"{change}change/", {"until_hours": 24}, headers=SAME_ORIGIN)
    assert purged_reasons() == ["changed"]
    admin_client.post(f"{change}delete/", {"post": "yes"}, headers=SAME_ORIGIN)
    assert (ReturnPolicy.objects.count(), purged_reasons()) == (0, ["changed"])
    ReturnPolicy.objects.create(event_id=event.id, until_hours=24)
    chosen_rows = {"action": "delete_selected", "_selected_action": [event.id], "post": "yes"}
    admin_client.post("/admin/orders/returnpolicy/", chosen_rows, headers=SAME_ORIGIN)
    assert (ReturnPolicy.objects.count(), purged_reasons()) == (0, ["changed"])


def test_a_return_policy_that_is_changed_on_the_form_of_the_event_purges_its_page(admin_client) -> None:
    event = make_event()
    reservations.publish_page_changes()
    purged_reasons()
    ReturnPolicy.objects.create(event_id=event.id, until_hours=24, keeps_fees=False)
    path = f"/admin/events/event/{event.id}/change/"
    category, section = Category.objects.get(), Section.objects.get()
    form = {
        "name": "Concert", "description": "", "on_sale-TOTAL_FORMS": 1, "on_sale-INITIAL_FORMS": 1,
        "on_sale-0-event": event.id, "on_sale-0-id": OnSale.objects.get().pk,
        "categories-TOTAL_FORMS": 1, "categories-INITIAL_FORMS": 1, "categories-0-id": category.pk,
        "categories-0-event": event.id, "sections-TOTAL_FORMS": 1, "sections-INITIAL_FORMS": 1,
        "sections-0-id": section.pk, "sections-0-event": event.id, "returns-TOTAL_FORMS": 1,
        "returns-INITIAL_FORMS": 1, "returns-0-event": event.id, "returns-0-until_hours": "24",
    }  # fmt: skip
    assert admin_client.post(path, form, headers=SAME_ORIGIN).status_code == 302
    assert purged_reasons() == []
    admin_client.post(path, form | {"returns-0-until_hours": "12"}, headers=SAME_ORIGIN)
    assert (ReturnPolicy.objects.get().until_hours, purged_reasons()) == (12, ["changed"])
    assert admin_client.post(path, form | {"returns-0-DELETE": "on"}, headers=SAME_ORIGIN).status_code == 302
    assert not ReturnPolicy.objects.exists()
    assert admin_client.get(path.replace("/change/", "_0A/change/")).status_code == 200, "as Django quotes a line break"


def test_the_return_policy_of_a_draft_purges_nothing(admin_client) -> None:
    event = make_event()
    Event.objects.update(status=Event.Status.DRAFT)
    add = "/admin/orders/returnpolicy/add/"
    admin_client.post(add, {"event": event.id, "until_hours": 48, "keeps_fees": "on"}, headers=SAME_ORIGIN)
    assert (ReturnPolicy.objects.count(), purged_reasons()) == (1, [])
