"""Steps that every process takes before it serves requests."""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from apps.kernel import rate_limits, secret_key
from apps.kernel.observability import health_signals, metrics

_READ_BYTES = 64 * 1024

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


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


def begin(role: str | None = None) -> None:
    """Start publishing this process's health signals. Without a secret key the process exits with one line and status
    1. A process that serves clients has a `role`: it shares rate limits and publishes its metrics under this name."""
    try:
        secret_key.require_key()
    except ImproperlyConfigured as error:
        sys.exit(f"fairgate: {error}")
    health_signals.begin()
    if role is not None:
        rate_limits.begin()
        metrics.begin(role)
