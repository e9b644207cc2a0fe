"""Listening over WebSockets. Each takes a task, so it costs more than a stream of server-sent events."""

from functools import lru_cache
from typing import cast

import aiohttp
import msgspec

from ticketing.simulator.stream_listeners import CACHED_FRAMES_MAX, Frame, StreamListener, StreamOpener, read_frame

_CLOSING = aiohttp.ClientWSTimeout(ws_close=1.0)


class _Message(msgspec.Struct):
    event: str
    id: str
    data: msgspec.Raw


class Socket:
    """One WebSocket, read until either side closes it."""

    def __init__(self, listener: StreamListener, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._listener, self._socket = listener, socket
        self._task = listener.group.start(self._read())

    def close(self) -> None:
        self._task.cancel()

    async def _read(self) -> None:
        listener = self._listener
        try:
            async for message in self._socket:
                listener.last_data_at = listener.group.context.now()
                if message.type == aiohttp.WSMsgType.TEXT:
                    listener.receive(_frame(cast("str", message.data)))
        except (ValueError, msgspec.MsgspecError) as error:
            listener.report_breach(f"invalid message: {error}")
        except (aiohttp.ClientError, OSError):
            pass
        finally:
            listener.ended("no response")
            await self._socket.close()


@lru_cache(maxsize=CACHED_FRAMES_MAX)
def _frame(text: str) -> Frame:
    message = msgspec.json.decode(text, type=_Message)
    return read_frame(message.event, message.id, bytes(message.data))


def open_sockets(session: aiohttp.ClientSession, base: str, event: str) -> StreamOpener:
    """Return a function that opens a WebSocket of this event. The session must have no connection limit."""

    async def open_one(listener: StreamListener) -> None:
        since = {"since": listener.last_id} if listener.last_id else {}
        try:
            socket = await session.ws_connect(
                f"{base}/api/events/{event}/sections/updates", params=since, origin=base, timeout=_CLOSING
            )
        except aiohttp.WSServerHandshakeError as error:
            # A server at its capacity also responds with 403.
            listener.refused(503 if error.status == 403 else error.status)
            return
        except aiohttp.ClientError as error:
            raise OSError(str(error)) from error
        listener.opened()
        listener.stream = Socket(listener, socket)

    return open_one
