"""A listener that queues its messages: for WebSockets, and for server-sent events under any other ASGI server."""

import asyncio
from collections import deque
from collections.abc import Callable

from apps.kernel.push.frames import HEARTBEAT, Frame, closing_event, closing_frame
from apps.kernel.push.hub import Listener

WAITING_MAX = 4
"""A listener with this many unsent messages counts as slow."""
Message = bytes | str


class QueuedListener(Listener):
    """Queues what is written to it until `next` takes it. `encode` makes the message for a WebSocket; without it frames
    become server-sent events."""

    __slots__ = ("_encode", "_has_messages", "_queue", "is_disconnected")

    def __init__(self, door: str, encode: Callable[[Frame], Message] | None = None) -> None:
        super().__init__(door)
        self._encode = encode
        self._queue: deque[Message] = deque()
        self._has_messages = asyncio.Event()
        self.is_disconnected = False
        self.on_gone = self._has_messages.set

    def write(self, frame: Frame) -> None:
        self._put(frame.event if self._encode is None else self._encode(frame))

    def is_slow(self) -> bool:
        return len(self._queue) >= WAITING_MAX

    def keep_alive(self) -> None:
        if self._encode is None:
            self._put(HEARTBEAT)  # A socket has pings of its own.

    def close(self, retry_seconds: float) -> None:
        if self._encode is None:
            self._put(closing_event(retry_seconds))
        else:
            self._put(self._encode(closing_frame(retry_seconds)))
        self.is_disconnected = True

    def _put(self, message: Message) -> None:
        self._queue.append(message)
        self._has_messages.set()

    async def next(self) -> Message | None:
        """Return the message to send next, or None once the listener is closed and its queue is empty."""
        while not self._queue:
            if self.is_disconnected or self.is_gone:
                return None
            self._has_messages.clear()
            await self._has_messages.wait()
        message = self._queue.popleft()
        if not self.is_slow():
            self.catch_up()
        return message
