"""The admin of webhook endpoints, feed keys and deliveries."""

import re
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.models import FeedKey, WebhookDelivery, WebhookEndpoint
from apps.orders.webhooks import feed
from tests.support.factories import hold, make_event
from tests.support.orders.sale import buy
from tests.support.orders.webhook_endpoints import make_endpoint

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def staff(browser: Client) -> Client:
    browser.force_login(User.objects.create_superuser("admin"))
    return browser


def act(staff: Client, model: str, action: str, *keys: Any) -> str:
    form = {"action": action, "_selected_action": list(keys)}
    return staff.post(f"/admin/orders/{model}/", form, follow=True).content.decode()


def test_an_endpoint_gets_a_secret_and_a_bad_url_is_refused(staff: Client) -> None:
    form = {"name": "Door", "url": "https://10.0.0.1/hook", "kinds": ["order.confirmed"], "is_active": "on"}
    page = staff.post("/admin/orders/webhookendpoint/add/", form).content.decode()
    assert "Webhooks cannot be sent to this URL: it is not a public address." in page
    page = staff.post("/admin/orders/webhookendpoint/add/", form | {"url": "https://hook.example/"}, follow=True)
    endpoint = WebhookEndpoint.objects.get()
    assert endpoint.secret in page.content.decode()
    assert endpoint.kinds == ["order.confirmed"]
    change = f"/admin/orders/webhookendpoint/{endpoint.pk}/change/"
    shown = staff.get(change).content.decode()
    assert endpoint.secret[:10] in shown
    assert endpoint.secret not in shown, "the secret is shown once"
    old = endpoint.secret
    page = act(staff, "webhookendpoint", "renew_secret", endpoint.pk)
    endpoint.refresh_from_db()
    assert endpoint.secret in page
    assert endpoint.secret != old


def test_a_feed_key_is_shown_once_and_is_invalid_after_revocation(staff: Client) -> None:
    form = {"name": "Box office", "scopes": "orders:receive"}
    page = staff.post("/admin/orders/feedkey/add/", form, follow=True).content.decode()
    key = FeedKey.objects.get()
    found = re.search(r"fgf_[\w-]+", page)
    assert found is not None
    assert feed.key_digest(found[0]) == key.digest
    assert found[0] not in staff.get(f"/admin/orders/feedkey/{key.pk}/change/").content.decode()
    assert "Revoked: 1 key." in act(staff, "feedkey", "revoke", key.pk)
    key.refresh_from_db()
    assert key.revoked_at is not None


def test_the_log_shows_responses_and_replays_deliveries(staff: Client) -> None:
    make_endpoint("https://127.0.0.1/")
    buy(hold(make_event(), seats=["hall-A-1"]))
    WebhookDelivery.objects.update(status="given_up")
    OutboxMessage.objects.filter(topic="orders.webhook").delete()
    delivery = WebhookDelivery.objects.get()
    page = staff.get(f"/admin/orders/webhookdelivery/{delivery.pk}/change/").content.decode()
    assert "it is not a public address" in page
    assert "order.confirmed" in page
    assert "Sending again: 1 message." in act(staff, "webhookdelivery", "replay", delivery.pk)
    assert "Sending again: 0 messages." in act(staff, "webhookdelivery", "replay", delivery.pk)
    assert OutboxMessage.objects.filter(topic="orders.webhook").count() == 1
