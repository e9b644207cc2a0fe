"""The staff's site: a second factor, the idle time-out, recent authentication, and the security log."""

import time
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.core.management import CommandError, call_command
from django.test import Client

from apps.accounts import security_log
from apps.accounts.models import SecurityEvent, User
from apps.kernel import clock
from apps.kernel.cli import get_os_username
from apps.orders.checkin import door_links
from apps.orders.models import FeedKey, Order, WebhookEndpoint
from apps.orders.payments.providers import sandbox
from apps.queue.entries import vip_links
from apps.reservations.facade import get_reservation
from tests.support.accounts.credentials import LOG_IN, PASSWORD, AuthenticatorApp
from tests.support.api_client import Api
from tests.support.factories import hold, make_event
from tests.support.orders.sale import buy
from tests.support.queue.rooms import make_room

LogIn = Callable[[User], Client]
CONFIRM = "/accounts/confirm"
FEED_KEY = {"name": "Reports", "scopes": "orders:receive", "_save": "Save"}


def kinds(**conditions: Any) -> list[str]:
    return list(SecurityEvent.objects.filter(**conditions).order_by("pk").values_list("kind", flat=True))


def passes_seconds(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.time() + seconds
    monkeypatch.setattr(clock, "process_seconds", lambda: now)


def test_the_admins_log_in_is_the_sites(chief: User) -> None:
    browser = Client(headers={"sec-fetch-site": "same-origin"})
    assert browser.get("/admin/").url == "/admin/login/?next=/admin/"
    assert browser.get("/admin/login/?next=/admin/orders/order/").url == f"{LOG_IN}?next=/admin/orders/order/"
    response = browser.post(LOG_IN, {"username": "chief", "password": PASSWORD, "next": "/admin/orders/order/"})
    assert response.url == "/admin/orders/order/"
    assert browser.get(response.url).status_code == 200
    assert browser.get("/admin/password_change/").url == "/accounts/password"


def test_a_customer_is_refused_without_a_redirect_loop(ann: User, log_in: LogIn) -> None:
    browser = log_in(ann)
    assert browser.get("/admin/", follow=True).status_code == 403


@pytest.mark.parametrize("page", ["/admin/", "/admin/orders/order/", "/admin/accounts/user/"])
def test_staff_must_add_a_second_factor_where_it_is_required(
    chief: User, log_in: LogIn, settings: Any, app_of: Callable[[User], AuthenticatorApp], page: str
) -> None:
    settings.STAFF_MFA_REQUIRED = True
    browser = log_in(chief)
    refused = browser.get(page, follow=True)
    assert refused.redirect_chain == [("/accounts/", 302)]
    assert "Staff accounts need a second factor" in refused.content.decode()
    assert browser.get("/accounts/second-factor/app").status_code == 200
    app_of(chief)
    assert browser.get(page).status_code == 200


def test_a_staff_session_without_use_ends(
    chief: User, log_in: LogIn, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.STAFF_IDLE_SECONDS = 600
    browser = log_in(chief)
    assert browser.get("/admin/").status_code == 200
    passes_seconds(monkeypatch, 500)
    assert browser.get("/admin/").status_code == 200
    passes_seconds(monkeypatch, 1_000)
    assert browser.get("/admin/").status_code == 200, "each use extends it"
    passes_seconds(monkeypatch, 1_700)
    assert browser.get("/admin/orders/order/").url == f"{LOG_IN}?next=/admin/orders/order/"
    assert browser.session.get("_auth_user_id") is None


@pytest.fixture
def late(chief: User, log_in: LogIn, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A staff browser whose log-in is an hour old."""
    settings.REAUTHENTICATION_SECONDS = 900
    settings.STAFF_IDLE_SECONDS = 0
    browser = log_in(chief)
    passes_seconds(monkeypatch, 3_600)
    return browser


def confirm(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "process_seconds", time.time)
    assert browser.post(f"{CONFIRM}?next=/admin/", {"password": PASSWORD}).url == "/admin/"


def test_a_refund_needs_a_recent_authentication(
    late: Client, monkeypatch: pytest.MonkeyPatch, transactional_db: None
) -> None:
    order = buy(hold(make_event("concert"), seats=["hall-A-1"]))
    page = f"/admin/orders/order/{order.pk}/money/"
    assert late.get(page).status_code == 200
    refused = late.post(page, {"action": "goodwill", "amount": "100", "why": "late"})
    assert refused.url == f"{CONFIRM}?next=%2Fadmin%2Forders%2Forder%2F{order.pk}%2Fmoney%2F"
    for action in ("refund", "reissue", "resend_tickets"):
        form = {"action": action, "_selected_action": str(order.pk), "confirmed": "yes"}
        assert late.post("/admin/orders/order/", form).url.startswith(CONFIRM)
    assert Order.objects.get(pk=order.pk).status == order.status
    assert not kinds(kind="staff_action")
    assert "repeat what you were doing" in late.get(refused.url).content.decode()
    confirm(late, monkeypatch)
    form = {"action": "refund", "_selected_action": str(order.pk), "confirmed": "yes"}
    assert late.post("/admin/orders/order/", form).url == "/admin/orders/order/"
    assert Order.objects.get(pk=order.pk).status != order.status
    assert SecurityEvent.objects.get(kind="staff_action").detail.startswith("refund: order")


def test_the_cancellation_of_reservations_needs_a_recent_authentication(
    late: Client, monkeypatch: pytest.MonkeyPatch, transactional_db: None
) -> None:
    """It refunds a payment that is under way."""
    order = buy(hold(make_event("concert"), seats=["hall-A-1"]), sandbox.LATE)
    page = "/admin/reservations/reservation/"
    form = {"action": "cancel", "_selected_action": str(order.reservation_id), "confirmed": "yes"}
    assert late.post(page, form).url.startswith(CONFIRM)
    assert get_reservation(order.reservation_id).status == "paying"
    confirm(late, monkeypatch)
    assert late.post(page, form).url == page
    assert get_reservation(order.reservation_id).status == "canceled"
    assert SecurityEvent.objects.get(kind="staff_action").detail.startswith("cancel: reservation")


def test_keys_need_a_recent_authentication(late: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert late.post("/admin/orders/feedkey/add/", FEED_KEY).url.startswith(CONFIRM)
    assert not FeedKey.objects.exists()
    confirm(late, monkeypatch)
    assert late.post("/admin/orders/feedkey/add/", FEED_KEY).status_code == 302
    key = FeedKey.objects.get()
    assert SecurityEvent.objects.get(kind="staff_action").detail == f"added: feed key {key}"
    passes_seconds(monkeypatch, 3_600)
    form = {"action": "revoke", "_selected_action": str(key.pk)}
    assert late.post("/admin/orders/feedkey/", form).url.startswith(CONFIRM)
    assert FeedKey.objects.get().revoked_at is None
    assert not WebhookEndpoint.objects.exists()


def test_the_revocation_of_links_needs_a_recent_authentication(
    late: Client, monkeypatch: pytest.MonkeyPatch, transactional_db: None
) -> None:
    event, now = make_room(), clock.now()
    vip = vip_links.make_link(event.id, note="", hours=1, who="boss")
    times = {"good_from": now, "good_until": now + timedelta(hours=1)}
    door = door_links.make_link(event.id, name="Vera", door="North", who="staff:1", **times)
    pages = {"/admin/queue/viplink/": vip, "/admin/orders/doorlink/": door}
    for page, link in pages.items():
        form = {"action": "revoke", "_selected_action": str(link.pk)}
        assert late.post(page, form).url.startswith(CONFIRM)
        link.refresh_from_db()
        assert link.revoked_at is None
    confirm(late, monkeypatch)
    for page, link in pages.items():
        assert late.post(page, {"action": "revoke", "_selected_action": str(link.pk), "why": "lost"}).status_code == 302
        link.refresh_from_db()
        assert link.revoked_at is not None
    assert SecurityEvent.objects.filter(kind="staff_action", detail__startswith="revoke: ").count() == 2


def test_a_wrong_password_confirms_nothing(late: Client) -> None:
    assert late.post(f"{CONFIRM}?next=/admin/", {"password": "guessed"}).status_code == 200
    assert late.post("/admin/orders/feedkey/add/", FEED_KEY).url.startswith(CONFIRM)


def test_the_log_has_log_ins_failures_and_log_outs_with_a_shortened_address(chief: User) -> None:
    browser = Client(headers={"sec-fetch-site": "same-origin", "user-agent": "A browser\x00"})
    browser.post(LOG_IN, {"username": "chief", "password": "guessed"}, REMOTE_ADDR="203.0.113.9")
    browser.post(LOG_IN, {"username": "chief", "password": PASSWORD}, REMOTE_ADDR="203.0.113.9")
    browser.post("/accounts/log-out")
    assert kinds() == ["log_in_failed", "logged_in", "logged_out"]
    entry = SecurityEvent.objects.get(kind="logged_in")
    assert (entry.account, entry.name, entry.address) == (chief, "chief", "203.0.113.0/24")
    assert entry.user_agent == "A browser�"
    assert SecurityEvent.objects.get(kind="log_in_failed").account is None


def test_reads_of_personal_data_are_recorded(chief: User, log_in: LogIn, transactional_db: None) -> None:
    order = buy(hold(make_event("concert"), seats=["hall-A-1"]))
    browser = log_in(chief)
    for path in ("/admin/", "/admin/events/event/", "/admin/events/event/?q=concert"):
        browser.get(path)
    assert not kinds(kind="personal_data_read")
    of_order = f"/admin/orders/order/{order.pk}"
    for path in (
        f"{of_order}/change/",
        "/admin/orders/order/",
        "/admin/orders/order/?p=0&o=-1",
        "/admin/orders/order/?q=ann",
        f"/admin/orders/order/?id={order.pk}",
        f"{of_order}/money/",
        "/admin/reservations/purchasecap/",
    ):
        assert browser.get(path).status_code == 200
        assert SecurityEvent.objects.filter(kind="personal_data_read").first().detail == path


@pytest.mark.parametrize("method", ["post", "options", "put", "delete", "trace"])
def test_no_method_reads_personal_data_unrecorded(
    chief: User, log_in: LogIn, transactional_db: None, method: str
) -> None:
    order = buy(hold(make_event("concert"), seats=["hall-A-1"]))
    browser = log_in(chief)
    for path in ("/admin/orders/order/", f"/admin/orders/order/{order.pk}/change/"):
        response = getattr(browser, method)(path)
        shown = order.email in response.content.decode()
        assert shown == SecurityEvent.objects.filter(kind="personal_data_read", detail=path).exists()
        assert not shown or method == "post"


def test_the_log_is_read_only_and_has_an_end(chief: User, log_in: LogIn, settings: Any) -> None:
    browser = log_in(chief)
    entry = SecurityEvent.objects.get()
    page = f"/admin/accounts/securityevent/{entry.pk}"
    assert browser.get(f"{page}/change/").status_code == 200
    assert browser.post(f"{page}/change/", {}).status_code == 403
    assert browser.post(f"{page}/delete/", {"post": "yes"}).status_code == 403
    settings.SECURITY_LOG_DAYS = 0
    assert security_log.delete_old() >= 1
    assert not SecurityEvent.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_operator_resets_the_second_factors(
    ann: User, log_in: LogIn, app_of: Callable[[User], AuthenticatorApp], api: Api
) -> None:
    browser = log_in(ann)
    app_of(ann)
    output = StringIO()
    call_command("reset_mfa", "Ann@example.org", stdout=output)
    assert "1 second factors removed" in output.getvalue()
    assert not Authenticator.objects.filter(user=ann).exists()
    assert browser.get("/accounts/").status_code == 302, "the session has ended"
    entry = SecurityEvent.objects.get(kind="second_factor_reset")
    assert entry.account == ann
    assert "reset_mfa" in entry.detail
    with pytest.raises(CommandError, match="No account is named"):
        call_command("reset_mfa", "unknown@example.org")


@pytest.mark.django_db(transaction=True)
def test_changes_of_token_keys_name_their_operator() -> None:
    output = StringIO()
    call_command("rotate_token_key", stdout=output)
    key_id = output.getvalue().split()[0]
    call_command("rotate_token_key", "--drop", key_id, stdout=output)
    details = list(
        SecurityEvent.objects.filter(detail__contains=key_id).order_by("pk").values_list("detail", flat=True)
    )
    operator = get_os_username()
    assert details == [f"token key {key_id} published by {operator}", f"token key {key_id} dropped by {operator}"]
