"""What is told at once to many: one small document, written once in each form in which it travels."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec


class Key(NamedTuple):
    """What a frame is about: a newer frame of the same key makes an older one needless."""

    kind: str
    about: str = ""


class Frame:
    """One document, `data` in JSON on one line, told as `kind`.

    `id` is what a client that has read it says when it comes back (Last-Event-ID); empty for one that is read anew in
    any case.
    """

    __slots__ = ("_chunk", "_event", "_text", "data", "id", "key")

    def __init__(self, key: Key, data: bytes, frame_id: str = "") -> None:
        if b"\n" in data or b"\r" in data:
            raise ValueError("a frame's document is one line")
        self.key = key
        self.data = data
        self.id = frame_id
        self._event: bytes | None = None
        self._chunk: bytes | None = None
        self._text: str | None = None

    @property
    def event(self) -> bytes:
        """As a server-sent event."""
        if self._event is None:
            id_line = b"id: %b\n" % self.id.encode() if self.id else b""
            self._event = b"event: %b\n%bdata: %b\n\n" % (self.key.kind.encode(), id_line, self.data)
        return self._event

    @property
    def chunk(self) -> bytes:
        """The same as a piece of a chunked body."""
        if self._chunk is None:
            self._chunk = chunk(self.event)
        return self._chunk

    @property
    def text(self) -> str:
        """As a message over a socket, and as one of a poll's answers."""
        if self._text is None:
            kind, name = msgspec.json.encode(self.key.kind).decode(), msgspec.json.encode(self.id).decode()
            self._text = f'{{"event":{kind},"id":{name},"data":{self.data.decode()}}}'
        return self._text

    def merged_with(self, older: "Frame") -> "Frame":
        """What to tell somebody who was told neither this nor the older one of the same key."""
        return self


class DeltaFrame(Frame):
    """A frame that says only what has changed since the one before: `told` by name, in the document under `under`,
    beside what is always said."""

    __slots__ = ("_always", "_changed", "_under")

    def __init__(self, key: Key, always: Mapping[str, Any], under: str, told: Mapping[str, Any]) -> None:
        super().__init__(key, msgspec.json.encode({**always, under: told}))
        self._always, self._under, self._changed = always, under, told

    def merged_with(self, older: Frame) -> Frame:
        if not isinstance(older, DeltaFrame):
            return self
        # What the older one told in full stays told in full.
        always = {**self._always, **{name: value for name, value in older._always.items() if name == "complete"}}
        return DeltaFrame(self.key, always, self._under, {**older._changed, **self._changed})


def frame(kind: str, document: Any, *, about: str = "", frame_id: str = "") -> Frame:
    return Frame(Key(kind, about), msgspec.json.encode(document), frame_id)


def chunk(body: bytes) -> bytes:
    """A piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(body), body)


LAST_CHUNK = b"0\r\n\r\n"
HEARTBEAT = b": \n\n"
HEARTBEAT_CHUNK = chunk(HEARTBEAT)


def closing_frame(seconds: float) -> Frame:
    """The last frame: come back after so long, here or anywhere else."""
    return frame("bye", {"retry_ms": int(seconds * 1_000)})


def closing_event(seconds: float) -> bytes:
    """The same as a server-sent event, after which a browser comes back by itself."""
    return b"retry: %d\n%b" % (int(seconds * 1_000), closing_frame(seconds).event)
