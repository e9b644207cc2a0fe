"""Members of one organizer see and change nothing of another: every list, page, form, filter and action of the admin,
and check-in."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.test import Client, RequestFactory
from django.urls import reverse

from apps.events.models import Event, Membership, Role, Venue
from apps.events.organizers.admin_scope import OrganizerScopedAdmin
from apps.events.organizers.roles import ROLE_PERMISSIONS
from apps.kernel.scheduler.models import TaskFile
from apps.orders.models import Refund, Ticket
from tests.support import factories
from tests.support.events.organizer_rows import Rows, admin_url, make_rows, scoped_admins, snapshot
from tests.support.orders.sale import SAME_ORIGIN

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
POSTED: tuple[dict[str, str] | None, ...] = (
    None,
    {"action": "post", "text": "x", "key": "k"},
    {"action": "goodwill", "amount": "1", "seen": "1"},
    {"action": "switch_off", "confirmed": "yes"},
    {"action": "guard", "section": "hall"},
)
DJANGO_ACTS = ("view", "add", "change", "delete")
DJANGO_PAGES = ("changelist", "add", "history", "delete", "change")
HIDDEN = (302, 403, 404)
"""Django redirects from the page of an unknown row to the index."""


@pytest.fixture
def alpha() -> Rows:
    return make_rows("alpha", "Alphamark")


@pytest.fixture
def beta() -> Rows:
    return make_rows("beta", "Betamark")


def client_of(user: Any) -> Client:
    client = Client(headers=SAME_ORIGIN)
    client.force_login(user)
    return client


def member_of(rows: Rows, role: Role = Role.ORGANIZER) -> Client:
    return client_of(factories.make_member(rows.organizer, role))


def pages_of(model_admin: OrganizerScopedAdmin, key: Any) -> Iterator[str]:
    for page in ("change", "history", "delete"):
        yield admin_url(model_admin, page, key)


CUSTOM_PAGES: dict[str, Callable[[Rows], Any]] = {
    "reservations_stock": lambda rows: rows.sale.id,
    "events_announcements": lambda rows: rows.sale.id,
    "events_tasks": lambda rows: rows.sale.id,
    "events_task_file": lambda rows: TaskFile.objects.get(run__task__event_id=rows.sale.id).pk,
    "events_prices": lambda rows: rows.sale.id,
    "events_publish": lambda rows: rows.sale.id,
    "events_changes": lambda rows: rows.sale.id,
    "events_demand": lambda rows: rows.sale.id,
    "events_preview": lambda rows: rows.sale.id,
    "events_preview_map": lambda rows: rows.sale.id,
    "events_preview_plan": lambda rows: rows.sale.id,
    "events_preview_status": lambda rows: rows.sale.id,
    "events_preview_poster": lambda rows: rows.sale.id,
    "orders_order_act": lambda rows: rows.order.pk,
    "orders_refund_desk": lambda rows: rows.order.pk,
    "queue_waitingroom_act": lambda rows: rows.room.id,
    "orders_invoice_pdf": lambda rows: rows.order.invoices.get(kind="invoice").pk,
}
"""The pages of a row that are not Django's, with the key in their URLs."""


def custom_urls(rows: Rows) -> list[str]:
    return [reverse(f"admin:{name}", args=[key(rows)]) for name, key in CUSTOM_PAGES.items()]


def test_every_admin_of_an_event_is_confined_or_closed_to_members() -> None:
    """A new admin page must be confined, or belong to a model of which no role has a permission."""
    given = {permission for permissions in ROLE_PERMISSIONS.values() for permission in permissions}
    shared = {"events.view_venue", "events.add_venue"}  # Venues are shared by all organizers.
    for model, model_admin in admin.site._registry.items():
        if not isinstance(model_admin, OrganizerScopedAdmin):
            label, name = model._meta.app_label, model._meta.model_name
            own = {f"{label}.{verb}_{name}" for verb in ("view", "add", "change", "delete")}
            assert not own & given - shared, f"{model._meta.label} is not confined"


def test_every_custom_page_of_the_admin_is_in_this_test() -> None:
    found = {
        url.name
        for model, model_admin in admin.site._registry.items()
        for url in model_admin.get_urls()
        if getattr(url, "name", None)
        if url.name.removeprefix(f"{model._meta.app_label}_{model._meta.model_name}_") not in DJANGO_PAGES
    }
    # One belongs to accounts; the other has no row in its path, and tests/events/admin_pages has its test.
    assert found == {*CUSTOM_PAGES, "auth_user_password_change", "events_buyer_price"}


def test_every_action_of_the_admin_names_its_permissions() -> None:
    """An action without permissions would run on all rows that the user sees."""
    for model_admin in scoped_admins():
        for action, name, _ in model_admin._get_base_actions():
            acts = getattr(action, "allowed_permissions", ())
            assert acts, (model_admin.opts.label, name)
            known = {*DJANGO_ACTS, *model_admin.action_permissions}
            assert known.issuperset(acts), (model_admin.opts.label, name)


@pytest.mark.parametrize("role", Role.values)
def test_admin_pages_that_are_not_confined_are_closed_to_members(alpha: Rows, role: str) -> None:
    client = member_of(alpha, Role(role))
    for model, model_admin in admin.site._registry.items():
        if isinstance(model_admin, OrganizerScopedAdmin) or model is Venue:
            continue
        row = model._default_manager.order_by("pk").first()
        for page, keys in (("changelist", ()), ("add", ()), ("change", (1 if row is None else row.pk,))):
            url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=keys)
            status = client.get(url).status_code
            assert status == 403 or (row is None and page == "change" and status == 302), url


def test_ids_in_the_forms_of_an_orders_money_are_those_of_the_order(alpha: Rows, beta: Rows) -> None:
    client = member_of(alpha, Role.FINANCE)
    Refund.objects.filter(order=beta.order).update(status=Refund.Status.FAILED)
    refund, ticket = Refund.objects.get(order=beta.order), beta.order.tickets.order_by("pk")[0]
    before = snapshot(beta)
    url = reverse("admin:orders_refund_desk", args=[alpha.order.pk])
    for form, status in (
        ({"action": "paid_out", "refund": str(refund.pk), "note": "cash"}, 409),
        ({"action": "again", "refund": str(refund.pk)}, 409),
        ({"action": "return", "ticket": [ticket.pk], "seen": "0"}, 422),
    ):
        assert client.post(url, form).status_code == status, form
    assert snapshot(beta) == before


@pytest.mark.parametrize("role", Role.values)
def test_lists_and_rows_of_another_organizer_are_hidden(alpha: Rows, beta: Rows, role: str) -> None:
    client = member_of(alpha, Role(role))
    before = snapshot(beta)
    for model_admin in scoped_admins():
        label = model_admin.opts.label
        rows = beta.of(model_admin)
        assert rows or label in ("orders.ProviderMessage",), f"the test has no row of {label}"
        may_view = {f"{model_admin.opts.app_label}.{verb}_{model_admin.opts.model_name}" for verb in ("view", "change")}
        response = client.get(admin_url(model_admin))
        assert response.status_code == (200 if may_view & ROLE_PERMISSIONS[Role(role)] else 403), label
        for query in ("", "?_facets=True", "?q=betamark", "?q=beta"):
            _assert_hidden(beta, client.get(admin_url(model_admin) + query), label)
        _assert_hidden(beta, client.get(admin_url(model_admin, "add")), label)
        # A list has up to a hundred seats, which differ in nothing that matters here.
        for row in (*rows[:1], *rows[-1:]):
            for url in pages_of(model_admin, row.pk):
                for method in (client.get, client.post):
                    response = method(url)
                    assert response.status_code in HIDDEN, (url, response.status_code)
                    assert response.status_code != 302 or response["Location"] in ("/admin/",), url
    assert snapshot(beta) == before


def _assert_hidden(rows: Rows, response: Any, label: str) -> None:
    text = response.content.decode(errors="replace")
    assert rows.marker not in text, label
    assert rows.marker.upper() not in text, label
    assert str(rows.order.pk) not in text, label
    assert rows.order.number not in text, label


def test_the_rows_of_this_test_are_visible_to_their_own_members_and_to_superusers(alpha: Rows, beta: Rows) -> None:
    """Otherwise the tests of hidden rows would prove nothing."""
    for client, seen in (
        (member_of(beta), (beta,)),
        (client_of(get_user_model().objects.create_superuser("root")), (alpha, beta)),
    ):
        page = client.get("/admin/events/event/").content.decode()
        assert all(rows.marker in page for rows in seen)
        for rows in seen:
            assert client.get(f"/admin/orders/order/{rows.order.pk}/change/").status_code == 200
            for url in custom_urls(rows):
                # 405: a page that only accepts actions.
                assert client.get(url).status_code in (200, 302, 405), url


@pytest.mark.parametrize("role", Role.values)
def test_custom_pages_of_another_organizer_are_refused(alpha: Rows, beta: Rows, role: str) -> None:
    client = member_of(alpha, Role(role))
    before = snapshot(beta)
    for url in custom_urls(beta):
        for sent in POSTED:
            response = client.get(url) if sent is None else client.post(url, sent)
            refused = (403, 404, 405) if sent is None else (403, 404)
            assert response.status_code in refused, (url, sent, response.status_code)
            assert beta.marker not in response.content.decode(errors="replace")
    assert snapshot(beta) == before


def test_no_action_changes_a_row_of_another_organizer(alpha: Rows, beta: Rows) -> None:
    client = member_of(alpha)
    _run_all_actions(client, beta)


def _run_all_actions(client: Client, rows: Rows) -> None:
    before = snapshot(rows)
    for model_admin in scoped_admins():
        keys = [str(row.pk) for row in rows.of(model_admin)]
        for name in (*(model_admin.actions or ()), "delete_selected"):
            sent = {
                "action": name,
                "_selected_action": keys,
                "confirmed": "yes",
                "post": "yes",
                "why": "x",
                "count": "1",
            }
            # Selecting all rows would end the member's own membership.
            for across in ("0",) if model_admin.model is Membership else ("0", "1"):
                client.post(admin_url(model_admin), sent | {"select_across": across, "index": "0"})
    assert snapshot(rows) == before


def test_a_lesser_role_at_the_second_organizer_stays_lesser(alpha: Rows, beta: Rows) -> None:
    """The member manages alpha and only reads beta. Permissions of the first role never apply to the second's rows."""
    user = factories.make_member(alpha.organizer, Role.ORGANIZER, "both@example.org")
    factories.make_member(beta.organizer, Role.READ_ONLY, "both@example.org")
    client = client_of(user)
    assert beta.marker in client.get("/admin/events/event/").content.decode()
    assert client.get(f"/admin/events/event/{beta.sale.id}/change/").status_code == 200
    before = snapshot(beta)
    assert client.post(f"/admin/events/event/{beta.sale.id}/change/", {"name": "x"}).status_code == 403
    _run_all_actions(client, beta)
    for url in ("/admin/orders/promocode/add/", "/admin/orders/doorlink/add/", "/admin/orders/webhookendpoint/add/",
                "/admin/queue/viplink/add/", "/admin/orders/eventcancellation/add/", "/admin/events/event/add/",
                "/admin/reservations/accesscode/add/"):  # fmt: skip
        page = client.get(url)
        assert page.status_code == 200, url
        assert beta.marker not in page.content.decode(), url
    order = client.get(f"/admin/orders/order/{beta.order.pk}/change/").content.decode()
    assert beta.order.number in order
    assert "History</h2>" not in order
    assert f"/admin/orders/order/{beta.order.pk}/act/" not in order
    assert f"/admin/orders/order/{beta.order.pk}/money/" not in order
    own = client.get(f"/admin/orders/order/{alpha.order.pk}/change/").content.decode()
    assert "History</h2>" in own
    assert f"/admin/orders/order/{alpha.order.pk}/act/" in own
    tickets = client.get("/admin/orders/ticket/").content.decode()
    assert alpha.ticket.code in tickets
    assert beta.ticket.code not in tickets
    assert beta.ticket.code not in order  # Read-only members do not see tickets.
    sent = {"event": beta.sale.id, "name": "x", "door": "", "good_from": "2190-01-01T10:00",
            "good_until": "2190-01-01T12:00"}  # fmt: skip
    assert client.post("/admin/orders/doorlink/add/", sent).status_code == 200  # The form with an error.
    assert client.post("/admin/orders/returnpolicy/add/", {"event": beta.room.id, "until_hours": 1}).status_code == 200
    assert snapshot(beta) == before


def test_forms_and_filters_offer_only_own_rows(alpha: Rows, beta: Rows, rf: RequestFactory) -> None:
    user = factories.make_member(alpha.organizer)
    for model_admin in scoped_admins():
        request = rf.get("/admin/")
        request.user = user
        foreign = {(type(row), row.pk) for one in scoped_admins() for row in beta.of(one)}
        offered_forms = []
        if model_admin.has_add_permission(request):
            offered_forms.append(model_admin.get_form(request)())
        own = alpha.of(model_admin)[:1]
        if own and model_admin.has_change_permission(request, own[0]):
            offered_forms.append(model_admin.get_form(request, own[0], change=True)(instance=own[0]))
        for name, field in ((name, field) for form in offered_forms for name, field in form.fields.items()):
            if isinstance(field, forms.ModelChoiceField):
                assert field.queryset is not None
                offered = {(type(row), row.pk) for row in field.queryset}
                assert not offered & foreign, (model_admin.opts.label, name)
                assert not any(beta.marker in label for _, label in field.choices), (model_admin.opts.label, name)
        if model_admin.has_view_permission(request):
            for spec in model_admin.get_changelist_instance(request).filter_specs:
                choices = str([*map(str, getattr(spec, "lookup_choices", ()))])
                assert beta.marker not in choices, (model_admin.opts.label, spec)
                assert beta.organizer.name not in choices


def test_autocompletion_offers_only_own_rows(alpha: Rows, beta: Rows) -> None:
    client = member_of(alpha)
    query = {"app_label": "orders", "model_name": "returnpolicy", "field_name": "event", "term": "a"}
    names = [one["text"] for one in client.get("/admin/autocomplete/", query).json()["results"]]
    assert names
    assert all(alpha.marker in name for name in names)


def test_check_in_is_confined_to_the_organizers_events(alpha: Rows, beta: Rows) -> None:
    client = member_of(alpha, Role.DOOR)
    body = {"scan_id": "scan-0001", "code": beta.ticket.code}
    for slug, status in ((alpha.sale.slug, 200), (beta.sale.slug, 403)):
        assert client.get(f"/check-in/{slug}/").status_code == status
        assert client.get(f"/api/events/{slug}/check-in").status_code == status
        response = client.post(f"/api/events/{slug}/check-in", json.dumps(body), content_type="application/json")
        assert response.status_code == status
    # Another organizer's ticket is unknown at this door, and its event and holder are not shown.
    answer = client.post(
        f"/api/events/{alpha.sale.slug}/check-in",
        json.dumps(body | {"scan_id": "scan-0002"}),
        content_type="application/json",
    ).json()
    assert (answer["outcome"], answer["ticket"], answer["event"]) == ("unknown", None, None)
    assert Ticket.objects.get(pk=beta.ticket.pk).checked_in_at == beta.ticket.checked_in_at


def test_an_ended_membership_ends_access_at_once(alpha: Rows) -> None:
    client = member_of(alpha)
    assert client.get("/admin/events/event/").status_code == 200
    Membership.objects.get(role=Role.ORGANIZER).delete()
    assert client.get("/admin/events/event/").status_code == 302
    assert client.get(f"/api/events/{alpha.sale.slug}/check-in").status_code == 403


def test_members_cannot_move_events_or_reach_accounts(alpha: Rows, beta: Rows) -> None:
    user = factories.make_member(alpha.organizer)
    client = client_of(user)
    for page in (
        "accounts/user/",
        "accounts/securityevent/",
        "auth/group/",
        "kernel/auditrun/",
        "outbox/outboxmessage/",
        "events/organizer/add/",
    ):
        assert client.get(f"/admin/{page}").status_code in (403, 404), page
    form = {"name": "Alpha", "slug": "beta", "contact_email": "", "organizer": beta.organizer.pk}
    client.post(f"/admin/events/organizer/{alpha.organizer.pk}/change/", form)
    alpha.organizer.refresh_from_db()
    assert (alpha.organizer.name, alpha.organizer.slug) == ("Alpha", "alpha")
    client.post(f"/admin/events/event/{alpha.sale.id}/change/", {"name": "Renamed", "organizer": beta.organizer.pk})
    assert Event.objects.get(pk=alpha.sale.id).organizer_id == alpha.organizer.pk


def test_site_wide_staff_keep_their_permissions_for_all_events(alpha: Rows, beta: Rows) -> None:
    from django.contrib.auth.models import Permission

    user = get_user_model().objects.create_user("site", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=["view_event", "view_order", "change_order"]))
    client = client_of(user)
    page = client.get("/admin/events/event/").content.decode()
    assert alpha.marker in page
    assert beta.marker in page
    assert "By organizer" in page
    for rows in (alpha, beta):
        assert client.get(f"/admin/orders/order/{rows.order.pk}/money/").status_code == 200
    assert client.get("/admin/orders/ticket/").status_code == 403
    only = client.get(f"/admin/events/event/?organizer={alpha.organizer.pk}").content.decode()
    assert f"{alpha.marker} Sale" in only
    assert f"/admin/events/event/{beta.sale.id}/change/" not in only
