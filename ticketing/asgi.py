"""The lane: what the crowd meets. Sockets by Channels, its own few answers, everything else forwarded to the site."""

import asyncio
import gc
import os
import sys
from typing import Any, cast

import django
from channels.routing import ProtocolTypeRouter, URLRouter
from django.urls import URLPattern, re_path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")
django.setup()

from apps.kernel.fastpath import thread_pool  # noqa: E402
from apps.kernel.fastpath.request import Receive, Request, Scope, Send  # noqa: E402
from apps.kernel.group_commit import batcher  # noqa: E402
from apps.orders import facade as orders  # noqa: E402 - needs Django set up
from apps.reservations.async_views import async_redis  # noqa: E402
from apps.reservations.live.endpoints import PATH as UPDATES  # noqa: E402
from apps.reservations.live.endpoints import live_endpoints  # noqa: E402
from ticketing import startup  # noqa: E402
from ticketing.fastpath_routes import create_dispatcher  # noqa: E402
from ticketing.server.site_proxy import Forwarder, site_address  # noqa: E402

startup.begin("web")
# Beside the loop threads commit and read. Whoever wants the interpreter back from another thread waits so long: with
# Python's 5 ms each of the loop's journeys to the kernel, and each answer of PostgreSQL, could cost as much
# (docs/performance.md, "Holds").
sys.setswitchinterval(0.001)
# What was made by now stays: the collector need not look through it again while somebody waits.
gc.collect()
gc.freeze()
# Nearly everything that a request leaves goes by itself. At Python's 700 the collector ran once for some dozen requests
# and was a twentieth of what a refusal cost.
gc.set_threshold(20_000, 20, 20)
forwarder = Forwarder(*site_address())
dispatcher = create_dispatcher(forwarder)
live_endpoints.register_owned(orders.UPDATE_KIND, orders.authorize_subscriber, orders.read_order_updates)


async def http(scope: Scope, receive: Receive, send: Send) -> None:
    path = scope["path"]
    if path == "/healthz":
        await _healthz(send)
    elif (
        path.endswith("/updates")
        and scope["method"] in ("GET", "HEAD")
        and (found := UPDATES.fullmatch(path))
        and Request(scope).has_allowed_host()  # What else is to be said the site says.
    ):
        await live_endpoints.http(scope, receive, send, found["slug"])
    else:
        await dispatcher(scope, receive, send)


async def _healthz(send: Send) -> None:
    # Only says that this process turns its loop; whether it can serve is /readyz's to say.
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"status":"ok"}'})


async def reject_socket(scope: Scope, receive: Receive, send: Send) -> None:
    """A socket that no route knows is closed before it opens."""
    await receive()
    await send({"type": "websocket.close", "code": 4404})


# Django's stubs know views only; Channels routes ASGI applications by the same patterns.
SOCKETS: list[URLPattern] = [
    re_path(UPDATES.pattern.lstrip("/"), cast("Any", live_endpoints.socket)),
    re_path(r"", cast("Any", reject_socket)),
]


async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await forwarder.close()
            await live_endpoints.close()
            async_redis.close()
            await asyncio.to_thread(thread_pool.close)
            await asyncio.to_thread(batcher.close_all)
            await send({"type": "lifespan.shutdown.complete"})
            return


class RootApplication(ProtocolTypeRouter):
    """Also answers our own server at sight (`apps.kernel.fastpath.server_extensions`)."""

    respond_sync = staticmethod(dispatcher.respond_sync)


application = RootApplication(
    {
        "http": http,
        "websocket": URLRouter(SOCKETS),
        "lifespan": lifespan,
    }
)
