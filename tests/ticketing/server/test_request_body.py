"""Bodies in the memory of `web`: few larger ones at once."""

from typing import Any

import pytest

from apps.kernel.http.problems import Busy
from ticketing.server import request_body
from ticketing.server.request_body import SMALL_BYTES_MAX, LargerBodies, RequestBody


def body_of(size: int, larger: LargerBodies) -> RequestBody:
    """A request whose body arrives in pieces of 1,000 bytes."""
    left = size

    async def receive() -> dict[str, Any]:
        nonlocal left
        sent = min(left, 1_000)
        left -= sent
        return {"type": "http.request", "body": b"x" * sent, "more_body": left > 0}

    return RequestBody({"headers": [(b"content-length", str(size).encode())]}, receive, larger)


async def test_few_larger_bodies_are_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "LARGER_BODIES_MAX", 2)
    larger = LargerBodies()
    kept = [body_of(SMALL_BYTES_MAX + 1, larger) for _ in range(2)]
    for body in kept:
        assert len(await body.gather() or b"") == SMALL_BYTES_MAX + 1
    refused, small = body_of(SMALL_BYTES_MAX + 1, larger), body_of(SMALL_BYTES_MAX, larger)
    with pytest.raises(Busy):
        await refused.gather()
    assert len(await small.gather() or b"") == SMALL_BYTES_MAX
    for body in (refused, small, kept[0]):
        body.close()
    assert larger.count == 1
    assert await body_of(SMALL_BYTES_MAX + 1, larger).gather()


@pytest.mark.parametrize(
    "content_type",
    [b"multipart/form-data; boundary=x", b" Multipart/Form-Data;boundary=x", b"multipart/form-data=x; boundary=x",
     b"multipart/form-data*0=x; boundary=x"],
)  # fmt: skip
def test_every_spelling_of_a_form_in_parts_is_known(content_type: bytes) -> None:
    body = RequestBody({"headers": [(b"content-type", content_type)]}, None, LargerBodies())  # type: ignore[arg-type]
    assert body.is_multipart
