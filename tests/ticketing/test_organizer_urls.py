"""Every URL of the site outside the admin: a member of one organizer has no more access to another organizer's events
than any account, and only the listed URLs give more access to a member than to a buyer."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from apps.events.models import Role
from apps.orders.models import ReportVersion
from tests.support import factories
from tests.support.events.organizer_rows import Rows, make_rows
from tests.support.orders.sale import SAME_ORIGIN

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
STAFF_URLS = {"check_in", "orders_api_check_in", "orders_api_check_in_batch"}
"""The URLs outside the admin that give members more access than buyers."""
OWN = ("admin/", "accounts/", "api/auth/")
"""Beginnings of URLs without an organizer's rows: log-in, log-out and the user's own account. The admin has its own
tests."""
BODY: dict[str, Any] = {"scans": [{"scan_id": "s", "code": "x"}], "scan_id": "s", "code": "x"}


def patterns(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    for found in resolver.url_patterns:
        route = prefix + str(found.pattern).lstrip("^")
        if isinstance(found, URLResolver):
            yield from patterns(found, route)
        elif not route.startswith(OWN):
            yield route, found


def values_of(rows: Rows) -> dict[str, Any]:
    """Return values for the parameters of all URLs. A new parameter must be added."""
    return {
        "slug": rows.sale.slug, "event": rows.sale.slug, "order_id": rows.order.pk, "code": rows.ticket.code,
        "reservation_id": rows.order.reservation_id, "number": rows.order.invoices.get(kind="invoice").number,
        "transfer_id": rows.other.tickets.get().transfers.get().pk, "receipt_handle": rows.order.pk,
        "section": "hall", "token": "x", "kind": "terms", "provider": "sandbox", "name": "x",
        "feed": f"{rows.organizer.slug}-jobs",
    }  # fmt: skip


def urls_of(rows: Rows) -> Iterator[tuple[str, str]]:
    """Return name and path of every URL with this organizer's identifiers."""
    values = values_of(rows)
    for route, found in patterns(get_resolver()):
        names = found.pattern.regex.groupindex
        assert names.keys() <= values.keys(), f"add the parameters of {route} to this test"
        path = route
        for name in names:
            path = _filled(path, name, str(values[name]))
        yield str(found.name), "/" + path.rstrip("$\\Z")


def _filled(route: str, name: str, value: str) -> str:
    """Put the value in the place of `<name>`, `<type:name>` or `(?P<name>...)`."""
    for opening, closing in (("(?P<" + name + ">", ")"), ("<", name + ">")):
        start = route.find(opening) if closing == ")" else route.find(closing)
        if start < 0:
            continue
        if closing == ")":
            return route[:start] + value + route[route.index(")", start) + 1 :]
        return route[: route.rindex("<", 0, start)] + value + route[start + len(closing) :]
    raise AssertionError((route, name))


def statuses(user: Any, rows: Rows) -> dict[tuple[str, str], int]:
    """Return the status of GET and POST at every URL, by the URL's name and the method."""
    found = {}
    for name, path in urls_of(rows):
        client = Client(raise_request_exception=False, headers=SAME_ORIGIN)  # A request leaves no cookie for the next.
        client.force_login(user)
        found[name, "GET"] = client.get(path).status_code
        found[name, "POST"] = client.post(path, BODY, content_type="application/json").status_code
    return found


def test_only_the_listed_urls_give_a_member_more_access_than_a_buyer() -> None:
    alpha, beta = make_rows("alpha", "Alphamark"), make_rows("beta", "Betamark")
    ReportVersion.objects.all().delete()  # They have no content, which the public page would read.
    member = factories.make_member(alpha.organizer, Role.ORGANIZER)
    buyers = [get_user_model().objects.create_user(f"buyer-{number}") for number in range(2)]
    stranger = statuses(buyers[0], beta)
    assert len(stranger) > 80
    assert not [key for key, status in stranger.items() if status == 500]
    assert statuses(member, beta) == stranger
    of_buyer, of_member = statuses(buyers[1], alpha), statuses(member, alpha)
    assert {key[0] for key in of_buyer if of_buyer[key] != of_member[key]} == STAFF_URLS
