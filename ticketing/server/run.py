"""The fast path's server: uvicorn workers behind one listening socket, `python -m ticketing.server.run`.

uvicorn's own command lacks options for three things: connections with limits (`http_protocol`), the socket that systemd
holds open during a release, and a supervisor also for a single worker, so that SIGHUP starts each new worker before it
stops the old one.
"""

import contextlib
import os
import resource
import socket
import sys

import uvicorn
from uvicorn.supervisors.multiprocess import Multiprocess

from ticketing import startup
from ticketing.server.websocket_protocol import MESSAGE_BYTES_MAX

BACKLOG = 4096
KEEP_ALIVE_SECONDS = 5
# Time for requests in progress when a worker ends. The slowest waits 5 s for a slot and 5 s for its batch.
GRACEFUL_SECONDS = 20
# A new worker that takes longer does not replace the old one. A worker that does not respond for this long is killed.
START_SECONDS_MAX = 60
# The first descriptor that systemd passes (sd_listen_fds).
FIRST_SOCKET = 3
WORKERS_MAX = 64


def _usable_processors() -> int:
    """Return how many processors this process may use: all, on systems without CPU affinity (macOS)."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def main(application: str = "ticketing.asgi:application") -> int:
    """Serve until SIGTERM or SIGINT. SIGHUP replaces the workers one by one."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")
    startup.require_safe_settings()  # Here too: uvicorn restarts a worker that ends.
    os.environ.pop("WEB_CONCURRENCY", None)  # uvicorn would read it as the number of workers.
    try:
        workers = _whole_number("WEB_WORKERS", _usable_processors(), WORKERS_MAX)
        port = _whole_number("PORT", 8000, 65_535)
        keep_alive = _whole_number("WEB_KEEP_ALIVE_SECONDS", KEEP_ALIVE_SECONDS, 3_600)
    except ValueError as error:
        print(f"fairgate: {error}", file=sys.stderr)
        return 1
    os.environ["WEB_WORKERS"] = str(workers)  # Each worker allows an address its share of the caps.
    _raise_file_limit()
    config = uvicorn.Config(
        application,
        host=os.environ.get("BIND") or "127.0.0.1",
        port=port,
        workers=workers,
        loop="uvloop",
        http="ticketing.server.http_protocol:HttpProtocol",
        ws="ticketing.server.websocket_protocol:WebSocketProtocol",
        ws_max_size=MESSAGE_BYTES_MAX,
        # A compressed message of 16 KiB can expand to 16 MiB. Frames for all listeners are the same bytes.
        ws_per_message_deflate=False,
        lifespan="on",
        access_log=False,
        log_level="error",
        server_header=False,
        proxy_headers=False,  # `client_address` decides which proxies to trust.
        backlog=BACKLOG,
        timeout_keep_alive=keep_alive,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
        timeout_worker_healthcheck=START_SECONDS_MAX,
    )
    listening = _inherited_socket() or config.bind_socket()
    Multiprocess(config, sockets=[listening]).run()
    return 0


def _whole_number(name: str, default: int, most: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise ValueError(f"{name}={text} is not a number from 1 to {most}")
    return int(text)


def _inherited_socket() -> socket.socket | None:
    """Return the socket of a systemd .socket unit, if one started this process."""
    if os.environ.pop("LISTEN_PID", "") != str(os.getpid()) or not os.environ.pop("LISTEN_FDS", "").isdigit():
        return None
    handed_over = socket.socket(fileno=FIRST_SOCKET)
    handed_over.set_inheritable(True)
    return handed_over


def _raise_file_limit() -> None:
    """Raise the limit of open files, one for each connection, to the hard limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
