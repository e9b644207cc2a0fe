"""The navigation of the staff's site: every page is in one group, and each role sees exactly its pages."""

from typing import Any

import pytest
from django.contrib import admin
from django.test import Client, RequestFactory

from apps.accounts.models import User
from apps.events.models import Role
from apps.events.organizers.roles import ROLE_PERMISSIONS
from tests.support import factories
from tests.support.orders.sale import SAME_ORIGIN
from ticketing.admin_navigation import GROUPS


def navigation_of(user: Any) -> dict[str, str]:
    """Return the group of each page that the navigation shows to the user, by the address of the page."""
    request = RequestFactory().get("/admin/")
    request.user = user
    return {item.url: group.slug for group in admin.site.navigation(request) for item in group.items}  # type: ignore[attr-defined]


def address(model: Any) -> str:
    return f"/admin/{model._meta.app_label}/{model._meta.model_name}/"


def test_the_groups_name_every_page_once() -> None:
    named = [label for group in GROUPS for label in (*group.models, *group.records)]
    assert sorted(named) == sorted(model._meta.label_lower for model in admin.site._registry)
    assert [group.name for group in GROUPS] == ["Events", "Orders", "People", "Money", "Check-in", "System"]


@pytest.mark.django_db
def test_superusers_see_every_page() -> None:
    shown = navigation_of(User.objects.create_superuser("admin"))
    assert set(shown) == {address(model) for model in admin.site._registry}


@pytest.mark.django_db
@pytest.mark.parametrize("role", list(Role))
def test_a_role_sees_exactly_the_pages_that_it_may_open(role: Role) -> None:
    user = factories.make_member(factories.make_organizer(), role)
    verbs = ("view", "change")
    expected = {
        address(model)
        for model in admin.site._registry
        if any(f"{model._meta.app_label}.{verb}_{model._meta.model_name}" in ROLE_PERMISSIONS[role] for verb in verbs)
    }
    assert set(navigation_of(user)) == expected
    client = Client(headers=SAME_ORIGIN)
    client.force_login(user)
    page = client.get("/admin/").content.decode()
    for group in GROUPS:
        may_open = any(label in {url[len("/admin/") :].rstrip("/").replace("/", ".") for url in expected}
                       for label in (*group.models, *group.records))  # fmt: skip
        url = f"/admin/groups/{group.slug}/"
        assert (f'href="{url}"' in page) == may_open, group.slug
        assert client.get(url).status_code == (200 if may_open else 404), group.slug


@pytest.mark.django_db
def test_the_page_of_an_app_leads_to_the_dashboard() -> None:
    client = Client(headers=SAME_ORIGIN)
    client.force_login(User.objects.create_superuser("admin"))
    response = client.get("/admin/orders/")
    assert (response.status_code, response["Location"]) == (302, "/admin/")
    assert client.get("/admin/nonsense/").status_code == 404
    assert client.get("/admin/groups/nonsense/").status_code == 404


@pytest.mark.django_db
def test_a_page_is_marked_in_the_navigation_and_in_the_path() -> None:
    client = Client(headers=SAME_ORIGIN)
    client.force_login(User.objects.create_superuser("admin"))
    page = client.get("/admin/orders/refund/").content.decode()
    assert '<a href="/admin/orders/refund/" aria-current="page">' in page
    assert '<a href="/admin/groups/money/">Money</a> &rsaquo; <span>Refunds</span>' in page
    assert "/admin/orders/ticket/" not in page
