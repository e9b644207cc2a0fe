"""The same site under Django's own ASGI handler, pages and API alike, without the fast path and a separate site."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")
_django = get_asgi_application()


async def application(scope, receive, send):  # type: ignore[no-untyped-def]
    # The handler has no lifespan support, but the server expects it.
    if scope["type"] != "lifespan":
        await _django(scope, receive, send)
        return
    while (await receive())["type"] == "lifespan.startup":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})
