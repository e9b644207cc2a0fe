"""Requests beyond the rate limit are refused before they are forwarded, and each request is counted once."""

import asyncio
import ipaddress
import json
from collections.abc import Iterator
from typing import Any

import pytest

from apps.kernel import rate_limits
from apps.kernel.http import client_address
from apps.kernel.rate_limits import Limits
from ticketing.server.site_proxy import Forwarder, _request_headers

NO_SITE = 1  # No site listens there: forwarded requests are answered with 503.


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    rates = dict.fromkeys(rate_limits.KINDS, ((0.001, 1), (0.001, 1)))
    monkeypatch.setattr(rate_limits, "check_request", Limits(rates, [ipaddress.ip_network("127.0.0.0/8")]).ask)
    client_address.forget_settings()
    yield
    client_address.forget_settings()


def request(
    address: str = "203.0.113.1", method: str = "POST", path: str = "/nowhere", **headers: str
) -> dict[str, Any]:
    """An ASGI request without a body."""
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "client": (address, 1), "scheme": "http", "headers": named}


async def ask(scope: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()  # There is no body, and the client stays.
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    forwarder = Forwarder("127.0.0.1", NO_SITE)
    await forwarder(scope, receive, send)
    await forwarder.close()
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent)


async def test_the_second_request_of_an_address_is_refused() -> None:
    assert (await ask(request()))[0] == 503
    status, headers, body = await ask(request())
    assert (status, json.loads(body)["type"]) == (429, "rate-limited")
    assert headers["content-type"] == "application/problem+json"
    assert int(headers["retry-after"]) >= 1
    assert (await ask(request("203.0.113.2")))[0] == 503
    status, headers, body = await ask(request(accept="text/html"))
    assert (status, headers["content-type"]) == (429, "text/html; charset=utf-8")
    assert headers["retry-after"].encode() in body


async def test_a_token_has_one_limit_from_all_addresses() -> None:
    assert (await ask(request("203.0.113.1", authorization="Bearer one")))[0] == 503
    assert (await ask(request("203.0.113.2", authorization="Bearer one")))[0] == 429
    assert (await ask(request("203.0.113.2", cookie="a=b; visitor=two")))[0] == 503
    assert (await ask(request("203.0.113.3", cookie="visitor=two; c=d")))[0] == 429


async def test_exempt_and_already_counted_requests_are_forwarded() -> None:
    for scope in (
        request("127.0.0.1"),
        request() | {"limits.counted": True},
    ):
        assert [(await ask(scope))[0] for _ in range(3)] == [503] * 3


def test_only_the_fast_path_passes_the_clients_address_to_the_site(settings: Any) -> None:
    settings.TRUSTED_PROXIES = [ipaddress.ip_network("10.0.0.1")]
    forwarded_by = client_address.FORWARDED_BY_HEADER.replace("-", "_")
    claims = {"x_forwarded_for": "1.1.1.1, 203.0.113.9", "x_forwarded_proto": "https", forwarded_by: "mine"}
    for peer, address, scheme in (("10.0.0.1", "203.0.113.9", "https"), ("203.0.113.5", "203.0.113.5", "http")):
        passed = [pair for pair in _request_headers(request(peer, **claims), None) if pair[0].startswith("x-f")]
        assert sorted(passed) == [
            (client_address.FORWARDED_BY_HEADER, client_address.forward_token()),
            ("x-forwarded-for", address),
            ("x-forwarded-proto", scheme),
        ]
        environ = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in passed}
        assert client_address.address_from_environ({"REMOTE_ADDR": "127.0.0.1", **environ}) == address
