"""The pages of dashboards: each role sees its figures of its organizer's events only, and exports are confined,
recorded and free of formulas."""

import csv
from io import StringIO
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import SecurityEvent, User
from apps.events import facade as events
from apps.events.creation import create_event
from apps.events.models import Organizer, Role
from apps.kernel.http.csv_download import safe_cell
from apps.orders.models import Order, Ticket
from tests.support import factories
from tests.support.events.factories import spec
from tests.support.orders.sale import SAME_ORIGIN, buy

pytestmark = pytest.mark.django_db(transaction=True)

SEEN: dict[Role, set[str]] = {
    Role.ORGANIZER: {"Sold", "Reserved", "Left", "Revenue", "Selling now", "Checked in"},
    Role.BOX_OFFICE: {"Sold", "Reserved", "Left", "Revenue", "Selling now", "Checked in"},
    Role.FINANCE: {"Sold", "Reserved", "Left", "Revenue", "Selling now"},
    Role.READ_ONLY: {"Sold", "Reserved", "Left", "Revenue", "Selling now", "Checked in"},
    Role.DOOR: {"Checked in"},
}
EXPORTS: dict[Role, set[str]] = {
    Role.ORGANIZER: {"orders", "tickets", "attendees"},
    Role.BOX_OFFICE: {"orders", "tickets", "attendees"},
    Role.FINANCE: {"orders"},
    Role.READ_ONLY: {"orders"},
    Role.DOOR: set(),
}


@pytest.fixture(autouse=True)
def _authenticated_recently(settings: Any) -> None:
    settings.REAUTHENTICATION_SECONDS = 0


@pytest.fixture
def concert() -> events.EventView:
    factories.make_organizer("opera")
    return factories.make_event("concert", general_admission=20, organizer="opera")


def client_of(user: Any) -> Client:
    client = Client(headers=SAME_ORIGIN)
    client.force_login(user)
    return client


def member(role: Role, slug: str = "opera") -> Client:
    return client_of(factories.make_member(Organizer.objects.get(slug=slug), role))


def dashboard(event: events.EventView) -> str:
    return f"/admin/events/event/{event.id}/dashboard/"


def rows_of(response: Any) -> list[dict[str, str]]:
    text = response.content.decode("utf-8-sig")
    return list(csv.DictReader(StringIO(text)))


@pytest.mark.parametrize("role", list(Role))
def test_a_role_sees_its_figures_and_exports(concert: events.EventView, role: Role) -> None:
    order = buy(factories.hold(concert, seats=["hall-A-1"]))
    client = member(role)
    page = client.get(dashboard(concert)).content.decode()
    assert {name for name in SEEN[Role.ORGANIZER] if f"<dt>{name}</dt>" in page} == SEEN[role]
    assert (order.number in page) == ("Revenue" in SEEN[role])
    assert ('<svg class="plot"' in page) == ("Revenue" in SEEN[role])
    for kind in ("orders", "tickets", "attendees"):
        url = f"/admin/events/event/{concert.id}/{kind}.csv"
        may_export = kind in EXPORTS[role]
        assert (url in page) == may_export, kind
        response = client.get(url)
        assert response.status_code == (200 if may_export else 403), kind
        if may_export:
            assert rows_of(response)


@pytest.mark.parametrize("role", list(Role))
def test_members_of_other_organizers_see_nothing_of_an_event(concert: events.EventView, role: Role) -> None:
    factories.make_organizer("ballet")
    client = member(role, "ballet")
    assert client.get(dashboard(concert)).status_code == 403
    for kind in ("orders", "tickets", "attendees"):
        assert client.get(f"/admin/events/event/{concert.id}/{kind}.csv").status_code == 403
    assert concert.name not in client.get("/admin/").content.decode()
    assert client.get("/admin/events/event/999999/dashboard/").status_code == 404
    assert client.get(f"/admin/events/event/{concert.id}/nonsense.csv").status_code == 404


def test_visitors_and_buyers_are_sent_to_the_log_in(concert: events.EventView) -> None:
    for client in (Client(), client_of(User.objects.create_user("buyer"))):
        assert client.get(dashboard(concert)).status_code in (302, 403)
        assert client.get(f"/admin/events/event/{concert.id}/orders.csv").status_code in (302, 403)


@pytest.mark.parametrize("role", list(Role))
def test_the_home_page_has_the_users_events_and_create_event_for_organizers(
    concert: events.EventView, role: Role
) -> None:
    page = member(role).get("/admin/").content.decode()
    assert dashboard(concert) in page
    assert ('href="/admin/events/event/add/"' in page) == (role == Role.ORGANIZER)
    assert ('action="/admin/orders/order/"' in page) == ("Revenue" in SEEN[role])
    assert ("<dt>Revenue</dt>" in page) == ("Revenue" in SEEN[role])


def test_exports_have_every_row_and_no_code(concert: events.EventView) -> None:
    order = buy(factories.hold(concert, seats=["hall-A-1"], ga_section="floor", ga_quantity=2))
    Order.objects.filter(pk=order.pk).update(name='=HYPERLINK("http://evil.example","x")')
    client = member(Role.ORGANIZER)
    url = f"/admin/events/event/{concert.id}"
    response = client.get(f"{url}/orders.csv")
    assert response["Content-Disposition"] == 'attachment; filename="orders-concert.csv"'
    assert "no-store" in response["Cache-Control"]
    (row,) = rows_of(response)
    assert (row["Order"], row["Tickets"], row["Email"], row["Currency"]) == (order.number, "3", order.email, "USD")
    assert row["Total"] == f"{order.total_minor / 100:.2f}"
    assert row["Name"].startswith("'=HYPERLINK")
    tickets = rows_of(client.get(f"{url}/tickets.csv"))
    attendees = rows_of(client.get(f"{url}/attendees.csv"))
    assert (len(tickets), len(attendees)) == (3, 3)
    assert {ticket["State"] for ticket in tickets} == {"valid"}
    text = f"{tickets}{attendees}{row}"
    for code in Ticket.objects.values_list("code", flat=True):
        assert code not in text


def test_exports_are_recorded_and_need_a_recent_authentication(concert: events.EventView, settings: Any) -> None:
    client, url = member(Role.ORGANIZER), f"/admin/events/event/{concert.id}/attendees.csv"
    assert rows_of(client.get(url)) == []
    reads = SecurityEvent.objects.filter(kind=SecurityEvent.Kind.PERSONAL_DATA_READ)
    assert list(reads.values_list("detail", flat=True)) == [url]
    settings.REAUTHENTICATION_SECONDS = 900
    assert client.get(url).status_code == 302
    assert reads.count() == 1


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("=1+1", "'=1+1"), ("+1", "'+1"), ("-1", "'-1"), ("@SUM(A1)", "'@SUM(A1)"), ("\t=1", "'\t'=1"),
        ("  =1", "'  =1"), ("\r=1", "'\r'=1"), ("＝1", "'＝1"), ("\x00=1", "'=1"), ("Ada = Bob", "Ada = Bob"), ("", ""),
    ],
)  # fmt: skip
def test_no_cell_is_a_formula(text: str, safe: str) -> None:
    assert safe_cell(text) == safe


def test_a_draft_has_a_dashboard_without_figures() -> None:
    client = client_of(User.objects.create_superuser("admin"))
    draft = create_event(spec(draft=True)).event_id
    page = client.get(f"/admin/events/event/{draft}/dashboard/").content.decode()
    assert "The figures appear when the event is published" in page
    assert f"/admin/events/event/{draft}/publish/" in page
    assert "Not published" in client.get("/admin/").content.decode()


def test_a_current_dashboard_reads_little(concert: events.EventView, django_assert_max_num_queries: Any) -> None:
    buy(factories.hold(concert, seats=["hall-A-1"]))
    client = client_of(User.objects.create_superuser("admin"))
    assert client.get(dashboard(concert)).status_code == 200
    with django_assert_max_num_queries(20) as captured:
        assert client.get(dashboard(concert)).status_code == 200
    counted = [query["sql"] for query in captured if "orders_ticket" in query["sql"] or "seatinventory" in query["sql"]]
    assert not counted
