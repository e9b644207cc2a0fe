"""Requests that fail are limited before they reach the site; the same requests that succeed are not."""

import asyncio
import hashlib
import hmac
import ipaddress
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from apps.kernel import rate_limits
from apps.kernel.http import client_address
from apps.kernel.rate_limits import Limits
from apps.orders import facade as orders
from apps.orders.payments.providers.sandbox import messages
from tests.support.web_processes import WAIT_SECONDS_MAX
from ticketing.server import failure_limits
from ticketing.server.site_proxy import Forwarder

SANDBOX, STRIPE = "/api/webhooks/payments/sandbox", "/api/webhooks/payments/stripe"
STRANGER, OTHER, EXEMPT = "203.0.113.1", "203.0.113.2", "198.51.100.1"


class _Handler(BaseHTTPRequestHandler):
    """A site with one static file, which refuses every webhook without `x-valid`."""

    protocol_version = "HTTP/1.1"
    reached: list[str]

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        self._answer(200 if self.path.endswith("there.css") else 404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(200 if "x-valid" in self.headers else 400)

    def _answer(self, status: int) -> None:
        self.reached.append(self.path)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def site() -> Iterator[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"reached": []}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(WAIT_SECONDS_MAX)


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three pages and three refused webhooks of one address."""
    limits = Limits(dict.fromkeys(rate_limits.KINDS, ((0.001, 3), None)), [ipaddress.ip_network(EXEMPT)])
    monkeypatch.setattr(rate_limits, "check_request", limits.ask)
    monkeypatch.setattr(rate_limits, "attempt_wait", limits.attempt_wait)
    monkeypatch.setattr(rate_limits, "record_attempt", limits.record_attempt)
    monkeypatch.setattr(rate_limits, "subject", limits.subject)
    client_address.forget_settings()
    yield
    client_address.forget_settings()


async def ask(
    forwarder: Forwarder, path: str, method: str = "GET", address: str = STRANGER, content: bytes = b"", **headers: str
) -> int:
    given = {"host": "localhost", "content-length": str(len(content)), **headers}
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]
    scope = {"type": "http", "method": method, "path": path, "client": (address, 1), "scheme": "http",
             "http_version": "1.1", "headers": named}  # fmt: skip
    messages_in = iter([{"type": "http.request", "body": content, "more_body": False}])
    statuses: list[int] = []

    async def receive() -> Any:
        message = next(messages_in, None)
        if message is None:
            await asyncio.Event().wait()
        return message

    async def send(message: Any) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    await forwarder(scope, receive, send)
    return statuses[0]


@pytest.fixture
async def forwarder(site: Any) -> Any:
    made = Forwarder("127.0.0.1", site.server_port, is_signed=orders.is_signed_webhook)
    yield made
    await made.close()


async def test_missing_static_files_are_limited_and_existing_ones_are_not(forwarder: Forwarder, site: Any) -> None:
    assert [await ask(forwarder, "/static/there.css") for _ in range(9)] == [200] * 9
    missing = [await ask(forwarder, f"/static/missing-{number}.css") for number in range(6)]
    assert missing == [404, 404, 429, 429, 429, 429], "the first request for the existing file counted as a page"
    assert len(site.RequestHandlerClass.reached) == 9 + 2
    assert await ask(forwarder, "/static/there.css") == 200
    assert await ask(forwarder, "/static/missing.css", address=OTHER) == 404


async def test_the_remembered_static_files_are_bounded(forwarder: Forwarder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_limits, "STATIC_FILES_MAX", 1)
    for path in ("/static/there.css", "/static/also/there.css"):
        assert await ask(forwarder, path) == 200
    assert forwarder._static_files._served == {"/static/there.css"}


async def test_refused_webhooks_of_an_address_are_limited_before_they_reach_the_site(
    forwarder: Forwarder, site: Any
) -> None:
    statuses = [await ask(forwarder, SANDBOX, "POST", content=b"{}") for _ in range(6)]
    assert statuses == [400, 400, 400, 429, 429, 429]
    assert len(site.RequestHandlerClass.reached) == 3
    assert await ask(forwarder, SANDBOX, "POST", OTHER, b"{}") == 400
    assert [await ask(forwarder, SANDBOX, "POST", EXEMPT, b"{}") for _ in range(6)] == [400] * 6


async def test_a_signed_webhook_from_a_limited_address_is_forwarded(forwarder: Forwarder, settings: Any) -> None:
    settings.STRIPE_WEBHOOK_SECRETS = ["whsec_next", "whsec_old"]
    for _ in range(4):
        await ask(forwarder, SANDBOX, "POST", content=b"{}")
    assert await ask(forwarder, SANDBOX, "POST", content=b"{}", sandbox_signature="t=1,v1=00") == 429
    signed = {"sandbox_signature": messages.sign(b"{}"), "x_valid": "1"}
    assert await ask(forwarder, SANDBOX, "POST", content=b"{}", **signed) == 200
    assert await ask(forwarder, SANDBOX, "POST", content=b"{} ", **signed) == 429, "other bytes than the signed ones"
    at = int(time.time())
    signature, old = (
        hmac.new(b"whsec_old", b"%d.{}" % moment, hashlib.sha256).hexdigest() for moment in (at, at - 3_600)
    )
    header = f"t={at},v1=00,v1={signature},v0=x"
    assert await ask(forwarder, STRIPE, "POST", content=b"{}", stripe_signature=header, x_valid="1") == 200
    for other in (
        "",
        "t=1,v1=",
        f"t={at + 1},v1={signature}",
        f"v1={signature}",
        f"t={at},v1=é",
        f"t={at - 3_600},v1={old}",
    ):
        assert await ask(forwarder, STRIPE, "POST", content=b"{}", stripe_signature=other, x_valid="1") == 429


async def test_accepted_webhooks_are_never_limited(forwarder: Forwarder) -> None:
    statuses = [await ask(forwarder, SANDBOX, "POST", content=b"{}", x_valid="1") for _ in range(9)]
    assert statuses == [200] * 9
