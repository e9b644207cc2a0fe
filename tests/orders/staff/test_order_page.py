"""The staff page of one order: corrections of the buyer, resending, reissuing, refunding, and the history."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.http import problems
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import access, selectors
from apps.orders.cancellation import order_cancellation
from apps.orders.checkin.check_in import Scan, scan
from apps.orders.mail import resend_tickets
from apps.orders.models import CodeUse, Order, OrderHistoryEntry, Ticket
from apps.orders.payments.providers import sandbox
from apps.orders.staff.buyer_correction import correct_buyer
from apps.orders.staff.order_history import read_history
from apps.orders.tickets import reissue, ticket_pdf
from apps.orders.tickets.reissue import reissue_order, reissue_ticket
from apps.reservations import facade as reservations
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import EMAIL, SAME_ORIGIN, buy, deliver_outbox, make_code, place_order

pytestmark = pytest.mark.django_db(transaction=True)
NEW = "ada.buyer@example.org"


class _OnlyOnce:
    def __init__(self, act: Callable[[], object]) -> None:
        self._act, self.is_done = act, False

    def __call__(self) -> None:
        if not self.is_done:
            self.is_done = True
            self._act()


@pytest.fixture
def concert() -> events.EventView:
    return make_event("concert", general_admission=5)


@pytest.fixture
def order(concert: events.EventView) -> Order:
    order = buy(hold(concert, seats=["hall-A-1", "hall-A-2"]))
    mail.outbox.clear()
    return order


def correct(order: Order, **changes: Any) -> str:
    values = {"email": order.email, "name": order.name, "why": "a typo", "who": "staff:1"}
    done = correct_buyer(order.pk, **values | changes)
    deliver_outbox()
    order.refresh_from_db()
    return done


def valid_codes(order: Order) -> set[str]:
    return set(Ticket.objects.filter(order=order, voided_at=None).values_list("code", flat=True))


def test_another_address_gets_the_tickets_and_the_former_one_a_notice(order) -> None:
    before = valid_codes(order)
    assert correct(order, email=f" {NEW.upper()} ") == "email address"
    notice, tickets = mail.outbox
    assert (order.email, notice.to, tickets.to) == (NEW, [EMAIL], [NEW])
    assert order.number in notice.body
    after = valid_codes(order)
    assert len(after) == 2
    assert not before & after
    secrets = (NEW, access.link_key(order.pk), str(order.pk), *before, *after)
    assert [secret for secret in secrets if secret in notice.body + notice.subject] == []
    assert reservations.get_reservation(order.reservation_id).email == NEW
    assert_audit_clean()


def test_the_links_and_cookies_of_the_former_address_stop_working(order) -> None:
    path = f"/orders/{order.pk}/"
    old_link, old_confirmation = access.order_link(order.pk), access.confirmation_url(order.pk)
    stranger, newcomer = Client(), Client()
    stranger.get(old_link)
    stranger.get(old_confirmation)
    assert stranger.get(path).status_code == 200
    correct(order, email=NEW)
    assert stranger.get(path).status_code == 401
    assert Client().get(old_link).status_code == 401
    assert not access.is_valid_confirmation(order.pk, old_confirmation.rpartition("=")[2])
    assert path not in stranger.get("/tickets/").content.decode()
    assert access.order_link(order.pk) in mail.outbox[-1].body
    newcomer.get(access.order_link(order.pk))
    assert newcomer.get(path).status_code == 200
    assert path in newcomer.get("/tickets/").content.decode()


def test_another_name_keeps_codes_and_links_and_is_on_the_tickets(order) -> None:
    before, link = valid_codes(order), access.order_link(order.pk)
    assert correct(order, name="Ada Lovelace") == "name"
    (tickets,) = mail.outbox
    assert tickets.to == [EMAIL]
    assert (valid_codes(order), access.order_link(order.pk)) == (before, link)
    assert set(order.tickets.values_list("holder", flat=True)) == {"Ada Lovelace"}
    assert_audit_clean()


def test_nothing_changes_without_a_difference_and_errors_are_named(order) -> None:
    assert correct(order) == ""
    for changes, field in (({"email": "ada"}, "email"), ({"name": " "}, "name"), ({"why": ""}, "why")):
        with pytest.raises(problems.Invalid) as refused:
            correct(order, **changes)
        assert field in refused.value.extra["errors"]
    assert mail.outbox == []
    assert OrderHistoryEntry.objects.exclude(kind="mail").count() == 0


def test_a_checked_in_ticket_keeps_its_code(concert, order) -> None:
    inside = order.tickets.first()
    scan(concert, Scan("scan-0001", inside.code, anyway=True), "staff:1")
    correct(order, email=NEW)
    assert inside.code in valid_codes(order)
    assert len(valid_codes(order)) == 2
    assert_audit_clean()


def test_an_address_at_its_purchase_cap_is_refused() -> None:
    event = make_event(per_buyer_max=2)
    buy(hold(event, seats=["hall-A-1", "hall-A-2"]), email=NEW)
    order = buy(hold(event, seats=["hall-A-3"]))
    with pytest.raises(reservations.PurchaseCapReached):
        correct(order, email=NEW)
    correct(order, email="another@example.org")
    assert_audit_clean()


def test_an_unpaid_order_is_corrected_and_paid_by_the_new_address(concert) -> None:
    make_code(concert)
    view = hold(concert, seats=["hall-A-1"])
    order = buy(view, sandbox.DECLINES, code="HALFPRICE")
    mail.outbox.clear()
    correct(order, email=NEW)
    assert [letter.to for letter in mail.outbox] == [[EMAIL]]
    assert CodeUse.objects.get().email == NEW
    assert buy(view, email=NEW).status == Order.Status.CONFIRMED
    assert mail.outbox[-1].to == [NEW]
    assert_audit_clean()


def test_the_history_has_every_kind_of_step_in_order(concert) -> None:
    view = hold(concert, seats=["hall-A-1"])
    buy(view, sandbox.DECLINES)
    order = buy(view)
    correct(order, email=NEW)
    scan(concert, Scan("scan-0001", order.tickets.get(voided_at=None).code, anyway=True), "staff:1")
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    lines = read_history(order.pk)
    assert [line.at for line in lines] == sorted(line.at for line in lines)
    assert {line.kind for line in lines} == {
        "reservation", "order", "payment", "provider", "refund", "email", "ticket", "check-in", "staff", "invoice",
    }  # fmt: skip
    texts = [f"{line.kind}: {line.text}" for line in lines]
    for text in (
        "reservation: tickets reserved",
        "payment: attempt 1, $50.00, sandbox decline: declined",
        "payment: attempt 2, $50.00, sandbox: succeeded",
        "order: confirmed",
        f"email: “Your tickets for Concert” to {EMAIL}",
        f"email: “Your address was removed from an order for Concert” to {EMAIL}",
        f"staff: corrected email address: a typo (was {EMAIL})",
        "ticket: Hall, row A, seat 1: replaced by a new code",
        "check-in: Hall, row A, seat 1: welcome, let in despite a warning",
        "refund: $50.00: succeeded",
    ):
        assert text in texts


def test_the_history_ends_with_the_last_steps_of_each_kind(
    order, concert: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Staff can cause any number of scans and codes: no more rows are read than there are lines."""
    monkeypatch.setattr("apps.orders.staff.order_history.ENTRIES_MAX", 4)
    first, second = order.tickets.order_by("id")
    for _ in range(3):
        reissue_ticket(order.pk, first.code, "staff:1")
        first = order.tickets.get(voided_at=None, line=first.line, place=first.place, seat=first.seat)
    for number in range(3):
        scan(concert, Scan(f"scan-000{number}", "unknown" if number else second.code), "staff:1")
    OrderHistoryEntry.objects.all().delete()
    order_cancellation.refund_order(order.pk, "staff:1")
    lines = read_history(order.pk)
    assert len(lines) == 4
    with CaptureQueriesContext(connection) as queries:
        read_history(order.pk)
    unlimited = ('FROM "orders_payment"', 'FROM "orders_order"', "reservations_")
    rest = [query["sql"] for query in queries if not any(table in query["sql"] for table in unlimited)]
    assert rest
    assert all("LIMIT 4" in query for query in rest)
    (ended,) = [line for line in lines if line.kind == "ticket" and line.text.startswith(second.label)]
    assert "no longer valid" in ended.text


def test_the_page_shows_valid_tickets_first_and_not_all_that_were_replaced(
    order, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        reissue_order(order.pk, "staff:1")
    monkeypatch.setattr("apps.kernel.admin_lists.INLINE_ROWS_MAX", 3)
    formsets = admin_client.get(f"/admin/orders/order/{order.pk}/change/").context["inline_admin_formsets"]
    (shown,) = [each.formset for each in formsets if each.formset.model is Ticket]
    assert [form.instance.voided_at is None for form in shown.forms] == [True, True, False]


@pytest.mark.slow
def test_staff_resend_replace_codes_correct_and_refund_from_the_page(order, admin_client) -> None:
    page, act = f"/admin/orders/order/{order.pk}/change/", f"/admin/orders/order/{order.pk}/act/"
    shown = admin_client.get(page).content.decode()
    for text in ("Resend tickets", "Replace all codes", "Correct the buyer", "Yes, refund the whole order", "History"):
        assert text in shown
    before = valid_codes(order)

    def post(**fields: str) -> str:
        done = admin_client.post(act, fields, headers=SAME_ORIGIN, follow=True)
        assert done.redirect_chain == [(page, 302)]
        deliver_outbox()
        return done.content.decode()

    assert f"The tickets are being sent to {EMAIL}." in post(action="resend")
    assert valid_codes(order) == before
    assert "2 tickets got a new code" in post(action="reissue")
    assert not valid_codes(order) & before
    assert "email: is not a valid email address" in post(action="correct", email="x", name="Ada", why="a typo").lower()
    assert "Corrected the name and email address." in post(action="correct", email=NEW, name="Ada", why="a typo")
    assert "The order is canceled or refunded." in post(action="refund")
    assert "Nothing has changed." in post(action="refund")
    assert "Nothing has changed." in post(action="unknown")
    order.refresh_from_db()
    assert (order.status, order.email, order.name) == (Order.Status.REFUNDED, NEW, "Ada")
    shown = admin_client.get(page).content.decode()
    assert "Resend tickets" not in shown
    assert "tickets sent again to" in shown
    assert "corrected name and email address: a typo" in shown
    assert admin_client.get(act).status_code == 405
    assert_audit_clean()


def test_the_actions_of_the_page_need_the_permission(order, client, django_user_model) -> None:
    viewer = django_user_model.objects.create_user("vera@example.org", "vera@example.org", "a good password")
    viewer.is_staff = True
    viewer.save()
    client.force_login(viewer)
    act = f"/admin/orders/order/{order.pk}/act/"
    assert client.post(act, {"action": "refund"}, headers=SAME_ORIGIN).status_code == 403
    assert selectors.get_order(order.pk).is_standing


def test_an_unpaid_order_is_canceled_from_the_page(concert, admin_client) -> None:
    order = place_order(hold(concert, seats=["hall-A-1"]))
    act = f"/admin/orders/order/{order.pk}/act/"
    admin_client.post(act, {"action": "refund"}, headers=SAME_ORIGIN)
    order.refresh_from_db()
    assert order.status == Order.Status.CANCELED


@pytest.mark.parametrize("moment", ["before its tickets are read", "before its PDF is drawn", "after its PDF is drawn"])
def test_a_mail_in_progress_grants_its_former_address_nothing(order, moment, monkeypatch: pytest.MonkeyPatch) -> None:
    correct_once = _OnlyOnce(lambda: correct_buyer(order.pk, email=NEW, name=order.name, why="a typo", who="staff:1"))
    read, draw = selectors._read, ticket_pdf.tickets_pdf

    def read_after(*args: Any, **options: Any) -> Any:
        if moment == "before its tickets are read" and not options["is_whole"]:
            correct_once()
        return read(*args, **options)

    def draw_between(view: selectors.OrderView) -> bytes:
        if moment == "before its PDF is drawn":
            correct_once()
        drawn = draw(view)
        if moment == "after its PDF is drawn":
            correct_once()
        return drawn

    monkeypatch.setattr(selectors, "_read", read_after)
    monkeypatch.setattr(ticket_pdf, "tickets_pdf", draw_between)
    resend_tickets(order.pk)
    deliver_outbox()
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now())  # The mail in progress was postponed.
    deliver_outbox()
    order.refresh_from_db()
    assert (correct_once.is_done, order.email) == (True, NEW)
    secrets = {access.link_key(order.pk), *valid_codes(order)}
    text_of = dict.fromkeys((EMAIL, NEW), "")
    for sent in mail.outbox:
        text_of[sent.to[0]] += sent.body
    assert [secret for secret in secrets if secret in text_of[EMAIL]] == []
    assert [secret for secret in secrets if secret not in text_of[NEW]] == []
    assert_audit_clean()


def test_a_mail_in_progress_sends_no_code_that_was_replaced(order, monkeypatch: pytest.MonkeyPatch) -> None:
    """Staff's mail with the new codes does not wait for the owner's, which must not arrive after it with dead ones."""
    replace_once = _OnlyOnce(lambda: reissue.reissue_order(order.pk, "staff:1"))
    draw = ticket_pdf.tickets_pdf

    def draw_before(view: selectors.OrderView) -> bytes:
        drawn = draw(view)
        replace_once()
        return drawn

    monkeypatch.setattr(ticket_pdf, "tickets_pdf", draw_before)
    reissue.reissue_ticket(order.pk, min(valid_codes(order)), reissue.BUYER)
    deliver_outbox()
    assert replace_once.is_done
    assert len(mail.outbox) == 1, "staff's; the owner's was postponed"
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now())
    deliver_outbox()
    assert len(mail.outbox) == 2
    dead = Ticket.objects.filter(order=order).exclude(voided_at=None).values_list("code", flat=True)
    assert len(dead) == 3
    assert not any(code in sent.body for sent in mail.outbox for code in dead)
    assert_audit_clean()


def test_the_action_replaces_the_codes_of_so_many_tickets(
    order: Order, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.orders.admin.REISSUED_MAX", 1)
    before = valid_codes(order)
    action = {"action": "reissue", "_selected_action": [str(order.pk)], "confirmed": "yes"}
    page = admin_client.post("/admin/orders/order/", action, headers=SAME_ORIGIN, follow=True)
    assert "at most 1 valid tickets together" in page.content.decode()
    assert valid_codes(order) == before
    monkeypatch.setattr("apps.orders.admin.REISSUED_MAX", 2)
    admin_client.post("/admin/orders/order/", action, headers=SAME_ORIGIN)
    assert not valid_codes(order) & before
