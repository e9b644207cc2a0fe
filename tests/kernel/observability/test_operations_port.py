"""The operations port: three paths, plain HTTP, any Host header, and a few slow clients stop nothing."""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from apps.kernel.observability import heartbeats, operations_port
from apps.kernel.observability.operations_port import _Server
from tests.support.web_processes import wait_until
from ticketing.devserver.ports import free_port

SECONDS_MAX = 60


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The operations port of a process of role `relay`, whose two computed paths answer without a database."""
    monkeypatch.setattr(heartbeats, "_beats", {})
    monkeypatch.setattr(operations_port, "_answers", {})
    monkeypatch.setattr(operations_port, "_computing", {})
    monkeypatch.setattr(operations_port, "connections", contextlib.nullcontext())
    monkeypatch.setattr(operations_port.connections, "close_all", lambda: None, raising=False)
    operations_port.register("/metrics", lambda: (200, "text/plain", b"figures 1\n"))
    server = _Server("relay", "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join(SECONDS_MAX)


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()


@pytest.mark.parametrize("host", ["tickets.example", "evil.example", "10.0.0.1:1", "[::1]", "%"])
def test_any_host_gets_an_answer(port: int, host: str) -> None:
    assert ask(port, "/healthz", Host=host) == (200, b'{"status": "ok"}')
    assert ask(port, "/metrics?x=1", Host=host) == (200, b"figures 1\n")


@pytest.mark.parametrize("path", ["/", "/healthzX", "/metrics/", "/admin/", "/../metrics"])
def test_other_paths_do_not_exist(port: int, path: str) -> None:
    assert ask(port, path)[0] == 404


def test_only_reads_are_answered(port: int) -> None:
    assert ask(port, "/metrics", "HEAD") == (200, b"")
    assert ask(port, "/metrics", "POST")[0] == 501
    assert ask(port, "/metrics", "GET" * 40_000)[0] == 414


def test_health_names_stalled_loops(port: int) -> None:
    heartbeats.beat("relay", -1.0)
    status, body = ask(port, "/healthz")
    assert (status, json.loads(body)) == (503, {"status": "stalled", "stalled": ["relay"]})


def test_an_error_is_answered_with_500_and_the_port_goes_on(port: int, caplog: pytest.LogCaptureFixture) -> None:
    operations_port.register("/readyz", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    assert [ask(port, "/readyz")[0], ask(port, "/readyz")[0], ask(port, "/healthz")[0]] == [500, 500, 200]
    assert "operations port: /readyz failed" in caplog.text


def test_one_request_for_a_path_is_computed_at_a_time_and_health_does_not_wait(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations_port, "WAIT_SECONDS_MAX", 0.05)
    computing, going = threading.Event(), threading.Event()
    first: list[Any] = []

    def compute() -> operations_port.Answer:
        computing.set()
        assert going.wait(SECONDS_MAX)
        return 200, "text/plain", b"done"

    operations_port.register("/readyz", compute)
    thread = threading.Thread(target=lambda: first.append(ask(port, "/readyz")))
    thread.start()
    assert computing.wait(SECONDS_MAX)
    assert ask(port, "/readyz") == (503, b'{"status":"busy"}')
    assert [ask(port, "/healthz")[0], ask(port, "/metrics")[0]] == [200, 200]
    going.set()
    thread.join(SECONDS_MAX)
    assert first == [(200, b"done")]


def test_clients_that_do_not_finish_their_requests_are_disconnected(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent clients take every connection. They are disconnected, although they continue to send, and later clients
    are answered."""
    monkeypatch.setattr(operations_port, "READ_SECONDS_MAX", 0.3)
    with contextlib.ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX))
            for _ in range(operations_port.CONNECTIONS_MAX + 2)
        ]
        for each in slow:
            with contextlib.suppress(OSError):  # Those beyond the limit are closed at once.
                each.sendall(b"GET /healthz HTTP/1.1\r\n")
        for each in slow:
            with contextlib.suppress(ConnectionError):
                assert each.recv(1) == b""
        wait_until(lambda: _status(port) == 200, "a connection is free")


def _status(port: int) -> int:
    """Return the status of /healthz, or 0 while all connections are in use."""
    try:
        return ask(port, "/healthz")[0]
    except ConnectionError:
        return 0


@pytest.mark.slow
def test_a_forked_child_does_not_keep_the_port(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "_beats", {})
    settings.OPERATIONS_PORT = free_port() - operations_port.OFFSETS["beat"]
    operations_port.begin("beat")
    port = settings.OPERATIONS_PORT + operations_port.OFFSETS["beat"]
    while not operations_port._listening:
        threading.Event().wait(0.01)
    assert ask(port, "/healthz")[0] == 200
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child
        os.write(write, b"held" if operations_port._listening else b"free")
        os._exit(0)
    assert os.read(read, 4) == b"free"
    os.waitpid(pid, 0)
    os.close(read)
    os.close(write)
    assert ask(port, "/healthz")[0] == 200, "the parent still answers"
    server = operations_port._listening.pop()
    server.shutdown()
    server.server_close()


def test_without_the_setting_nothing_listens(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("a port was opened")

    monkeypatch.setattr(operations_port, "_serve", refuse)
    assert settings.OPERATIONS_PORT == 0
    operations_port.begin("web")
