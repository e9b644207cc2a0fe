"""An event stream that the server closes ends, even if its client does not read."""

import asyncio
import socket

import pytest

from ticketing.server import event_stream
from ticketing.server.event_stream import StreamListener


class Ending(asyncio.Protocol):
    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


@pytest.mark.parametrize("unread_bytes", [0, 10_000_000])
async def test_a_closed_stream_ends_although_its_client_does_not_read(
    monkeypatch: pytest.MonkeyPatch, unread_bytes: int
) -> None:
    monkeypatch.setattr(event_stream, "UNREAD_SECONDS_MAX", 0.05)
    ours, theirs = socket.socketpair()
    with theirs:
        transport, protocol = await asyncio.get_running_loop().connect_accepted_socket(Ending, ours)
        listener = StreamListener(transport)
        transport.write(b"x" * unread_bytes)
        listener.close(1.0)
        listener.close(1.0)
        await asyncio.wait_for(protocol.lost.wait(), 10)
