"""Limits of single headers. Parsers of several libraries take milliseconds for each KB of separators, on the event loop
or in one of the site's threads; no client needs values as long as all headers together may be."""

from collections.abc import Iterable

VALUE_BYTES_MAX = 4 * 1024
_LIMITS = {
    b"accept": 512,
    b"accept-encoding": 256,
    b"accept-language": 512,
    b"authorization": 8 * 1024,
    b"connection": 256,
    b"content-type": 256,
    b"cookie": 16 * 1024,
    b"if-match": 1024,
    b"if-none-match": 1024,
    b"sec-websocket-extensions": 256,
    b"sec-websocket-protocol": 256,
    b"upgrade": 256,
}
UNCHECKED_BYTES = min(_LIMITS.values())
"""Shorter values are within every limit."""


def is_too_long(name: bytes, value_bytes: int) -> bool:
    """Return whether a value of so many bytes exceeds the limit of this header, given in lower case."""
    return value_bytes > _LIMITS.get(name, VALUE_BYTES_MAX)


def has_too_long(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether one of the headers, names in lower case, is too long; those with the same name count together."""
    sizes: dict[bytes, int] = {}
    for name, value in headers:
        sizes[name] = sizes.get(name, 0) + len(value)
    return any(is_too_long(name, size) for name, size in sizes.items())
