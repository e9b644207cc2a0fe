"""`python -m ticketing.server.run`, as the Procfile starts it, in its own processes."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

import psutil

from tests.support.servers import CHECKOUT
from ticketing.devserver.ports import free_port

WAIT_SECONDS_MAX = 150
"""A limit for processes that start on a busy machine. No passing test waits this long."""


@dataclass
class Web:
    port: int
    process: psutil.Popen

    def workers(self) -> set[int]:
        """Return the process ids of the running workers, without Python's resource tracker."""
        found = set()
        for child in self.process.children():
            with contextlib.suppress(psutil.Error):
                if "spawn_main" in " ".join(child.cmdline()):
                    found.add(child.pid)
        return found

    def serving(self) -> set[int]:
        """Return the process ids of the workers that listen, and therefore serve."""
        listening = set()
        for pid in self.workers():
            with contextlib.suppress(psutil.Error):
                if any(each.status == psutil.CONN_LISTEN for each in psutil.Process(pid).net_connections("tcp")):
                    listening.add(pid)
        return listening

    def replace_workers(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def healthy(self) -> bool:
        """Whether a worker answers."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS_MAX)
        with contextlib.closing(connection):
            try:
                connection.request("GET", "/healthz")
                return connection.getresponse().status == 200
            except OSError:
                return False

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_SECONDS_MAX)


@contextlib.contextmanager
def web(
    site_port: int, *, workers: int = 1, database: dict[str, Any] | None = None, files_max: int = 0, **more: str
) -> Iterator[Web]:
    """Run the web server with its fast path, yield it once every worker listens, and stop it with all of its workers
    afterwards. `files_max`: how many files each process may open."""
    port = free_port()
    environment = {
        **os.environ,
        "PORT": str(port),
        "SITE_PORT": str(site_port),
        "WEB_WORKERS": str(workers),
        "DJANGO_SETTINGS_MODULE": "ticketing.settings",
        "LOG_LEVEL": "ERROR",
        **more,
    }
    limit = ["sh", "-c", f'ulimit -n {files_max} && exec "$@"', "sh"] if files_max else []
    process = psutil.Popen([*limit, sys.executable, "-m", "ticketing.server.run"], env=environment, cwd=CHECKOUT)
    try:
        served = Web(port, process)
        wait_until(served.healthy, "the web server answers", while_runs=process)
        wait_until(lambda: len(served.serving()) == workers, "every worker listens", while_runs=process)
        yield served
    finally:
        family = [process, *process.children(recursive=True)] if process.is_running() else []
        with contextlib.suppress(psutil.Error):
            process.terminate()
        _, left = psutil.wait_procs(family, timeout=WAIT_SECONDS_MAX)
        for each in left:
            each.kill()
        assert not left, "the web server did not end"


def wait_until(true: Callable[[], bool], what: str, *, while_runs: subprocess.Popen[bytes] | None = None) -> None:
    """Return as soon as `true()` holds. Raises AssertionError if it never does."""
    deadline, pause = time.monotonic() + WAIT_SECONDS_MAX, threading.Event()
    while not true():
        assert while_runs is None or while_runs.poll() is None, f"it ended before: {what}"
        assert time.monotonic() < deadline, f"never: {what}"
        pause.wait(0.05)
