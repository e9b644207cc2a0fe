"""Every page of the staff's site, on a desktop and on a phone, in both themes: axe finds nothing, no content policy is
violated, and no page scrolls sideways."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.events import facade as events
from apps.events.creation import create_event
from apps.events.models import Role
from apps.kernel.checks import auditor, reconciler
from apps.orders.models import Order
from apps.queue.entries import vip_links
from apps.reservations.staff import stock
from apps.reservations.staff.selection import Selection
from tests.browser.accessibility import find_violations
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.support import factories
from tests.support.events.factories import spec
from tests.support.orders.sale import buy, make_code
from ticketing.admin_navigation import GROUPS

if TYPE_CHECKING:
    from tests.conftest import Pages

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

SIZES = ((1440, 900), (360, 740))


@pytest.fixture
def staff(live_site: str, settings: Any) -> Client:
    settings.REAUTHENTICATION_SECONDS = 0
    client = Client(headers={"sec-fetch-site": "same-origin"})
    client.force_login(User.objects.create_superuser("admin", "admin@example.com", "secret"))
    return client


@pytest.fixture
def concert() -> events.EventView:
    """An event on sale, with rows in most tables of the admin."""
    opera = factories.make_organizer("opera", "An opera house with quite a long name")
    event = factories.make_event("concert", general_admission=20, organizer="opera")
    buy(factories.hold(event, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=1))
    factories.hold(event, seats=["hall-A-3"])
    factories.make_member(opera, Role.DOOR)
    make_code(event)
    Group.objects.create(name="Support")
    factories.make_access_code(event, "floor")
    vip_links.make_link(event.id, note="The band", hours=2, who="admin")
    stock.block_seats(event, Selection(("hall-A-9",)), "house", who="admin", why="camera")
    auditor.run_and_record()
    reconciler.run_and_record()
    return event


def client_pages(labels: tuple[str, ...]) -> Iterator[str]:
    """Yield the list, the form for a new row, and the pages of one row of each model."""
    for model, model_admin in admin.site._registry.items():
        if model._meta.label_lower not in labels:
            continue
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        yield reverse(f"{name}_changelist")
        yield reverse(f"{name}_add")
        row = model_admin.get_queryset(_superuser_request()).order_by("-pk").first()
        if row is not None:
            for page in ("change", "history", "delete"):
                yield reverse(f"{name}_{page}", args=[row.pk])


def _superuser_request() -> Any:
    from django.test import RequestFactory

    request = RequestFactory().get("/admin/")
    request.user = User.objects.get(username="admin")
    return request


def special_pages(event: events.EventView) -> list[str]:
    """Return the pages that are not Django's."""
    order = Order.objects.get()
    draft = create_event(spec(draft=True)).event_id
    root = "/admin/events/event"
    return [
        "/admin/",
        *(f"/admin/groups/{group.slug}/" for group in GROUPS),
        *(f"{root}/{event.id}/dashboard/{query}" for query in ("", "?period=day", "?period=all")),
        f"{root}/{event.id}/changes/",
        f"{root}/{draft}/dashboard/",
        f"{root}/{draft}/publish/",
        f"{root}/{draft}/change/",
        f"/admin/orders/order/{order.pk}/money/",
        f"/admin/orders/eventcancellation/add/?event={event.id}",
        reverse("admin:reservations_stock", args=[event.id]),
        reverse("admin:events_announcements", args=[event.id]),
        "/admin/orders/order/?q=nothing-is-found",
        "/admin/orders/order/?status__exact=confirmed",
        f"/admin/accounts/user/{User.objects.get(username='admin').pk}/password/",
    ]


def visit_all(urls: list[str], staff: Client, site: str, browser_page: "Pages", settings: Any) -> None:
    """Open each page in both sizes and themes, and fail with everything that is found."""
    cookie = staff.cookies[settings.SESSION_COOKIE_NAME]
    found: list[str] = []
    opened = 0
    for width, height in SIZES:
        page = browser_page(width, height)
        page.context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": site}])
        for url in urls:
            response = page.goto(f"{site}{url}")
            assert response is not None
            if response.status == 403:
                continue  # A page that not even superusers have: rows that only services write.
            assert response.status == 200, (url, response.status)
            opened += 1
            found += find_violations(browser_page, page)
            try:
                assert_nothing_sticks_out(page)
            except AssertionError as error:
                found.append(f"{url}: {error}")
        page.context.close()
    assert opened >= len(SIZES)
    assert not found, f"{len(found)} findings:\n" + "\n".join(found)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.slug)
def test_the_pages_of_a_group_are_accessible(
    group: Any,
    concert: events.EventView,
    staff: Client,
    live_site: str,
    browser_page: "Pages",
    settings: Any,
) -> None:
    visit_all(list(client_pages((*group.models, *group.records))), staff, live_site, browser_page, settings)


def test_the_special_pages_are_accessible(
    concert: events.EventView, staff: Client, live_site: str, browser_page: "Pages", settings: Any
) -> None:
    visit_all(special_pages(concert), staff, live_site, browser_page, settings)


def test_confirmations_are_accessible(
    concert: events.EventView, staff: Client, live_site: str, browser_page: "Pages", settings: Any
) -> None:
    """Pages that only a form leads to: an action's confirmation, the deletion of several rows, a form with errors."""
    cookie = staff.cookies[settings.SESSION_COOKIE_NAME]
    found = []
    for width, height in SIZES:
        page = browser_page(width, height)
        page.context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": live_site}])
        for url, action in (("orders/order", "reissue"), ("auth/group", "delete_selected")):
            page.goto(f"{live_site}/admin/{url}/")
            page.locator("input.action-select").first.check()
            page.locator("select[name=action]").first.select_option(action)
            page.get_by_role("button", name="Go").first.click()
            page.locator("input[name=post], input[name=confirmed]").first.wait_for(state="attached")
            found += find_violations(browser_page, page)
        page.goto(f"{live_site}/admin/events/venue/add/")
        page.locator("input[name=_save]").click()
        page.locator(".errornote").wait_for()
        found += find_violations(browser_page, page)
        page.context.close()
    assert not found, "\n".join(found)


def test_the_menu_opens_on_a_phone_without_scripts(
    concert: events.EventView, staff: Client, live_site: str, browser_page: "Pages", settings: Any
) -> None:
    cookie = staff.cookies[settings.SESSION_COOKIE_NAME]
    page = browser_page(360, 740, javascript=False)
    page.context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": live_site}])
    page.goto(f"{live_site}/admin/")
    menu = page.get_by_role("navigation", name="Staff")
    assert not menu.is_visible()
    page.get_by_role("link", name="Menu", exact=True).click()
    menu.get_by_role("link", name="Orders", exact=True).click()
    page.get_by_role("heading", name="Orders", exact=True, level=1).wait_for()
    page.goto(f"{live_site}/admin/events/event/{concert.id}/dashboard/")
    assert page.locator("svg.plot rect").count() == 1
    page.get_by_role("link", name="Last day").click()
    page.get_by_role("heading", name="Tickets sold per 15 minutes").wait_for()
