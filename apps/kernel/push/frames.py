"""Frames: small documents sent to many listeners, encoded once for each transport."""

import hashlib
import struct
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import msgspec


class Key(NamedTuple):
    """A frame's subject: a newer frame replaces an older one of the same key."""

    kind: str
    about: str = ""


class Frame:
    """One document: `data` is JSON on one line, sent as an event of type `key.kind`.

    A client that reconnects sends the `id` of the last frame it read (Last-Event-ID). The id is empty for frames that
    are sent anew after every connection.
    """

    def __init__(self, key: Key, data: bytes, frame_id: str = "") -> None:
        if b"\n" in data or b"\r" in data:
            raise ValueError("a frame's document is one line")
        self.key = key
        self.data = data
        self.id = frame_id

    @property
    def event(self) -> bytes:
        """The frame as a server-sent event."""
        id_line = b"id: %b\n" % self.id.encode() if self.id else b""
        return b"event: %b\n%bdata: %b\n\n" % (self.key.kind.encode(), id_line, self.data)

    @cached_property
    def chunk(self) -> bytes:
        """The server-sent event as a chunk of an HTTP body."""
        return chunk(self.event)

    @cached_property
    def socket_frame(self) -> bytes:
        """The frame as a WebSocket frame: a whole text message with its header."""
        message = self._document()
        return _socket_header(len(message)) + message

    @property
    def text(self) -> str:
        """The frame as a WebSocket message."""
        return self._document().decode()

    @cached_property
    def item(self) -> bytes:
        """The frame as an item of a polling response."""
        return self._document()

    def _document(self) -> bytes:
        kind, frame_id = msgspec.json.encode(self.key.kind), msgspec.json.encode(self.id)
        return b'{"event":%b,"id":%b,"data":%b}' % (kind, frame_id, self.data)

    @cached_property
    def digest(self) -> bytes:
        """The SHA-256 of `item`."""
        return hashlib.sha256(self.item).digest()

    def merged_with(self, older: "Frame") -> "Frame":
        """Return the frame for a listener that received neither this one nor `older`, which has the same key."""
        return self

    def copies(self, older: "Frame") -> bool:
        """Return whether `merged_with` makes a new frame, about as large as both."""
        return False


class DeltaFrame(Frame):
    """A frame with only the changes since the previous one. Its document has the fields of `always`, and at the key
    `under` the changed values by name."""

    def __init__(self, key: Key, always: Mapping[str, Any], under: str, changed: Mapping[str, Any]) -> None:
        super().__init__(key, msgspec.json.encode({**always, under: changed}))
        self._always, self._under, self._changed = always, under, changed

    def merged_with(self, older: Frame) -> Frame:
        if not isinstance(older, DeltaFrame):
            return self
        # A complete list stays complete when a change is merged into it.
        always = {**self._always, **{name: value for name, value in older._always.items() if name == "complete"}}
        return DeltaFrame(self.key, always, self._under, {**older._changed, **self._changed})

    def copies(self, older: Frame) -> bool:
        return isinstance(older, DeltaFrame)


def frame(kind: str, document: Any, *, about: str = "", frame_id: str = "") -> Frame:
    return Frame(Key(kind, about), msgspec.json.encode(document), frame_id)


def chunk(body: bytes) -> bytes:
    """Return `body` as a chunk of an HTTP body."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def _socket_header(size: int) -> bytes:
    """Return the header of a WebSocket frame of a server: a whole text message of this many bytes (RFC 6455, 5.2)."""
    if size < 126:
        return struct.pack("!BB", 0x81, size)
    return struct.pack("!BBH", 0x81, 126, size) if size < 2**16 else struct.pack("!BBQ", 0x81, 127, size)


LAST_CHUNK = b"0\r\n\r\n"
HEARTBEAT = b": \n\n"
HEARTBEAT_CHUNK = chunk(HEARTBEAT)


def closing_frame(seconds: float) -> Frame:
    """Return the last frame of a connection: the client reconnects after `seconds`, to any process."""
    return frame("bye", {"retry_ms": int(seconds * 1_000)})


def closing_event(seconds: float) -> bytes:
    """Return the closing frame as a server-sent event, with the `retry` that a browser's EventSource obeys."""
    return b"retry: %d\n%b" % (int(seconds * 1_000), closing_frame(seconds).event)
