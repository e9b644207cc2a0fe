"""The operations port: /healthz, /readyz and /metrics of every process, over plain HTTP and for any Host header.

It is for probes and scrapers, which cannot use the public address behind https. It asks for no token: OPERATIONS_BIND
decides which network reaches it. Processes of one role on a machine share a port. One of them listens and answers for
all; if it ends, another takes over.
"""

import contextlib
import errno
import json
import logging
import os
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from django.conf import settings
from django.db import connections

from apps.kernel.observability import heartbeats, metrics

logger = logging.getLogger(__name__)

OFFSETS = {"web": 0, "site": 1, "worker": 2, "beat": 3, "gatekeeper": 4, "relay": 5, "mailer": 6}
"""Added to OPERATIONS_PORT, so that all processes of a machine can have one environment."""
READ_SECONDS_MAX = 2.0
"""A client that has not sent its whole request by then is disconnected."""
WAIT_SECONDS_MAX = 1.0
"""A request waits this long while another one for the same path is answered."""
CONNECTIONS_MAX = 8
BIND_AGAIN_SECONDS = 1.0
JSON = "application/json"

Answer = tuple[int, str, bytes]
"""Status, content type, body."""
_answers: dict[str, Callable[[], Answer]] = {}
# Held while the answer is computed: each path one at a time, and no fork in between, since a child would inherit other
# locks that are held then.
_computing: dict[str, threading.Lock] = {}


def register(path: str, answer: Callable[[], Answer]) -> None:
    """Answer GET requests for this path with `answer`, which may block and may use the database."""
    _answers[path] = answer
    _computing[path] = threading.Lock()


def begin(role: str) -> None:
    """Listen for this role, in a thread that ends with the process. Does nothing if OPERATIONS_PORT is 0."""
    if settings.OPERATIONS_PORT:
        metrics.machine_metrics.show_others()
        address = settings.OPERATIONS_BIND, settings.OPERATIONS_PORT + OFFSETS[role]
        threading.Thread(target=_serve, args=(role, *address), name="operations", daemon=True).start()


def health(role: str) -> Answer:
    """Return 200 if the loops of this process and of the others of its role on this machine run, else 503."""
    found = [*heartbeats.stalled(), *metrics.machine_metrics.stalled_processes(role)]
    body: dict[str, Any] = {"status": "stalled", "stalled": found} if found else {"status": "ok"}
    return 503 if found else 200, JSON, json.dumps(body).encode()


def _compute(path: str) -> Answer:
    computing = _computing[path]
    if not computing.acquire(timeout=WAIT_SECONDS_MAX):
        return 503, JSON, b'{"status":"busy"}'
    try:
        return _answers[path]()
    except Exception:
        logger.exception("operations port: %s failed", path)
        return 500, JSON, b'{"status":"error"}'
    finally:
        connections.close_all()
        computing.release()


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"
    server_version, sys_version = "fairgate", ""
    timeout = 5.0  # Of each read and write; `_deadline` limits the whole request.

    def setup(self) -> None:
        super().setup()
        self._deadline = threading.Timer(READ_SECONDS_MAX, self._disconnect)
        self._deadline.daemon = True
        self._deadline.start()

    def finish(self) -> None:
        self._deadline.cancel()
        super().finish()

    def _disconnect(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """Answer one of the registered paths, or 404."""
        self._deadline.cancel()
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._send(*health(self.server.role))
        elif path in _answers:
            self._send(*_compute(path))
        else:
            self._send(404, JSON, b'{"status":"not found"}')

    do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Log nothing: probes come every few seconds."""


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 16

    def __init__(self, role: str, host: str, port: int) -> None:
        self.role = role
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle the request in a thread; beyond CONNECTIONS_MAX close the connection."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle the request, then free its place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error, but not a client that has gone or sent too slowly."""
        error = sys.exception()
        if not isinstance(error, OSError):
            logger.error("operations port: a request failed", exc_info=error)


_listening: list[_Server] = []


def _serve(role: str, host: str, port: int) -> None:
    has_reported = False
    while True:
        try:
            server = _Server(role, host, port)
        except OSError as error:
            if not has_reported:
                # Usually another process of this role listens; any other error is a mistake in the settings.
                level = logging.INFO if error.errno == errno.EADDRINUSE else logging.ERROR
                logger.log(level, "operations port %s of %s cannot be opened: %s", port, role, error)
            has_reported = True
            time.sleep(BIND_AGAIN_SECONDS)
            continue
        _listening.append(server)
        server.serve_forever()
        return


def _before_fork() -> None:
    for computing in _computing.values():
        computing.acquire()


def _after_fork_in_parent() -> None:
    for computing in _computing.values():
        computing.release()


def _after_fork_in_child() -> None:
    _computing.update((path, threading.Lock()) for path in _computing)
    while _listening:
        _listening.pop().socket.close()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
