"""The ASGI application of `web`: live updates, the fast path, and a proxy to the Django site for all other requests."""

import asyncio
import gc
import os
import sys
from typing import Any, cast

import django
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.urls import URLPattern, re_path

from ticketing import startup

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")
startup.load_settings()
django.setup()

from apps.events import facade as events  # noqa: E402 - needs Django set up
from apps.kernel.db import async_reader  # noqa: E402
from apps.kernel.fastpath import redis_connection, snapshots, thread_pool  # noqa: E402
from apps.kernel.fastpath.request import Receive, Request, Scope, Send  # noqa: E402
from apps.kernel.fastpath.server_extensions import OnResponse, RawResponse  # noqa: E402
from apps.kernel.group_commit import batcher  # noqa: E402
from apps.kernel.observability import heartbeats, metrics  # noqa: E402
from apps.kernel.page_cache.cache import PageCache  # noqa: E402
from apps.kernel.page_cache.version import read_version  # noqa: E402
from apps.kernel.rate_limits.address_caps import AddressCap  # noqa: E402
from apps.kernel.tokens import keys as token_keys  # noqa: E402
from apps.orders import facade as orders  # noqa: E402
from apps.reservations.live.endpoints import PATH as UPDATES  # noqa: E402
from apps.reservations.live.endpoints import live_endpoints  # noqa: E402
from ticketing.fastpath_routes import create_dispatcher, is_shared_page  # noqa: E402
from ticketing.server.site_proxy import Forwarder, site_address  # noqa: E402
from ticketing.server.site_turns import share_of_threads  # noqa: E402

# Unfinished bodies of one address over all processes, each at most 256 KiB. A body that arrives with its headers, as
# nearly every one does, is never unfinished.
ADDRESS_BODIES_MAX = 100
startup.begin("web")
HEARTBEAT_SECONDS, LOOP_SECONDS_MAX = 1.0, 10.0
# Other threads commit and read while the event loop runs. A thread may wait this long for the interpreter lock. With
# Python's default of 5 ms, each system call of the event loop, and each response of PostgreSQL, could be delayed by
# that time (docs/performance.md, "Holds").
sys.setswitchinterval(0.001)
# Objects created so far live as long as the process: exclude them from garbage collection.
gc.collect()
gc.freeze()
# Reference counting frees nearly all objects of a request. With Python's threshold of 700 the collector ran once every
# few dozen requests and took a twentieth of the time of a refused request.
gc.set_threshold(20_000, 20, 20)
forwarder = Forwarder(
    *site_address(),
    password_slots=settings.PASSWORD_HASHES_MAX,
    turns_per_address=share_of_threads(settings.SITE_THREADS_MAX, settings.WEB_WORKERS),
    is_signed=orders.is_signed_webhook,
)
pages = PageCache(forwarder, is_shared_page, bytes_max=settings.PAGE_CACHE_MAX_BYTES)
metrics.register(pages.metrics)
snapshots.register(
    "the version of the public pages could not be read; each is rendered again when it is some seconds old",
    lambda: pages.set_version(read_version()),
)
dispatcher = create_dispatcher(pages)
live_endpoints.register_owned(orders.UPDATE_KIND, orders.authorize_subscriber, orders.read_order_updates)


async def http(scope: Scope, receive: Receive, send: Send) -> None:
    path = scope["path"]
    if path == "/healthz" and scope["method"] in ("GET", "HEAD"):
        await _healthz(send)
    elif (
        path.endswith("/updates")
        and scope["method"] in ("GET", "HEAD")
        and (found := UPDATES.fullmatch(path))
        and Request(scope).has_allowed_host()  # The site refuses other hosts.
    ):
        await live_endpoints.http(scope, receive, send, found["slug"])
    else:
        await dispatcher(scope, receive, send)


async def _healthz(send: Send) -> None:
    # Shows only that this process runs its event loop; /readyz shows whether it can serve.
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"status":"ok"}'})


async def reject_socket(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a WebSocket whose path has no route."""
    await receive()
    await send({"type": "websocket.close", "code": 4404})


# Django's stubs allow only views; Channels routes ASGI applications with the same patterns.
SOCKETS: list[URLPattern] = [
    re_path(UPDATES.pattern.lstrip("/"), cast("Any", live_endpoints.socket)),
    re_path(r"", cast("Any", reject_socket)),
]


def _beat(loop: asyncio.AbstractEventLoop) -> None:
    heartbeats.beat("event loop", LOOP_SECONDS_MAX)
    loop.call_later(HEARTBEAT_SECONDS, _beat, loop)


async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await asyncio.to_thread(token_keys.read)
            await asyncio.to_thread(snapshots.begin)
            await async_reader.shared.start()
            _beat(asyncio.get_running_loop())
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await forwarder.close()
            await live_endpoints.close()
            await events.write_accepted_views()
            await asyncio.to_thread(snapshots.end)
            redis_connection.shared.close()
            await async_reader.shared.close()
            await asyncio.to_thread(thread_pool.close)
            await asyncio.to_thread(batcher.close_all)
            await send({"type": "lifespan.shutdown.complete"})
            return


def respond_sync(scope: Scope, body: bytes | bytearray, later: OnResponse) -> RawResponse | None:
    """Answer calls of the fast path, and pages that are kept in memory."""
    return dispatcher.respond_sync(scope, body, later) or pages.respond_sync(scope)


class RootApplication(ProtocolTypeRouter):
    """Adds what our own server uses: `respond_sync`, to get a response without a task, and the caps on clients
    (`apps.kernel.fastpath.server_extensions`)."""

    respond_sync = staticmethod(respond_sync)
    connection_cap = AddressCap("connections", settings.ADDRESS_CONNECTIONS_MAX)
    body_cap = AddressCap("bodies", ADDRESS_BODIES_MAX)


application = RootApplication(
    {
        "http": http,
        "websocket": URLRouter(SOCKETS),
        "lifespan": lifespan,
    }
)
