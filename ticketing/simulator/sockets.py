"""The same over WebSockets: a task each, so they cost more than streams of events do."""

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
    """One socket, read until either side ends it."""

    def __init__(self, ear: StreamListener, socket: aiohttp.ClientWebSocketResponse, known: dict[str, Frame]) -> None:
        self._ear, self._socket, self._known = ear, socket, known
        self._task = ear.listeners.start(self._read())

    def close(self) -> None:
        self._task.cancel()

    async def _read(self) -> None:
        ear = self._ear
        try:
            async for message in self._socket:
                ear.last_data_at = ear.listeners.door.now()
                if message.type == aiohttp.WSMsgType.TEXT:
                    ear.receive(self._frame(cast("str", message.data)))
        except (ValueError, msgspec.MsgspecError) as error:
            ear.report_breach(f"no message of the contract: {error}")
        except (aiohttp.ClientError, OSError):
            pass
        finally:
            ear.ended("no answer")
            await self._socket.close()

    def _frame(self, text: str) -> Frame:
        known = self._known.get(text)
        if known is None:
            message = msgspec.json.decode(text, type=_Message)
            known = read_frame(message.event, message.id, bytes(message.data))
            if len(self._known) >= CACHED_FRAMES_MAX:
                self._known.clear()
            self._known[text] = known
        return known


def open_sockets(session: aiohttp.ClientSession, base: str, event: str) -> StreamOpener:
    """How a socket to this event is opened. A session without a limit of its own."""
    known: dict[str, Frame] = {}

    async def open_one(ear: StreamListener) -> None:
        since = {"since": ear.last_id} if ear.last_id else {}
        try:
            socket = await session.ws_connect(
                f"{base}/api/events/{event}/sections/updates", params=since, origin=base, timeout=_CLOSING
            )
        except aiohttp.WSServerHandshakeError as error:
            # A house that is full says 403 too.
            ear.refused(503 if error.status == 403 else error.status)
            return
        except aiohttp.ClientError as error:
            raise OSError(str(error)) from error
        ear.opened()
        ear.line = Socket(ear, socket, known)

    return open_one
