"""A minimal ASGI application: the throughput of the server itself."""

from typing import Any

_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"15")],
}
_BODY = {"type": "http.response.body", "body": b'{"status":"ok"}'}


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send(_START)
        await send(_BODY)
    elif scope["type"] == "lifespan":
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
