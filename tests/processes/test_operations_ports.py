"""The operations ports of all processes, as probes and scrapers use them: plain HTTP, although the site is https."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil
import pytest

from apps.kernel.observability.metrics import STALLED_SECONDS
from apps.kernel.observability.operations_port import OFFSETS
from tests.processes.test_beat_and_worker import started
from tests.support.web_processes import WAIT_SECONDS_MAX, wait_until
from ticketing.devserver.ports import free_port, is_free

pytestmark = pytest.mark.django_db(transaction=True)


def free_ports(count: int) -> int:
    """Return the first of so many adjacent free ports."""
    while True:
        first = free_port()
        if first + count < 65_000 and all(is_free(first + offset) for offset in range(1, count)):
            return first


def ask(port: int, path: str, host: str = "10.1.2.3:9") -> tuple[int, bytes]:
    """Return the status and the body, or 0 while nothing listens."""
    connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS_MAX)
    with contextlib.closing(connection):
        try:
            connection.request("GET", path, headers={"Host": host})
            response = connection.getresponse()
            return response.status, response.read()
        except ConnectionError:
            return 0, b""


@contextlib.contextmanager
def operating(folder: Path, *names: str, **more: str) -> Iterator[int]:
    """Run these processes for an https site; yield OPERATIONS_PORT once each of them is healthy."""
    base, port, site_port = free_ports(len(OFFSETS)), free_port(), free_port()
    environment: dict[str, Any] = {
        "SITE_URL": "https://tickets.example",
        "EMAIL_URL": "consolemail://",
        "ALLOW_SANDBOX": "1",
        "METRICS_FOLDER": str(folder / "metrics"),
        "OPERATIONS_PORT": str(base),
        "PORT": str(port),
        "SITE_PORT": str(site_port),
        "SITE_WORKERS": "1",
        "WEB_WORKERS": "2",
        "DJANGO_SETTINGS_MODULE": "ticketing.settings",
        **more,
    }
    with started(folder, *names, **environment):
        for name in names:
            wait_until(lambda: ask(base + OFFSETS[name], "/healthz")[0] == 200, f"{name} is healthy")  # noqa: B023
        yield base


def test_every_process_answers_on_its_port(tmp_path: Path) -> None:
    with operating(tmp_path, *OFFSETS) as base:
        for role, offset in OFFSETS.items():
            assert ask(base + offset, "/healthz") == (200, b'{"status": "ok"}'), role
            status, body = ask(base + offset, "/readyz")
            assert (status, json.loads(body)["database"]) == (200, "ok"), role
            status, body = ask(base + offset, "/metrics")
            assert status == 200, role
            assert b"fairgate_database_up 1.0" in body, role
            assert ask(base + offset, "/admin/")[0] == 404
        wait_until(lambda: all(role.encode() in _roles(base) for role in ("web", "site", "gatekeeper", "relay")), "all")
        # Each process publishes within a few seconds of its start.
        wait_until(lambda: _roles(base + OFFSETS["beat"]) == _roles(base), "each port shows every process")


def _roles(port: int) -> bytes:
    lines = ask(port, "/metrics")[1].splitlines()
    return b" ".join(sorted(line for line in lines if line.startswith(b"fairgate_processes_count")))


def test_a_hanging_process_of_several_is_reported_and_a_killed_listener_is_replaced(tmp_path: Path) -> None:
    with operating(tmp_path, "web") as port:
        files = tmp_path / "metrics"
        wait_until(lambda: len(list(files.glob("web-*-*.json"))) == 2, "both processes of web publish")
        listener, other = _listener_first(port, [int(file.name.split("-")[1]) for file in files.glob("web-*-*.json")])
        psutil.Process(other).send_signal(signal.SIGSTOP)
        try:
            (file,) = files.glob(f"web-{other}-*.json")
            os.utime(file, (time.time() - STALLED_SECONDS - 1,) * 2)  # As after this time.
            status, body = ask(port, "/healthz")
            assert (status, json.loads(body)["stalled"]) == (503, [f"process {other}"])
        finally:
            psutil.Process(other).send_signal(signal.SIGCONT)
        wait_until(lambda: ask(port, "/healthz")[0] == 200, "it runs again")
        psutil.Process(listener).kill()
        wait_until(lambda: ask(port, "/healthz")[0] == 200, "another process listens")


def _listener_first(port: int, pids: list[int]) -> tuple[int, int]:
    def listens(pid: int) -> bool:
        return any(
            each.status == psutil.CONN_LISTEN and each.laddr.port == port
            for each in psutil.Process(pid).net_connections("tcp")
        )

    listener, other = sorted(pids, key=listens, reverse=True)
    assert listens(listener)
    assert not listens(other)
    return listener, other
