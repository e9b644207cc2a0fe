"""Every list of the staff's site, asked for what nobody can click together: it refuses, and never fails."""

import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.db import DataError
from django.test import Client, RequestFactory
from django.urls import reverse

from apps.kernel.http import problems
from apps.orders.models import Order
from tests.support.factories import hold, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy
from ticketing import admin_errors

pytestmark = pytest.mark.django_db(transaction=True)
DESKS = sorted(admin.site._registry.values(), key=str)
HOSTILE = ["\x00", "-1", "9" * 30, "ü%s{}"]
LOOKUPS = [("exact", "\x00"), ("exact", "9" * 30), ("exact", "abc"), ("gte", "\x00"), ("year", "-1"), ("isempty", "x")]
PARTS = ("year", "month", "day")

DAYS = [("-1", "1", "1"), ("2026", "13", "1"), ("2026", "2", "31"), ("9999", "12", "31"), ("0", "0", "0")]


def named(desk: ModelAdmin) -> str:
    return f"{desk.opts.app_label}_{desk.opts.model_name}"


def filtered(desk: ModelAdmin) -> list[str]:
    """The fields that the list filters by, its key among them."""
    fields = [one[0] if isinstance(one, tuple) else one for one in desk.list_filter]
    return [desk.opts.pk.name, *(field for field in fields if isinstance(field, str)), desk.date_hierarchy or "id"]


def addresses(desk: ModelAdmin) -> Iterator[str]:
    """What a list might be asked for: of each of its fields, and of what every list takes."""
    for field in dict.fromkeys(filtered(desk)):
        for lookup, value in LOOKUPS:
            yield urlencode({f"{field}__{lookup}": value})
    for name in ("q", "p", "o", "_to_field", "nothing", "outcome"):
        for value in HOSTILE:
            yield urlencode({name: value})
    for day in DAYS if desk.date_hierarchy else ():
        yield urlencode(dict(zip((f"{desk.date_hierarchy}__{part}" for part in PARTS), day, strict=True)))


@pytest.mark.slow
def test_no_address_of_a_list_fails(admin_client: Client) -> None:
    wrong = {}
    for desk in DESKS:
        address = reverse(f"admin:{named(desk)}_changelist")
        for asked in ("", "?e=1", *(f"?{asked}" for asked in addresses(desk))):
            status = admin_client.get(address + asked).status_code
            if status not in ((200,) if asked in ("", "?e=1") else (200, 302, 400)):
                wrong[address + asked] = status
    assert wrong == {}


@pytest.mark.slow
def test_no_action_fails_on_ids_that_are_none(admin_client: Client) -> None:
    wrong = {}
    for desk in DESKS:
        address = reverse(f"admin:{named(desk)}_changelist")
        for action in (*(desk.actions or []), "delete_selected"):
            name = action if isinstance(action, str) else action.__name__
            for value in ("\x00", "9" * 30, "abc", str(uuid.uuid4()), "-7"):
                sent = {"action": name, "_selected_action": [value], "index": "abc", "select_across": "0"}
                status = admin_client.post(address, sent, headers=SAME_ORIGIN).status_code
                if status not in (200, 302, 400):
                    wrong[address, name, value] = status
    assert wrong == {}


@pytest.mark.slow
def test_no_row_s_address_fails(admin_client: Client) -> None:
    wrong = {}
    for desk in DESKS:
        for value in ("_00", "-1", "9" * 30, "abc"):
            for page in ("change", "history"):
                address = reverse(f"admin:{named(desk)}_changelist") + f"{value}/{page}/"
                status = admin_client.get(address).status_code
                if status not in (200, 302, 400, 403, 404):
                    wrong[address] = status
    assert wrong == {}


def test_a_filter_that_cannot_be_shows_the_list_unfiltered_and_says_so(admin_client: Client) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    for asked in ("status__exact=%00", "placed_at__year=-1"):
        answer = admin_client.get(f"/admin/orders/order/?{asked}")
        assert (answer.status_code, answer["Location"]) == (302, "/admin/orders/order/?e=1")
    assert order.number in admin_client.get("/admin/orders/order/?e=1").content.decode()


def test_an_action_on_no_row_is_refused_with_a_page_before_it_begins(admin_client: Client) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    sent = {"action": "refund", "confirmed": "yes", "_selected_action": [str(order.pk), "abc"]}
    answer = admin_client.post("/admin/orders/order/", sent, headers=SAME_ORIGIN)
    assert answer.status_code == 400
    assert "selection contains invalid ids" in answer.content.decode()
    assert Order.objects.get().status == Order.Status.CONFIRMED
    # The same without the stray id.
    sent["_selected_action"] = [str(order.pk)]
    assert admin_client.post("/admin/orders/order/", sent, headers=SAME_ORIGIN).status_code == 302
    assert Order.objects.get().status == Order.Status.REFUNDED


def test_suggestions_for_what_cannot_be_typed_are_refused(admin_client: Client) -> None:
    asked = {"app_label": "orders", "model_name": "returnpolicy", "field_name": "event"}
    assert admin_client.get("/admin/autocomplete/", {**asked, "term": "con"}).status_code == 200
    for term, page in (("\x00", "1"), ("x", "-1"), ("x", "\x00"), ("x", "9" * 30)):
        answer = admin_client.get("/admin/autocomplete/", {**asked, "term": term, "page": page})
        assert answer.status_code in (200, 400, 404), (term, page)


def test_a_fault_of_ours_stays_a_fault_where_nobody_asked_for_anything_odd(rf: RequestFactory) -> None:
    def fail(request: Any) -> Any:
        raise DataError("ours")

    with pytest.raises(DataError):
        admin_errors.refuse_invalid_input(fail)(rf.get("/admin/"))
    with pytest.raises(DataError):
        admin_errors.refuse_invalid_input(fail)(rf.post("/admin/", {"a": "b"}))
    with pytest.raises(problems.Malformed):
        admin_errors.refuse_invalid_input(fail)(rf.get("/admin/?a=b"))
