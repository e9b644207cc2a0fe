"""A minimal ASGI application that sends one stored page: the bytes of the file STORED_PAGE, and nothing else."""

import os
from pathlib import Path
from typing import Any

_body = Path(os.environ["STORED_PAGE"]).read_bytes()
_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-encoding", b"br"),
        (b"content-length", str(len(_body)).encode()),
    ],
}
_BODY = {"type": "http.response.body", "body": _body}


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send(_START)
        await send(_BODY)
    elif scope["type"] == "lifespan":
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
