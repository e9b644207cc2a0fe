"""Steps that every process takes before it serves requests."""

import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

_READ_BYTES = 64 * 1024
REQUEST_SECONDS_MAX = 120.0
"""Twice the time after which the fast path gives a request up."""
_FILE_BYTES_MAX = 8 * 1024 * 1024
"""The largest static file has 4 MB."""

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def load_settings() -> None:
    """Load the settings. A mistake in them ends the process with one line and status 1."""
    try:
        settings.DEBUG  # noqa: B018 - the first access loads them
    except ImproperlyConfigured as error:
        _exit(error)


def require_safe_settings() -> None:
    """End the process with one line and status 1 unless the settings are safe to serve with."""
    from apps.kernel import secret_key

    load_settings()
    try:
        secret_key.require_safe_settings()
    except ImproperlyConfigured as error:
        _exit(error)


def _exit(error: ImproperlyConfigured) -> NoReturn:
    sys.exit(f"fairgate: {error}".replace("\n", " "))


def watch_requests(application: Application) -> Application:
    """Wrap the WSGI application so that the process counts as stalled while its requests neither begin nor end."""
    from apps.kernel.observability import heartbeats

    counting, count = threading.Lock(), 0

    def change(by: int) -> None:
        nonlocal count
        with counting:
            count += by
            if count:
                heartbeats.beat("requests", REQUEST_SECONDS_MAX)
            else:
                heartbeats.end("requests")

    def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        change(1)
        try:
            return application(environ, start_response)
        finally:
            change(-1)

    return respond


def call_once(application: Application, act: Callable[[], None]) -> Application:
    """Wrap the WSGI application so that `act` is called once, when the first request begins: a process that imports the
    application without serving it has none."""
    called = threading.Lock()

    def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if called.acquire(blocking=False):  # It is never released.
            act()
        return application(environ, start_response)

    return respond


def drain_request_body(application: Application) -> Application:
    """Wrap the WSGI application so that the rest of the request's body is read before the response is sent.

    If a body was not read completely (for an unknown URL, for example), the server closes the connection without
    announcing it. The proxy in front would use the connection for the next request, which would get no response.
    """

    def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        response = application(environ, start_response)
        if environ.get("CONTENT_LENGTH") not in (None, "", "0"):
            _drain(environ["wsgi.input"])
        return response

    return respond


def _drain(body: Any) -> None:
    # Up to the API's limit: `server.site_proxy` never reuses the connection of a larger body.
    left = settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0
    try:
        while left > 0 and (chunk := body.read(min(left, _READ_BYTES))):
            left -= len(chunk)
    except OSError:
        return  # The client has closed the connection.


def return_files_whole(application: Application) -> Application:
    """Wrap the WSGI application so that a file is handed to the server in one piece.

    The server would take a file in chunks, each when the client has read the one before: a few clients that do not read
    would occupy all threads of the site.
    """

    def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        response: Any = application(environ, start_response)
        if not getattr(response, "streaming", False) or "Content-Length" not in response.headers:
            return response
        if int(response.headers["Content-Length"]) > _FILE_BYTES_MAX:
            return response
        try:
            return [b"".join(response)]
        finally:
            response.close()

    return respond


def lower_priority(niceness: int) -> None:
    """Lower the scheduling priority of this process and of threads that it starts later.

    Without cgroups, Linux divides the processor among sessions first (sched_autogroup), and niceness counts only within
    a session. So the session's niceness is set too, if the session is the server's own and not a shell's.
    """
    if niceness <= os.getpriority(os.PRIO_PROCESS, 0):
        return
    os.setpriority(os.PRIO_PROCESS, 0, min(niceness, 19))
    if os.getsid(0) in (os.getpid(), os.getppid()):
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(min(niceness, 19)))


def begin(role: str) -> None:
    """Start this process's health signals and its operations port; `role` is one of `operations_port.OFFSETS`. A
    process that serves clients also shares rate limits and publishes its metrics. Unsafe settings end the process with
    one line and status 1."""
    from apps.kernel import rate_limits
    from apps.kernel.observability import health_signals, metrics, operations_port

    require_safe_settings()
    health_signals.begin()
    if role in ("web", "site"):
        rate_limits.begin()
        metrics.begin(role)
    operations_port.begin(role)


if __name__ == "__main__":
    # For servers that would start a process again and again if it ended with this error.
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")
    require_safe_settings()
