"""Clients that listen as a browser does: events over an HTTP connection, and messages over a WebSocket."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.support.web_processes import WAIT_SECONDS_MAX


class ReceivedEvent(NamedTuple):
    kind: str
    id: str
    data: Any


class Events:
    """One connection to the stream, read by its own thread."""

    def __init__(self, port: int, slug: str, query: str = "", *, reads: bool = True, **headers: str) -> None:
        self.received: list[ReceivedEvent] = []
        self.status = 0
        self.head = b""
        self.beats = 0
        self.has_ended = False
        self._changed = threading.Condition()
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS_MAX)
        lines = [f"GET /api/events/{slug}/sections/updates{query} HTTP/1.1", "Host: localhost"]
        lines += [
            "Accept: text/event-stream",
            *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
        ]
        if not reads:
            # A small buffer: data for a client that does not read soon piles up on the server.
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self._connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        self._thread = threading.Thread(target=self._read, daemon=True)
        if reads:
            self.read()

    def read(self) -> None:
        self._thread.start()

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        if self._thread.is_alive():
            self._thread.join(WAIT_SECONDS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def until(self, true: Callable[["Events"], Any], what: str) -> Any:
        """Wait until the condition is true, and return its value."""
        with self._changed:
            assert self._changed.wait_for(lambda: true(self) or self.has_ended, WAIT_SECONDS_MAX), f"never: {what}"
            found = true(self)
            assert found, f"ended before: {what}; received {self.received[-5:]}, {self.head!r}"
            return found

    def last(self, kind: str) -> Any:
        """Return the newest document of this kind, or None."""
        return next((each.data for each in reversed(self.received) if each.kind == kind), None)

    def counts(self) -> dict[str, int]:
        return counts_in(self.last("sections"))

    def until_counts(self, wanted: dict[str, int]) -> None:
        self.until(lambda one: one.counts() == wanted, f"counts {wanted}")

    def until_ended(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.has_ended, WAIT_SECONDS_MAX), "never: it ends"

    def _read(self) -> None:
        try:
            self._read_response(self._connection.makefile("rb"))
        except (OSError, ValueError, IndexError):
            pass
        finally:
            with self._changed:
                self.has_ended = True
                self._changed.notify_all()

    def _read_response(self, file: Any) -> None:
        with file:
            self.head = b"".join(iter(file.readline, b"\r\n"))
            self.status = int(self.head.split(b" ")[1])
            if b"chunked" in self.head:
                for event in _events(_chunks(file)):
                    self._note(event)

    def _note(self, lines: list[str]) -> None:
        fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
        with self._changed:
            if "data" in fields:
                self.received.append(
                    ReceivedEvent(fields.get("event", ""), fields.get("id", ""), json.loads(fields["data"]))
                )
            else:
                self.beats += 1
            self._changed.notify_all()


def counts_in(document: Any) -> dict[str, int]:
    return {one["section_id"]: one["available_seats"] for one in (document or {"sections": []})["sections"]}


def _chunks(file: Any) -> Iterator[bytes]:
    while (size := int(file.readline(), 16)) > 0:
        yield file.read(size)
        file.readline()


def _events(chunks: Iterator[bytes]) -> Iterator[list[str]]:
    text = ""
    for chunk in chunks:
        text += chunk.decode()
        while "\n\n" in text:
            event, text = text.split("\n\n", 1)
            yield event.split("\n")
