"""Nothing that is stored, logged or shown to view-only staff lets its reader act as a buyer, an organizer or a door."""

import hmac
import json
import logging
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from redis import Redis

from apps.accounts.models import User
from apps.events import facade as events
from apps.kernel import clock, secret_key
from apps.kernel.http.sessions import stored_key
from apps.kernel.observability.log_context import MaskingFormatter, mask_secrets
from apps.orders import access, selectors
from apps.orders.checkin import door_links
from apps.orders.checkin.check_in import Scan
from apps.orders.models import Order, Payment, ProviderMessage, Ticket
from apps.orders.payments.providers.protocol import Kind, ProviderEvent
from apps.orders.provider_sync import inbox
from apps.queue.entries import vip_links
from apps.queue.identity.async_caller import Credentials
from apps.queue.identity.caller import VISITOR_COOKIE, visitor_id_of_secret
from apps.queue.models import QueueEntry
from tests.support.api_client import Api, assert_problem
from tests.support.factories import assert_audit_clean, hold, join, make_event
from tests.support.orders.sale import deliver_outbox, place_order
from tests.support.orders.webhook_endpoints import make_endpoint, make_feed_key

pytestmark = pytest.mark.django_db(transaction=True)

BROWSER = "the-secret-of-one-browser"
SEAT, BODY = {"seats": ["hall-A-1"]}, {"email": "ann@example.org", "name": "Ann", "payment_method": "sandbox"}
OWN = {"sec-fetch-site": "same-origin"}


@pytest.fixture
def concert(db: None) -> events.EventView:
    return make_event("concert")


@pytest.fixture
def auditor() -> Client:
    """View-only staff: may see every model and change none."""
    user = User.objects.create_user("auditor", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client = Client(headers=OWN)
    client.force_login(user)
    return client


def sale(visitor_secret: str = BROWSER) -> tuple[Order, dict[str, str]]:
    """Return a guest's paid order, and everything that gives access to it."""
    api = Api()
    make_endpoint()
    joined = api.join("concert", visitor_id=visitor_secret)
    held = api.post("/events/concert/reservations", SEAT, token=joined["admission_token"], key="hold").json()
    path = f"/reservations/{held['reservation_id']}/checkout"
    assert api.post(path, BODY, token=joined["admission_token"], key="pay").status_code == 202
    deliver_outbox()
    order = Order.objects.get()
    secrets = {
        "visitor secret": visitor_secret,
        "queue token": joined["queue_token"],
        "admission token": joined["admission_token"],
        "order key": access.link_key(order.pk),
    }
    return order, secrets


def admin_pages(client: Client) -> dict[str, str]:
    """Return the text of every list, and of the page of every row, that the client may see."""
    pages: dict[str, str] = {}
    for model in admin.site._registry:
        address = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        rows = [f"{address}{pk}/change/" for pk in model._default_manager.values_list("pk", flat=True)[:20]]
        for path in (address, *rows):
            response = client.get(path)
            if response.status_code == 200:
                pages[path] = response.content.decode()
    return pages


def stored_rows() -> dict[str, str]:
    with connection.cursor() as cursor:
        tables = {}
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT string_agg(row_to_json(one)::text, chr(10)) FROM "{table}" AS one')
            tables[table] = cursor.fetchone()[0] or ""
    return tables


def stored_in_redis(client: Redis) -> str:
    read = {
        "string": client.get,
        "hash": client.hgetall,
        "set": client.smembers,
        "zset": lambda key: client.zrange(key, 0, -1),
        "list": lambda key: client.lrange(key, 0, -1),
    }
    return "\n".join(f"{key} {read.get(client.type(key), lambda _: '')(key)}" for key in client.scan_iter())


@pytest.mark.slow
def test_what_view_only_staff_read_does_not_take_over_an_order(auditor: Client, concert: events.EventView) -> None:
    """Staff read the stored visitor id in the admin, sent it with a join as their own, and owned the guest's order."""
    order, _ = sale()
    read = QueueEntry.objects.get().visitor_id
    assert read in "".join(admin_pages(auditor).values()), "the stored id itself is not a secret"
    thief = Client(headers=OWN)
    thief.post("/api/events/concert/queue", {"visitor_id": read}, content_type="application/json")
    assert VISITOR_COOKIE in thief.cookies
    assert thief.get(f"/orders/{order.pk}/").status_code == 403
    code = Ticket.objects.get().code
    assert thief.post(f"/orders/{order.pk}/tickets/{code}/reissue").status_code == 403
    token = Api().join("concert", visitor_id=read)["admission_token"]
    assert_problem(Api().get(f"/orders/{order.pk}", token=token), 403, "not-owner")
    assert QueueEntry.objects.count() == 2, "the id is another visitor's secret at most"
    owner = Client(headers=OWN)
    owner.post("/api/events/concert/queue", {"visitor_id": BROWSER}, content_type="application/json")
    assert owner.get(f"/orders/{order.pk}/").status_code == 200
    assert_audit_clean()


@pytest.mark.slow
def test_view_only_staff_see_no_secret(auditor: Client, concert: events.EventView) -> None:
    order, secrets = sale()
    place_order(hold(concert, seats=["hall-A-2"]))
    endpoint, (feed_key, _) = make_endpoint(name="another"), make_feed_key()
    link = vip_links.make_link(concert.id, who="ann")
    now = clock.now()
    door = door_links.make_link(
        concert.id, name="North", door="1", good_from=now, good_until=now + timedelta(days=1), who="ann"
    )
    action = {"type": "stripe", "client_secret": "pi_1_secret_2", "publishable_key": "pk_1"}
    Payment.objects.filter(status="pending").update(next_action=action)
    ticket = Ticket.objects.get()
    door_links_of_event = door_links.link_url(door, "concert")
    secrets |= {
        "ticket code": ticket.code,
        "webhook secret": endpoint.secret,
        "feed key": feed_key,
        "client secret": "pi_1_secret_2",
        "VIP link": vip_links.address_of(link, "concert").rpartition("/")[2][:40],
        "door link": door_links_of_event.rpartition("=")[2],
    }
    auditor.post("/admin/login/", {"username": "auditor"})
    pages = admin_pages(auditor)
    assert len(pages) > 40
    assert order.number in "".join(pages.values()), "the pages do show the sale"
    for name, secret in secrets.items():
        assert [path for path, page in pages.items() if secret in page] == [], name
    for query in (ticket.code[:8], ticket.code[4:20]):
        assert ticket.label not in auditor.get(f"/admin/orders/ticket/?q={query}").content.decode(), "no oracle"
    assert ticket.label in auditor.get(f"/admin/orders/ticket/?q={ticket.code}").content.decode()


def test_no_store_contains_what_identifies_a_browser(concert: events.EventView, redis_client: Redis) -> None:
    """A copy of the database or of Redis gives no access to an order; tickets and webhooks need their own secrets,
    which are stored."""
    order, secrets = sale()
    browser = Client(headers=OWN)
    browser.get(access.order_link(order.pk))
    browser.post("/events/concert/join", {"visitor_id": "another-browsers-secret"})
    secrets |= {"cookie": "another-browsers-secret", "order cookie": browser.cookies[access.COOKIE].value}
    browser.force_login(User.objects.create_user("ann@example.org"))
    assert browser.get("/tickets/").wsgi_request.user.is_authenticated
    secrets["session key"] = browser.cookies[django_settings.SESSION_COOKIE_NAME].value
    tables, in_redis = stored_rows(), stored_in_redis(redis_client)
    assert order.number in tables["orders_order"]
    assert in_redis
    for name, secret in secrets.items():
        assert [table for table, rows in tables.items() if secret in rows] == [], name
        assert secret not in in_redis, name


def test_a_session_ends_at_log_out_and_its_stored_key_opens_none(browser: Client) -> None:
    browser.force_login(User.objects.create_user("ann@example.org"))
    key = browser.cookies[django_settings.SESSION_COOKIE_NAME].value
    stored = Session.objects.get().session_key
    assert stored == stored_key(key) != key
    thief = Client()
    thief.cookies[django_settings.SESSION_COOKIE_NAME] = stored
    assert not thief.get("/tickets/").wsgi_request.user.is_authenticated
    assert browser.get("/tickets/").wsgi_request.user.is_authenticated
    session = browser.session
    session["a"] = "value"
    session.save()
    assert browser.session["a"] == "value"
    session.cycle_key()
    browser.cookies[django_settings.SESSION_COOKIE_NAME] = session.session_key
    assert Session.objects.get().session_key == stored_key(session.session_key)
    browser.logout()
    assert Session.objects.count() == 0


def test_the_stored_id_depends_on_the_key_and_is_stable(settings: Any) -> None:
    known = visitor_id_of_secret(BROWSER)
    assert known == visitor_id_of_secret(BROWSER)
    assert known != visitor_id_of_secret("another-browser")
    assert visitor_id_of_secret(known) != known
    assert len(known) == 32
    before = settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another" * 8, [before]
    assert visitor_id_of_secret(BROWSER) == known, "a rotation keeps every visitor's place"
    settings.SECRET_KEY_FALLBACKS = []
    assert visitor_id_of_secret(BROWSER) != known
    expected = hmac.digest(
        hmac.digest(settings.SECRET_KEY.encode(), b"fairgate digest visitor", "sha256"), BROWSER.encode(), "sha256"
    )
    assert secret_key.keyed_digest("visitor", BROWSER) == expected


def test_a_client_secret_is_gone_once_its_message_is_processed(concert: events.EventView) -> None:
    """The payment keeps it while the buyer needs it, and no longer."""
    order = place_order(hold(concert, join(concert), seats=["hall-A-3"]))
    payment = Payment.objects.get(order=order)
    action = {"type": "stripe", "client_secret": "pi_1_secret_2", "publishable_key": "pk_1"}
    address = "https://hooks.example/authenticate?client_secret=pi_1_secret_2&source=src_1"
    charge = {"id": "pi_1", "client_secret": "pi_1_secret_2", "amount": 5_000, "redirect": {"url": address}}
    raw = json.dumps({"object": charge}).encode()

    def event(kind: Kind, message_id: str) -> ProviderEvent:
        return ProviderEvent(
            message_id, kind, str(payment.pk), "pi_1", 5_000, "USD", clock.now(), raw,
            next_action=action if kind == Kind.PENDING else None,
        )  # fmt: skip

    assert "pi_1_secret_2" not in repr(event(Kind.PENDING, "one"))
    inbox.record_provider_answer("sandbox", event(Kind.PENDING, "one"))
    payment.refresh_from_db()
    assert payment.next_action == action
    assert selectors.get_order(order.pk).payment.next_action == action
    assert "pi_1_secret_2" not in repr(selectors.get_order(order.pk))
    (stored,) = ProviderMessage.objects.filter(message_id="one")
    assert stored.next_action is None
    assert b"pi_1_secret_2" not in bytes(stored.raw)
    kept = json.loads(bytes(stored.raw))["object"]
    assert kept["amount"] == 5_000
    assert kept["redirect"]["url"] == "https://hooks.example/authenticate?client_secret=&source=src_1"
    inbox.record_provider_answer("sandbox", event(Kind.SUCCEEDED, "two"))
    assert [table for table, rows in stored_rows().items() if "pi_1_secret_2" in rows] == []


def test_no_repr_contains_a_secret(concert: events.EventView) -> None:
    sale()
    view = selectors.get_order(Order.objects.get().pk)
    code = Ticket.objects.get().code
    values = [view, view.tickets[0], Scan("scan", code), Credentials("session-key", "a.b.c"), *Ticket.objects.all()]
    for value in values:
        for secret in (code, "session-key", "a.b.c", "ann@example.org"):
            assert secret not in repr(value)


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ("Internal Server Error: /tickets/ABCDEFGH234567/qr.svg", "Internal Server Error: /tickets/…/qr.svg"),
        ("GET /events/concert/vip/eyJhbGciOiJ.x.y failed", "GET /events/concert/vip/… failed"),
        ("GET /orders/1/?key=abc_-1 failed", "GET /orders/1/?key=… failed"),
        ("/check-in/concert/?link=ab.cd&x=1", "/check-in/concert/?link=…&x=1"),
        ("Authorization: Bearer eyJ.a.b", "Authorization: Bearer …"),
        ("{'ann.lee+x@example.org': (550, b'no')}", "{'…@example.org': (550, b'no')}"),
        ('"client_secret": "pi_1_secret_2"', '"client_secret": "…"'),
        ("nothing@here, and /tickets/ alone", "nothing@here, and /tickets/ alone"),
    ],
)
def test_log_lines_are_masked(line: str, masked: str) -> None:
    assert mask_secrets(line) == masked


def test_a_traceback_in_the_log_is_masked() -> None:
    formatter = django_settings.LOGGING["formatters"]["plain"]
    assert formatter["()"].endswith(MaskingFormatter.__name__)
    try:
        raise ValueError("refused: ann@example.org")
    except ValueError as error:
        found = (type(error), error, error.__traceback__)
    record = logging.LogRecord("test", logging.ERROR, __file__, 1, "%s failed", ("/tickets/ABC/",), found)
    text = MaskingFormatter("%(message)s").format(record)
    assert "/tickets/…/ failed" in text
    assert "…@example.org" in text
    assert "ann@" not in text


def test_a_strangers_uuid_is_no_key(concert: events.EventView) -> None:
    order, _ = sale()
    assert not access.is_valid_link_key(order.pk, access.link_key(uuid.uuid4()))
