"""Staff who log in at the admin are logged in on the site, with links to what each role manages; public pages stay the
same for all visitors."""

from typing import Any

import pytest
from django.test import Client

from apps.events import facade as events
from apps.events.models import Organizer, Role
from tests.support import factories
from tests.support.orders.sale import SAME_ORIGIN

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORD = "right-horse-battery"
LINKS: dict[Role, list[str]] = {
    Role.ORGANIZER: ["Event dashboard", "Edit event", "Check in", "Dashboard"],
    Role.BOX_OFFICE: ["Event dashboard", "Check in", "Dashboard"],
    Role.DOOR: ["Event dashboard", "Check in", "Dashboard"],
    Role.FINANCE: ["Event dashboard", "Dashboard"],
    Role.READ_ONLY: ["Event dashboard", "Dashboard"],
}


@pytest.fixture
def concert() -> events.EventView:
    factories.make_organizer("opera")
    return factories.make_event("concert", general_admission=20, organizer="opera")


def logged_in_at_the_admin(role: Role, slug: str = "opera") -> Client:
    user = factories.make_member(Organizer.objects.get(slug=slug), role)
    user.set_password(PASSWORD)
    user.save()
    client = Client(headers=SAME_ORIGIN)
    to_log_in = client.get("/admin/", follow=True)
    form = {"username": user.get_username(), "password": PASSWORD, "next": "/admin/"}
    response = client.post(to_log_in.wsgi_request.path, form, follow=True)
    assert response.wsgi_request.path == "/admin/"
    return client


def header(client: Client) -> Any:
    return client.get("/api/me/header?path=/events/concert/&shared=1").json()


@pytest.mark.parametrize("role", list(Role))
def test_a_log_in_at_the_admin_counts_on_the_site(concert: events.EventView, role: Role) -> None:
    client = logged_in_at_the_admin(role)
    assert client.get("/accounts/").status_code == 200
    found = header(client)
    assert found["account"]["name"] == f"{role}@opera.example"
    assert [link["label"] for link in found["staff_links"]] == LINKS[role]
    for link in found["staff_links"]:
        assert client.get(link["url"]).status_code == 200, link


def test_members_of_other_organizers_get_no_links_to_an_event(concert: events.EventView) -> None:
    factories.make_organizer("ballet")
    client = logged_in_at_the_admin(Role.ORGANIZER, "ballet")
    assert [link["label"] for link in header(client)["staff_links"]] == ["Dashboard"]


def test_public_pages_are_the_same_for_staff(concert: events.EventView) -> None:
    client = logged_in_at_the_admin(Role.ORGANIZER)
    for path in ("/", "/events/concert/"):
        assert client.get(path).content == Client().get(path).content, path
