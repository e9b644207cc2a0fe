"""Slow clients beside a checkout: they occupy no thread of the site, so checkout, webhook and pages are answered as
quickly as without them. The site has one process with two threads, as the Procfile starts it."""

import contextlib
import json
import select
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client

from apps.orders.payments.providers import sandbox
from apps.queue.identity.caller import issue_admission_token
from tests.processes.server.site_processes import site
from tests.support import factories
from tests.support.databases import database_url
from tests.support.web_processes import Web, wait_until, web
from ticketing.server.request_body import UPLOAD_BYTES_MAX, UPLOADS_MAX
from ticketing.server.site_proxy import CONNECTIONS_MAX

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 15
RATIO_MAX = 5
"""How much longer a call may take beside slow clients; without the limits it is not answered at all."""
ANSWER_SECONDS_MAX = 30
LARGE_FILE = "/static/admin/js/vendor/select2/select2.full.js"
READERS = CONNECTIONS_MAX + 20
MANY = READERS // 2
"""Of each path: more than the connections to the site, also without those that wait in the queue for passwords."""


@pytest.fixture(scope="module")
def server(django_db_setup: None, django_db_blocker: Any) -> Iterator[Web]:
    with django_db_blocker.unblock():
        url = database_url()
    addresses = {"DATABASE_URL": url, "DATABASE_DIRECT_URL": url}
    with site(**addresses) as port, web(port, **addresses) as served:
        yield served


def head(method: str, path: str, length: int | None, *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *more]
    lines += [] if length is None else [f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


def call(server: Web, method: str, path: str, body: Any = None, **headers: str) -> int:
    """Return the status of the response."""
    with contextlib.closing(HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_SECONDS_MAX)) as connection:
        content = None if body is None else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, content, {"Content-Type": "application/json", **named})
        answer = connection.getresponse()
        answer.read()
        return answer.status


def buyer_calls(server: Web) -> Callable[[], None]:
    """Return a function that checks out, sends a webhook, and loads a page, all answered by the site."""
    event = factories.make_event(f"event-{uuid.uuid4().hex[:12]}", general_admission=1_000)

    def buy() -> None:
        entry = factories.join(event)
        held = factories.hold(event, entry, ga_section="floor", ga_quantity=1)
        token = issue_admission_token(entry.id, event.slug, entry.number, None)
        buyer = {"email": "ada@example.org", "name": "Ada", "payment_method": sandbox.APPROVES}
        path, key = f"/api/reservations/{held.id}/checkout", uuid.uuid4().hex
        assert call(server, "POST", path, buyer, Authorization=f"Bearer {token}", Idempotency_Key=key) == 202
        assert call(server, "POST", "/api/webhooks/payments/sandbox", {"id": "unsigned"}) in (400, 401, 403)
        assert call(server, "GET", f"/events/{event.slug}/") == 200

    return buy


def median_seconds(act: Callable[[], None]) -> float:
    durations = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        act()
        durations.append(time.perf_counter() - begun)
    return sorted(durations)[ROUNDS // 2]


SLOW: dict[str, list[bytes]] = {
    "four posts of 72 MB to the log-in page": [head("POST", "/accounts/log-in", UPLOAD_BYTES_MAX) + b"x" * 1_000] * 4,
    "twelve GETs with a body": [head("GET", "/", 1_000) + b"x"] * 12,
    "posts of 200 KB to pages and calls": [
        head("POST", path, 200_000, "Content-Type: application/json") + b"x" * 1_000
        for path in ("/accounts/log-in", "/api/webhooks/payments/sandbox", "/api/auth/token", "/tickets/") * MANY
    ],
    "chunked posts": [head("POST", "/accounts/log-in", None, "Transfer-Encoding: chunked") + b"5\r\nab"] * 20,
    "uploads without a session": [head("POST", "/admin/events/event/add/", UPLOAD_BYTES_MAX) + b"x" * 1_000] * 20,
}


@pytest.mark.parametrize("name", SLOW)
def test_slow_bodies_do_not_delay_a_checkout(server: Web, name: str) -> None:
    buy = buyer_calls(server)
    buy()
    calm = median_seconds(buy)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in SLOW[name]]
        for client, sent in zip(clients, SLOW[name], strict=True):
            client.sendall(sent)
        beside = median_seconds(buy)
    assert beside < RATIO_MAX * calm, (calm, beside)
    factories.assert_audit_clean()


def test_clients_that_do_not_read_a_file_do_not_delay_a_checkout(server: Web) -> None:
    """Each occupies a connection to the site, which has CONNECTIONS_MAX of them, while it does not read."""
    buy = buyer_calls(server)
    buy()
    calm = median_seconds(buy)
    with contextlib.ExitStack() as stack:
        for _ in range(READERS):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.connect(("127.0.0.1", server.port))
            client.sendall(head("GET", LARGE_FILE, None) * 64)  # More than the kernel buffers.
        beside = median_seconds(buy)
    assert beside < RATIO_MAX * calm, (calm, beside)


def test_staff_upload_large_files_and_no_other_client_does(server: Web) -> None:
    """The site answers an upload with 403 or 404, since these forms have no CSRF token: it has received all of it."""

    def upload(path: str, cookie: str = "", size: int = 600_000) -> int:
        with contextlib.closing(HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_SECONDS_MAX)) as connection:
            connection.request("POST", path, b"x" * size, {"Cookie": cookie} if cookie else {})
            return connection.getresponse().status

    staff, guest = session_of(is_staff=True), session_of(is_staff=False)
    assert upload("/admin/events/event/add/", staff) == 403
    assert upload("/admin/events/event/add/", staff, UPLOAD_BYTES_MAX) == 403
    with server.connect() as client:
        client.sendall(head("POST", "/admin/events/event/add/", UPLOAD_BYTES_MAX + 1, f"Cookie: {staff}"))
        assert client.recv(12) == b"HTTP/1.1 413"
    for path, cookie in (
        ("/accounts/log-in", staff),
        ("/administration", staff),
        ("/admin/events/event/add/", guest),
        ("/admin/events/event/add/", ""),
        ("/admin/events/event/add/", f"{settings.SESSION_COOKIE_NAME}=%00"),
        ("/admin/events/event/add/", f"{settings.SESSION_COOKIE_NAME}={'a' * 32}"),
    ):
        assert upload(path, cookie) == 413
    assert upload("/admin/events/event/add/", staff) == 403, "the session is still valid"


def test_few_uploads_are_received_at_once(server: Web) -> None:
    """An account sends one upload at a time, so each of these has an account of its own."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(UPLOADS_MAX + 4)]
        for client in clients:
            cookie = session_of(is_staff=True)
            client.sendall(head("POST", "/admin/events/event/add/", 1_000_000, f"Cookie: {cookie}") + b"x" * 900_000)

        def answered() -> list[socket.socket]:
            return select.select(clients, [], [], 0)[0]

        wait_until(lambda: len(answered()) >= 4, "further uploads are refused")
        refused = answered()
        assert len(refused) == 4
        for client in refused:
            received = client.recv(1_000)
            assert received.startswith(b"HTTP/1.1 503")
            assert b"retry-after: " in received.lower()
        for client in set(clients) - set(refused):
            client.sendall(b"x" * 100_000)
            assert client.recv(12) == b"HTTP/1.1 403"


def session_of(*, is_staff: bool) -> str:
    """Log a new account in, with all permissions if it is staff, and return its cookie."""
    user = get_user_model().objects.create_user(f"user-{uuid.uuid4().hex}", is_staff=is_staff, is_superuser=is_staff)
    client = Client()
    client.force_login(user)
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
