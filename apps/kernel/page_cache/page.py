"""One response of the site that is kept for all visitors, in every content coding."""

import hashlib
from collections.abc import Iterable, Mapping

from apps.kernel.fastpath.etags import has_etag
from apps.kernel.fastpath.request import Headers as RequestHeaders
from apps.kernel.page_cache.encodings import IDENTITY, accepted_codings
from apps.kernel.page_cache.lifetime import Lifetime

Headers = Iterable[tuple[bytes, bytes]]

_OVERHEAD_BYTES = 2_048
"""Objects and dictionary entries of a page, roughly."""
# These lines are written for each response: they depend on its coding, its age, its request or its connection.
_OWN_HEADERS = frozenset((b"cache-control", b"content-length", b"etag", b"vary", b"x-request-id"))


class Page:
    """A response with its lifetime. `begun`: when its render began, on the monotonic clock; `number`: the cache's count
    of versions then."""

    __slots__ = (
        "_aged", "_lines", "begun", "byte_count", "copies", "etag", "fresh_until", "is_immutable", "last_modified",
        "lifetime", "number", "usable_until",
    )  # fmt: skip

    def __init__(
        self,
        copies: Mapping[str, bytes],
        headers: Headers,
        lifetime: Lifetime,
        *,
        begun: float,
        number: int,
        refresh_seconds: float,
        stale_seconds: float,
    ) -> None:
        """Copies: the body by its content coding. After `refresh_seconds` the page is to be rendered again, and until
        `stale_seconds` later it may still be sent; both end with its lifetime."""
        self.copies = copies
        self.lifetime = lifetime
        self.is_immutable = lifetime.is_immutable
        self.begun = begun
        self.number = number
        ends = begun + lifetime.seconds
        self.fresh_until = ends if self.is_immutable else min(ends, begun + refresh_seconds)
        self.usable_until = ends if self.is_immutable else min(ends, begun + refresh_seconds + stale_seconds)
        known = dict(headers)
        self.etag = known.get(b"etag", b"").removeprefix(b"W/") or _etag_of(copies[IDENTITY])
        self.last_modified = known.get(b"last-modified")
        vary = known.get(b"vary", b"")
        if len(copies) > 1 and b"accept-encoding" not in vary.lower():
            vary = b"Accept-Encoding, " + vary if vary else b"Accept-Encoding"
        kept = [(name, value) for name, value in known.items() if name not in _OWN_HEADERS]
        if vary:
            kept.append((b"vary", vary))
        self._lines = b"".join(b"%b: %b\r\n" % header for header in kept)
        if self._lines.count(b"\n") != len(kept) or self._lines.count(b"\r") != len(kept):
            raise ValueError("a header contains a line break")
        self.byte_count = sum(map(len, copies.values())) + len(self._lines) + _OVERHEAD_BYTES
        self._aged: tuple[int, dict[str, bytes]] = (-1, {})

    def respond(self, headers: RequestHeaders, now: float) -> tuple[int, bytes, bytes]:
        """Return status, header lines (with the length and without the request's id) and body for this request."""
        accepted = headers.plain(b"accept-encoding")
        coding = IDENTITY
        if accepted is not None and len(self.copies) > 1:
            coding = next(coding for coding in accepted_codings(accepted) if coding in self.copies)
        lines = self._lines_at(0 if self.is_immutable else int(now - self.begun), coding)
        if self._is_known_to(headers):
            return 304, lines, b""
        body = self.copies[coding]
        return 200, b"%bcontent-length: %d\r\n" % (lines, len(body)), body

    def _is_known_to(self, headers: RequestHeaders) -> bool:
        known = headers.plain(b"if-none-match")
        if known is not None:
            return has_etag(known.decode("latin-1"), self.etag.decode("latin-1"))
        # A browser sends back the date that it got, so no other date needs to be compared.
        since = headers.plain(b"if-modified-since")
        return since is not None and since == self.last_modified

    def _lines_at(self, age_seconds: int, coding: str) -> bytes:
        """Return the header lines at this age. They change once a second, so they are kept."""
        aged_at, by_coding = self._aged
        if aged_at != age_seconds:
            by_coding = {}
            self._aged = (age_seconds, by_coding)
        lines = by_coding.get(coding)
        if lines is None:
            lines = by_coding[coding] = self._lines + self._own_lines(age_seconds, coding)
        return lines

    def _own_lines(self, age_seconds: int, coding: str) -> bytes:
        cache_control = self.lifetime.cache_control(age_seconds)
        if coding == IDENTITY:
            return b"etag: %b\r\ncache-control: %b\r\n" % (self.etag, cache_control)
        # Weak, because the compressed bytes differ from the identity's (RFC 9110, section 8.8.1), as in the site.
        encoding = coding.encode()
        return b"etag: W/%b\r\ncontent-encoding: %b\r\ncache-control: %b\r\n" % (self.etag, encoding, cache_control)


def _etag_of(body: bytes) -> bytes:
    return f'"{hashlib.sha256(body).hexdigest()[:24]}"'.encode()
