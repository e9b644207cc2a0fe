"""The check-in page, door links and reissued codes, in a browser without a script and in the admin."""

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core import mail
from django.test import Client
from icalendar import Calendar

from apps.kernel import clock
from apps.orders import access, selectors
from apps.orders.cancellation import order_cancellation
from apps.orders.checkin import door_links
from apps.orders.checkin.check_in import Scan, scan
from apps.orders.models import DoorLink, Order, Ticket, TicketScan
from apps.orders.tickets import ics, reissue
from tests.support.factories import assert_audit_clean, hold, join, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy, deliver_outbox

pytestmark = pytest.mark.django_db(transaction=True)
PAGE = "/check-in/concert/"


@pytest.fixture
def concert():
    starts_at = clock.now() + timedelta(hours=1)
    return make_event("concert", name="Späte Förderung; Łódź, 東京", general_admission=5, starts_at=starts_at)


@pytest.fixture
def order(concert) -> Order:
    return buy(hold(concert, seats=["hall-A-1", "hall-A-2"]))


def account(name: str, *permissions: str, staff: bool = False):
    user = get_user_model().objects.create_user(name, name, "a good password", is_staff=staff)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


def browser_of(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_the_page_requires_the_permission(concert) -> None:
    assert Client().get(PAGE).url == f"/accounts/log-in?next={PAGE}"
    refused = browser_of(account("ada@example.org")).get(PAGE)
    assert refused.status_code == 403
    assert "cannot check in tickets" in refused.content.decode()
    page = browser_of(account("vera@example.org", "check_in")).get(PAGE)
    assert page.status_code == 200
    assert "no-store" in page.headers["Cache-Control"]
    assert Client().get("/check-in/nowhere/").status_code == 404


def test_only_this_page_may_use_the_camera(concert) -> None:
    page = browser_of(account("vera@example.org", "check_in")).get(PAGE)
    assert "camera=(self)" in page.headers["Permissions-Policy"]
    assert "camera=()" in Client().get("/").headers["Permissions-Policy"]
    assert "unsafe" not in page.headers["Content-Security-Policy"]


def test_a_door_link_becomes_a_cookie_and_leaves_the_address_bar(concert) -> None:
    now = clock.now()
    made = door_links.make_link(
        concert.id, name="Vera", door="North", good_from=now, good_until=now + timedelta(hours=1), who="staff:1"
    )
    path = door_links.link_url(made, "concert").partition("://")[2].partition("/")[2]
    client = Client()
    taken = client.get(f"/{path}")
    assert (taken.status_code, taken.url) == (302, PAGE)
    cookie = taken.cookies[f"door-{concert.id}"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    assert 3_000 < int(cookie["max-age"]) <= 3_600
    assert "North" in client.get(PAGE).content.decode()
    door_links.revoke_link(made.pk, "staff:1")
    for address in (PAGE, f"/{path}"):
        assert "was revoked" in client.get(address).content.decode()
    assert "Check that you copied all of it" in Client().get(f"{PAGE}?link=nonsense").content.decode()


def test_the_plain_form_checks_in_and_a_retry_shows_the_same(order) -> None:
    client = browser_of(account("vera@example.org", "check_in"))
    scan_id = re.search(r'name="scan_id" value="(\w+)"', client.get(PAGE).content.decode())[1]
    form = {"scan_id": scan_id, "code": order.tickets.first().code, "door": "A"}
    for _ in range(2):
        page = client.post(PAGE, form, headers=SAME_ORIGIN).content.decode()
        assert "Let in" in page
        assert "Hall, row A, seat 1" in page
    assert TicketScan.objects.count() == 1
    assert client.post(PAGE, form, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    wrong = client.post(PAGE, {"scan_id": scan_id, "code": ""}, headers=SAME_ORIGIN)
    assert (wrong.status_code, "Not scanned" in wrong.content.decode()) == (422, True)
    reused = client.post(PAGE, form | {"code": order.tickets.last().code}, headers=SAME_ORIGIN)
    assert reused.status_code == 422


def test_the_service_workers_scope_is_the_check_in_page(db) -> None:
    answer = Client().get("/check-in/worker.js")
    assert answer.headers["Content-Type"].startswith("text/javascript")
    assert "Service-Worker-Allowed" not in answer.headers
    assert b"addEventListener" in answer.content


def test_a_manager_creates_and_revokes_door_links(concert, admin_client) -> None:
    from apps.events.models import Event, Venue

    now = clock.now()
    zone = ZoneInfo("Asia/Tokyo")
    Venue.objects.update(timezone=zone.key)
    times = {"good_from": now - timedelta(minutes=5), "good_until": now + timedelta(hours=5)}
    typed = {name: f"{moment.astimezone(zone):%Y-%m-%dT%H:%M:%S}" for name, moment in times.items()}
    form = {"event": Event.objects.get().pk, "name": "Vera", "door": "North", **typed}
    add = "/admin/orders/doorlink/add/"
    assert admin_client.get(add).status_code == 200
    preset = admin_client.get(f"{add}?event={form['event']}").content.decode()
    (begin,) = re.findall(r'name="good_from" value="([^"]+)"', preset)
    assert abs(datetime.fromisoformat(begin).replace(tzinfo=zone) - now) < timedelta(minutes=10), "the venue's clock"
    swapped = form | {"good_until": form["good_from"]}
    assert "Must be after the start" in admin_client.post(add, swapped, headers=SAME_ORIGIN).content.decode()
    long = form | {"good_until": f"{now + timedelta(days=200):%Y-%m-%dT%H:%M}"}
    assert "At most 60 days" in admin_client.post(add, long, headers=SAME_ORIGIN).content.decode()
    page = admin_client.post(add, form, headers=SAME_ORIGIN, follow=True).content.decode()
    made = DoorLink.objects.get()
    assert door_links.link_url(made, "concert") in page
    assert {name: getattr(made, name) for name in times} == {
        name: moment.replace(microsecond=0) for name, moment in times.items()
    }
    change = f"/admin/orders/doorlink/{made.pk}/change/"
    reader = browser_of(account("reader@example.org", "view_doorlink", staff=True))
    assert "link=" not in reader.get(change).content.decode()
    revoke = {"action": "revoke", "_selected_action": [str(made.pk)]}
    reader.post("/admin/orders/doorlink/", revoke, headers=SAME_ORIGIN)
    assert door_links.state_of(DoorLink.objects.get(), clock.now()) == "open"
    admin_client.post("/admin/orders/doorlink/", revoke, headers=SAME_ORIGIN)
    assert door_links.state_of(DoorLink.objects.get(), clock.now()) == "revoked"
    assert "link=" not in admin_client.get(change).content.decode()


def test_staff_reads_the_log_and_undoes_a_check_in(concert, order, admin_client) -> None:
    ticket = order.tickets.first()
    scan(concert, Scan("scan-0001", ticket.code, door="North"), "staff:1")
    assert "North" in admin_client.get("/admin/orders/ticketscan/?q=scan-0001").content.decode()
    undo = {"action": "undo_check_in", "_selected_action": [str(ticket.pk)]}
    reader = browser_of(account("reader@example.org", "view_ticket", staff=True))
    reader.post("/admin/orders/ticket/", undo, headers=SAME_ORIGIN)
    assert Ticket.objects.filter(checked_in_at__isnull=False).exists()
    done = admin_client.post("/admin/orders/ticket/", undo, headers=SAME_ORIGIN, follow=True)
    assert "1 check-in undone" in done.content.decode()
    assert not Ticket.objects.filter(checked_in_at__isnull=False).exists()


def test_staff_reissues_tickets_by_ticket_and_by_order(order, admin_client) -> None:
    one = order.tickets.first()
    form = {"action": "reissue", "_selected_action": [str(one.pk)]}
    assert (
        "Replaced the code of 1 ticket"
        in admin_client.post("/admin/orders/ticket/", form, headers=SAME_ORIGIN, follow=True).content.decode()
    )
    one.refresh_from_db()
    assert one.replaced_by.startswith("staff:")
    form = {"action": "reissue", "_selected_action": [str(order.pk)]}
    confirmation = admin_client.post("/admin/orders/order/", form, headers=SAME_ORIGIN)
    assert "become invalid" in confirmation.content.decode()
    assert order.tickets.count() == 3
    admin_client.post("/admin/orders/order/", form | {"confirmed": "yes"}, headers=SAME_ORIGIN)
    assert order.tickets.count() == 5
    assert_audit_clean()


def test_the_owner_requests_a_new_code_and_the_old_ticket_page_explains_it(concert) -> None:
    user = account("ada@example.org")
    order = buy(hold(concert, join(concert, account_id=user.pk), seats=["hall-A-1"]), name="Ada Buyer")
    owner, old = browser_of(user), order.tickets.get().code
    path = f"/orders/{order.pk}/tickets/{old}/reissue"
    assert path in owner.get(f"/orders/{order.pk}/").content.decode()
    for other, status in ((Client(), 401), (browser_of(account("eve@example.org")), 403)):
        assert other.post(path, {}, headers=SAME_ORIGIN).status_code == status
    assert owner.post(path, {}, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert owner.get(path).status_code == 405
    assert order.tickets.count() == 1
    done = owner.post(path, {}, headers=SAME_ORIGIN, follow=True).content.decode()
    new = order.tickets.get(voided_at=None).code
    assert "has a new code" in done
    assert new in done.replace(" ", "")
    shown = Client().get(f"/tickets/{old}/").content.decode()
    assert "Replaced" in shown
    assert "The new one was sent to the email address of the order." in shown
    assert "Ada Buyer" not in shown, "the code may have been replaced because another person has it"
    assert new not in shown
    assert "qr.svg" not in shown
    for _ in range(reissue.BUYER_REISSUES_MAX):
        code = order.tickets.get(voided_at=None).code
        response = owner.post(f"/orders/{order.pk}/tickets/{code}/reissue", {}, headers=SAME_ORIGIN, follow=True)
    assert "within a day" in response.content.decode()
    assert order.tickets.count() == 1 + reissue.BUYER_REISSUES_MAX


def test_the_mail_contains_the_tickets_and_the_calendar_file(order) -> None:
    letter = mail.outbox[-1]
    files = {file.filename: (file.content, file.mimetype) for file in letter.attachments}
    pdf, content_type = files[f"tickets-concert-{order.number}.pdf"]
    assert (pdf[:5], content_type) == (b"%PDF-", "application/pdf")
    calendar, content_type = files["concert.ics"]
    assert content_type.startswith("text/calendar")
    assert letter.message().as_bytes()
    found = Calendar.from_ical(calendar)
    (entry,) = found.walk("VEVENT")
    view = selectors.get_order(order.pk)
    assert str(entry["summary"]) == "Späte Förderung; Łódź, 東京"
    assert entry["dtstart"].dt == view.event.starts_at.replace(microsecond=0)
    assert entry["dtstart"].dt.utcoffset() == timedelta(0)
    # No end was announced, so three hours are assumed.
    assert entry["dtend"].dt == entry["dtstart"].dt + timedelta(hours=3)
    assert str(entry["uid"]).startswith(f"order-{order.number}@")
    assert "Hall, row A, seat 2" in str(entry["description"])
    raw = calendar if isinstance(calendar, bytes) else calendar.encode()
    assert all(len(line) <= 75 for line in raw.split(b"\r\n"))
    assert b"DTSTAMP" in raw


def test_the_calendar_file_has_doors_and_end_and_nothing_that_grants_access() -> None:
    starts_at = clock.now().replace(hour=18, minute=0, second=0, microsecond=0) + timedelta(days=30)
    times = {
        "doors_at": starts_at - timedelta(hours=1),
        "starts_at": starts_at,
        "ends_at": starts_at + timedelta(hours=2),
    }
    order = buy(hold(make_event("gala", timezone="UTC", **times), seats=["hall-A-1"]))
    raw = ics.calendar_file(selectors.get_order(order.pk)).decode()
    (entry,) = Calendar.from_ical(raw).walk("VEVENT")
    assert entry["dtend"].dt == times["ends_at"]
    assert "Doors open at 17:00 (UTC)." in str(entry["description"])
    assert str(entry["url"]).endswith("/events/gala/")
    secrets = (access.link_key(order.pk), str(order.pk), order.tickets.get().code)
    unfolded = raw.replace("\r\n ", "")
    assert [secret for secret in secrets if secret in unfolded] == []


def test_the_calendar_file_is_only_for_the_orders_owner(concert) -> None:
    user = account("ada@example.org")
    order = buy(hold(concert, join(concert, account_id=user.pk), seats=["hall-A-1"]))
    owner, path = browser_of(user), f"/orders/{order.pk}/event.ics"
    assert path in owner.get(f"/orders/{order.pk}/").content.decode()
    answer = owner.get(path)
    assert answer.headers["Content-Disposition"] == 'attachment; filename="concert.ics"'
    assert Calendar.from_ical(answer.content).walk("VEVENT")
    assert Client().get(path).status_code == 401
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    assert owner.get(path).status_code == 404
