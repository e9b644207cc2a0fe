"""What a process has before it serves anybody."""

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
    """The WSGI application, which answers only once what it left of the request's body has been read.

    The server hangs up, and does not say that it will, where a body was not read whole: an address that does not exist,
    say. Whoever forwards keeps the connection, and somebody else's join or hold, next on it, gets no answer.
    """

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        answered = application(environ, start_response)
        if environ.get("CONTENT_LENGTH") not in (None, "", "0"):
            _drain(environ["wsgi.input"])
        return answered

    return answer


def _drain(body: Any) -> None:
    # What the API takes at most. Who sends more is on a connection of its own (`server.site_proxy`).
    left = settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0
    try:
        while left > 0 and (chunk := body.read(min(left, _READ_BYTES))):
            left -= len(chunk)
    except OSError:
        return  # Its sender has gone, and the connection with it.


def lower_priority(niceness: int) -> None:
    """This process and its threads to come take the processor after those that were not told to step back.

    Linux shares it out among sessions first unless cgroups say otherwise (sched_autogroup), and niceness counts within
    one only: so the session steps back too where it is the server's own, and not a shell's with others in it.
    """
    if niceness <= os.getpriority(os.PRIO_PROCESS, 0):
        return
    os.setpriority(os.PRIO_PROCESS, 0, min(niceness, 19))
    if os.getsid(0) in (os.getpid(), os.getppid()):
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(min(niceness, 19)))


def begin(role: str | None = None) -> None:
    """The house has a key of its own, without which the process ends here with one line and exit status 1; and what
    this process measures of its health is known to the others from now on. `role`: of a process that has clients, which
    it counts, and what its figures are shown under."""
    try:
        secret_key.require_key()
    except ImproperlyConfigured as error:
        sys.exit(f"fairgate: {error}")
    health_signals.begin()
    if role is not None:
        rate_limits.begin()
        metrics.begin(role)
