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
    b"cookie": 8 * 1024,
    b"if-match": 1024,
    b"if-none-match": 1024,
    b"sec-websocket-extensions": 256,
    b"sec-websocket-protocol": 256,
    b"upgrade": 256,
}
COOKIES_MAX = 200
_ONCE = frozenset((b"authorization", b"content-type", b"host", b"idempotency-key", b"origin"))
UNCHECKED_BYTES = min(_LIMITS.values())
"""Shorter values are within every limit."""


def is_too_long(name: bytes, value: bytes) -> bool:
    """Return whether the value exceeds the limits of this header, given in lower case."""
    if len(value) > _LIMITS.get(name, VALUE_BYTES_MAX):
        return True
    return name == b"cookie" and value.count(b";") >= COOKIES_MAX


def has_too_long(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether one of the headers, names in lower case, is too long; those with the same name count together."""
    values: dict[bytes, bytes] = {}
    for name, value in headers:
        values[name] = values[name] + b";" + value if name in values else value
    return any(is_too_long(name, value) for name, value in values.items())


def has_repeated(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether a header that must occur once is repeated: the parsers behind this server would read the first,
    the last, or both."""
    names = [name for name, _ in headers if name in _ONCE]
    return len(names) != len(set(names))
