"""Limits of multipart forms that Django lacks: it counts fields and files, but neither parts without a name nor the
lines before a part's content, of which each costs a few microseconds."""

from collections.abc import Iterator
from typing import Any

from django.core.exceptions import TooManyFieldsSent
from django.http import multipartparser

PARTS_MAX = 1_000
HEADER_LINES_MAX = 8
_django: Any = multipartparser  # Its types lack most of the module.


class LimitedParser(multipartparser.Parser):
    """The parts of a form. Raises TooManyFieldsSent and MultiPartParserError, which become a 400."""

    _stream: Any
    _separator: bytes

    def __iter__(self) -> Iterator[Any]:
        header_bytes = _django.MAX_TOTAL_HEADER_SIZE
        for number, stream in enumerate(_django.InterBoundaryIter(self._stream, self._separator)):
            if number >= PARTS_MAX:
                raise TooManyFieldsSent("The form has too many parts.")
            start = stream.read(header_bytes)
            stream.unget(start)
            if start.partition(b"\r\n\r\n")[0].count(b"\r\n") >= HEADER_LINES_MAX:
                raise multipartparser.MultiPartParserError("A part of the form has too many headers.")
            yield _django.parse_boundary_stream(stream, header_bytes)


def install() -> None:
    """Let Django parse forms with these limits."""
    _django.Parser = LimitedParser
