"""Connections to our HTTP server without a network: what the server writes to a client is kept in memory."""

import asyncio
import json
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from ticketing.server.http_protocol import HttpProtocol

SECONDS_MAX = 20


class FakeTransport(asyncio.Transport):
    """The client's end of one connection."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.data_written = asyncio.Event()
        self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 50_000), "sockname": ("127.0.0.1", 80)}.get(name, default)

    def write(self, data: Any) -> None:
        self.written += bytes(data)
        self.data_written.set()

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    async def answers(self, count: int) -> list[tuple[int, Any]]:
        """Return the status and JSON document of the next `count` responses."""
        found: list[tuple[int, Any]] = []
        async with asyncio.timeout(SECONDS_MAX):
            while len(found) < count:
                head, separator, rest = self.written.partition(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]) if separator else 0
                if separator and len(rest) >= length:
                    found.append((int(head.split(b" ")[1]), json.loads(rest[:length] or b"null")))
                    self.written = rest[length:]
                else:
                    self.data_written.clear()
                    await self.data_written.wait()
        return found


def connection(application: Any) -> tuple[HttpProtocol, FakeTransport]:
    """Return a connection to this application, and its client's end."""
    config = uvicorn.Config(
        application,
        http="ticketing.server.http_protocol:HttpProtocol",
        lifespan="off",
        proxy_headers=False,
        log_level="error",
    )
    config.load()
    protocol, transport = HttpProtocol(config, ServerState(), {}, asyncio.get_running_loop()), FakeTransport()
    protocol.connection_made(transport)
    return protocol, transport


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: testserver"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
