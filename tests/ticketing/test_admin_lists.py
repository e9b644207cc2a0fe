"""Every admin list, with URLs and forms that the UI cannot produce: they are refused and never fail with 500."""

import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.db import DataError, connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.kernel import admin_lists
from apps.kernel.admin_lists import BoundedPaginator, WholeTextSearchMixin
from apps.kernel.http import problems
from apps.orders.models import Order
from tests.support.factories import hold, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy
from ticketing import admin_errors

pytestmark = pytest.mark.django_db(transaction=True)
MODEL_ADMINS = sorted(admin.site._registry.values(), key=str)
OWN_ADMINS = [each for each in MODEL_ADMINS if each.opts.app_config.name.startswith("apps.")]
HOSTILE = ["\x00", "-1", "9" * 30, "ü%s{}"]
LOOKUPS = [("exact", "\x00"), ("exact", "9" * 30), ("exact", "abc"), ("gte", "\x00"), ("year", "-1"), ("isempty", "x")]
PARTS = ("year", "month", "day")
SMALL = {
    "Event", "Group", "LegalPage", "Membership", "Organizer", "SeatingPlan", "Synonym", "Venue", "WaitingRoom",
    "PeriodicTask",
}  # fmt: skip
"""Models of few rows, whose lists search for parts of words in all of them."""

DAYS = [("-1", "1", "1"), ("2026", "13", "1"), ("2026", "2", "31"), ("9999", "12", "31"), ("0", "0", "0")]


def url_name(model_admin: ModelAdmin) -> str:
    return f"{model_admin.opts.app_label}_{model_admin.opts.model_name}"


def filtered(model_admin: ModelAdmin) -> list[str]:
    """Return the fields that the list filters by, with its primary key."""
    fields = [one[0] if isinstance(one, tuple) else one for one in model_admin.list_filter]
    return [
        model_admin.opts.pk.name,
        *(field for field in fields if isinstance(field, str)),
        model_admin.date_hierarchy or "id",
    ]


def hostile_queries(model_admin: ModelAdmin) -> Iterator[str]:
    """Return query strings with hostile values for each filter field and for the parameters of every list."""
    for field in dict.fromkeys(filtered(model_admin)):
        for lookup, value in LOOKUPS:
            yield urlencode({f"{field}__{lookup}": value})
    for name in ("q", "p", "o", "_to_field", "nothing", "outcome"):
        for value in HOSTILE:
            yield urlencode({name: value})
    for day in DAYS if model_admin.date_hierarchy else ():
        yield urlencode(dict(zip((f"{model_admin.date_hierarchy}__{part}" for part in PARTS), day, strict=True)))


@pytest.mark.parametrize("model_admin", OWN_ADMINS, ids=url_name)
def test_a_list_is_filtered_by_declared_fields_alone(model_admin: ModelAdmin, admin_user: Any) -> None:
    request = RequestFactory().get("/")
    request.user = admin_user
    declared = filtered(model_admin)
    hidden = [field.name for field in model_admin.opts.concrete_fields if field.name not in declared]
    values = [name for name in hidden if not model_admin.opts.get_field(name).is_relation]
    for name in declared:
        assert model_admin.lookup_allowed(f"{name}__exact", "1", request), name
    for name in values:
        assert not model_admin.lookup_allowed(name, "1", request), name
        assert not model_admin.lookup_allowed(f"{name}__startswith", "1", request), name
    for name in declared:
        assert not model_admin.lookup_allowed(f"{name}__regex", "1", request), name
    for name in hidden:
        assert not model_admin.lookup_allowed(f"{name}__id__regex", "1", request), name


def test_a_ticket_is_not_found_by_the_beginning_of_its_code(admin_client: Client) -> None:
    buy(hold(make_event("concert"), seats=["hall-A-1"]))
    for lookup in ("code__startswith=A", "code__regex=^A", "order__ticket__code__startswith=A"):
        assert admin_client.get(f"/admin/orders/ticket/?{lookup}").status_code == 400, lookup


@pytest.mark.slow
def test_no_list_url_fails(admin_client: Client) -> None:
    wrong = {}
    for model_admin in MODEL_ADMINS:
        url = reverse(f"admin:{url_name(model_admin)}_changelist")
        for query in ("", "?e=1", *(f"?{query}" for query in hostile_queries(model_admin))):
            status = admin_client.get(url + query).status_code
            if status not in ((200,) if query in ("", "?e=1") else (200, 302, 400)):
                wrong[url + query] = status
    assert wrong == {}


@pytest.mark.slow
def test_no_action_fails_on_invalid_ids(admin_client: Client) -> None:
    wrong = {}
    for model_admin in MODEL_ADMINS:
        url = reverse(f"admin:{url_name(model_admin)}_changelist")
        for action in (*(model_admin.actions or []), "delete_selected"):
            name = action if isinstance(action, str) else action.__name__
            for value in ("\x00", "9" * 30, "abc", str(uuid.uuid4()), "-7"):
                sent = {"action": name, "_selected_action": [value], "index": "abc", "select_across": "0"}
                status = admin_client.post(url, sent, headers=SAME_ORIGIN).status_code
                if status not in (200, 302, 400):
                    wrong[url, name, value] = status
    assert wrong == {}


@pytest.mark.slow
def test_no_row_url_fails(admin_client: Client) -> None:
    wrong = {}
    for model_admin in MODEL_ADMINS:
        for value in ("_00", "-1", "9" * 30, "abc"):
            for page in ("change", "history"):
                url = reverse(f"admin:{url_name(model_admin)}_changelist") + f"{value}/{page}/"
                status = admin_client.get(url).status_code
                if status not in (200, 302, 400, 403, 404):
                    wrong[url] = status
    assert wrong == {}


def test_an_invalid_filter_redirects_to_the_unfiltered_list(admin_client: Client) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    for query in ("status__exact=%00", "placed_at__year=-1"):
        response = admin_client.get(f"/admin/orders/order/?{query}")
        assert (response.status_code, response["Location"]) == (302, "/admin/orders/order/?e=1")
    assert order.number in admin_client.get("/admin/orders/order/?e=1").content.decode()


def test_an_action_with_an_invalid_id_is_refused_before_it_starts(admin_client: Client) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    sent = {"action": "refund", "confirmed": "yes", "_selected_action": [str(order.pk), "abc"]}
    response = admin_client.post("/admin/orders/order/", sent, headers=SAME_ORIGIN)
    assert response.status_code == 400
    assert "selection contains invalid ids" in response.content.decode()
    assert Order.objects.get().status == Order.Status.CONFIRMED
    # The same selection without the invalid id.
    sent["_selected_action"] = [str(order.pk)]
    assert admin_client.post("/admin/orders/order/", sent, headers=SAME_ORIGIN).status_code == 302
    assert Order.objects.get().status == Order.Status.REFUNDED


def test_invalid_autocomplete_queries_are_refused(admin_client: Client) -> None:
    query = {"app_label": "orders", "model_name": "returnpolicy", "field_name": "event"}
    assert admin_client.get("/admin/autocomplete/", {**query, "term": "con"}).status_code == 200
    for term, page in (("\x00", "1"), ("x", "-1"), ("x", "\x00"), ("x", "9" * 30)):
        response = admin_client.get("/admin/autocomplete/", {**query, "term": term, "page": page})
        assert response.status_code in (200, 400, 404), (term, page)


def test_an_error_without_query_parameters_is_raised(rf: RequestFactory) -> None:
    def fail(request: Any) -> Any:
        raise DataError("ours")

    with pytest.raises(DataError):
        admin_errors.refuse_invalid_input(fail)(rf.get("/admin/"))
    with pytest.raises(DataError):
        admin_errors.refuse_invalid_input(fail)(rf.post("/admin/", {"a": "b"}))
    with pytest.raises(problems.Malformed):
        admin_errors.refuse_invalid_input(fail)(rf.get("/admin/?a=b"))


@pytest.mark.parametrize(
    "query", ["q=" + "+".join("abcdefghi"), "q=" + 201 * "a", "term=" + 60 * "'a'b", "o=" + 2_000 * "1."]
)
@pytest.mark.parametrize("path", ["/admin/orders/order/", "/admin/autocomplete/", "/admin/events/event/"])
def test_long_searches_and_addresses_are_refused_before_a_query(admin_client: Client, query: str, path: str) -> None:
    with CaptureQueriesContext(connection) as queries:
        response = admin_client.get(f"{path}?{query}")
    assert response.status_code == 400
    assert not [one for one in queries if "LIKE" in one["sql"] or "orders_order" in one["sql"]]


def test_a_search_of_eight_words_is_answered(admin_client: Client) -> None:
    assert admin_client.get("/admin/orders/order/?q=a+b+c+d+e+f+g+h").status_code == 200


@pytest.mark.parametrize("model_admin", MODEL_ADMINS, ids=url_name)
def test_no_list_counts_facets(model_admin: ModelAdmin, admin_user: Any) -> None:
    """With 450,000 seats, facets and eight words of search held a thread of the site for 15 seconds."""
    request = RequestFactory().get("/", {"_facets": "True"})
    request.user = admin_user
    shown = model_admin.get_changelist_instance(request)
    assert (shown.add_facets, shown.is_facets_optional) == (False, False)


def test_searches_of_large_tables_are_bounded() -> None:
    """Also of one that is registered later."""
    large = [one for one in MODEL_ADMINS if one.search_fields and one.model.__name__ not in SMALL]
    assert len(large) > 20
    assert [str(one) for one in large if not isinstance(one, WholeTextSearchMixin)] == []
    assert [str(one) for one in large if one.paginator is not BoundedPaginator] == []
    assert [str(one) for one in large if one.show_full_result_count] == []


def test_a_search_compares_complete_values_by_their_index(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = buy(hold(make_event("concert"), seats=["hall-A-1"]))
    other = buy(hold(make_event("hamlet"), seats=["hall-A-1"]), email="other@example.org", name="O'Hara Lee")
    found = {
        order.number: [order],
        f"  {other.number.lower()} ": [other],
        order.number[:-1]: [],
        "OTHER@example.org": [other],
        "example.org": [],
        str(order.reservation_id).upper(): [order],
        "hara lee": [other],
        f"{order.number} {other.number}": [],
    }
    for text, orders in found.items():
        with CaptureQueriesContext(connection) as queries:
            response = admin_client.get("/admin/orders/order/", {"q": text})
        assert list(response.context["cl"].queryset) == orders, text
        searches = [one["sql"] for one in queries if " UNION " in one["sql"]]
        assert searches, text
        for sql in searches:
            assert sql.count("UPPER(") <= 2, "only the name"
    for model, row in (("payment", order.payments.get()), ("ticket", order.tickets.get())):
        listed = admin_client.get(f"/admin/orders/{model}/", {"q": order.number}).context["cl"]
        assert list(listed.queryset) == [row]
    # A text in more rows than a list shows finds a part of them.
    with monkeypatch.context() as patch:
        patch.setattr(admin_lists, "COUNTED_MAX", 1)
        assert admin_client.get("/admin/orders/order/?q=a").context["cl"].queryset.count() == 1
    # No text is an id of these.
    assert list(admin_client.get("/admin/reservations/reservation/?q=%C3%BC").context["cl"].queryset) == []
