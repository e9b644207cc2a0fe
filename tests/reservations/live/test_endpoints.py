"""Responses of the polls of live updates."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from apps.kernel.fastpath.response import Reply
from apps.kernel.push.frames import frame
from apps.reservations.live import endpoints

LARGE = "x" * endpoints.COPIED_BYTES_MAX


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_large_frames_are_sent_to_every_client_without_a_copy(method: str) -> None:
    frames = [
        frame("sections", 1),
        frame("seats", LARGE, about="a"),
        frame("seats", LARGE, about="b"),
        frame("queue", 2),
    ]
    parts = endpoints._parts(frames, 3_000)
    assert [part for part in parts if len(part) > len(LARGE)] == [frames[1].item, frames[2].item]
    assert all(any(part is one.item for part in parts) for one in frames[1:3])
    assert [each["data"] for each in json.loads(b"".join(parts))["frames"]] == [1, LARGE, LARGE, 2]
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    request: Any = SimpleNamespace(id="live1", method=method, is_secure=lambda: False)
    await endpoints._send(Reply(200, b"", []), request, send, parts)
    assert dict(sent[0]["headers"])[b"content-length"] == b"%d" % sum(map(len, parts))
    assert [message["body"] for message in sent[1:]] == (parts if method == "GET" else [b""])
    assert [message.get("more_body", False) for message in sent[1:]] == [True] * (len(sent) - 2) + [False]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_poll_is_one_document_in_one_part(count: int) -> None:
    (part,) = endpoints._parts([frame("queue", number) for number in range(count)], 3_000)
    assert json.loads(part) == {
        "frames": [{"event": "queue", "id": "", "data": number} for number in range(count)],
        "next_poll": 3_000,
    }
