"""Which of the site's responses may be kept for all visitors, and for how long.

The site decides by its `Cache-Control`. Everything in doubt is not kept: a response that is not marked as public, sets
a cookie, or varies by anything but the encoding (and the language, if pages are kept by language).
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

Headers = Iterable[tuple[bytes, bytes]]

_FORBIDDING = frozenset(("private", "no-store", "no-cache"))
_SECONDS = re.compile(r"[0-9]{1,10}")


class Lifetime(NamedTuple):
    """How long a response may be kept, from the beginning of its render."""

    directives: tuple[tuple[str, str], ...]
    """The directives of its Cache-Control with their values."""
    seconds: int
    """Its age until which a shared cache may send it without asking again."""
    is_immutable: bool
    """Whether the bytes at this URL never change."""

    def cache_control(self, age_seconds: int) -> bytes:
        """Return the Cache-Control to send at this age. The times in it count from now on: caches that do not read
        `Age`, like nginx, would otherwise keep the page beyond the moment that changes it."""
        if self.is_immutable or not age_seconds:
            age_seconds = 0
        aged = "s-maxage" if any(name == "s-maxage" for name, _ in self.directives) else "max-age"
        words = []
        for name, value in self.directives:
            left = str(max(int(value) - age_seconds, 0)) if name == aged else value
            words.append(f"{name}={left}" if left else name)
        return ", ".join(words).encode("latin-1")


def read_lifetime(status: int, headers: Headers, *, varies_by_language: bool) -> Lifetime | None:
    """Return how long the response may be kept for all visitors; None: not at all. Header names are in lower case."""
    if status != 200:
        return None
    controls: list[str] = []
    for name, value in headers:
        if name in (b"set-cookie", b"content-encoding", b"content-range"):
            return None
        if name == b"vary" and not _is_known_variance(value, varies_by_language=varies_by_language):
            return None
        if name == b"cache-control":
            controls.append(value.decode("latin-1"))
    words = [word.strip().partition("=") for word in ",".join(controls).lower().split(",") if word.strip()]
    directives = tuple((name.strip(), value.strip()) for name, _, value in words)
    known = dict(directives)
    # A directive that occurs twice is in doubt, too.
    if len(known) != len(directives) or "public" not in known or not _FORBIDDING.isdisjoint(known):
        return None
    times = [known[name] for name in ("s-maxage", "max-age") if name in known]
    if not times or not all(map(_SECONDS.fullmatch, times)):
        return None
    return Lifetime(directives, int(times[0]), "immutable" in known)


def _is_known_variance(value: bytes, *, varies_by_language: bool) -> bool:
    names = {name.strip().lower() for name in value.split(b",")}
    return names <= ({b"accept-encoding", b"accept-language"} if varies_by_language else {b"accept-encoding"})
