"""The same house under Django's own ASGI handler, pages and API alike: what it would do without a lane and a site."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")
_django = get_asgi_application()


async def application(scope, receive, send):  # type: ignore[no-untyped-def]
    # It knows no lifespan, and the server is told to have one.
    if scope["type"] != "lifespan":
        await _django(scope, receive, send)
        return
    while (await receive())["type"] == "lifespan.startup":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})
