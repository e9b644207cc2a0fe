"""Compressed copies of a page, and which of them a client accepts."""

import gzip
import re
import sys
from collections.abc import Mapping
from functools import lru_cache

import brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

IDENTITY = ""
_PREFERRED = ("br", "zstd", "gzip")
"""The first that a client accepts is sent. Text in brotli is a little smaller than in zstd."""
_BYTES_MIN = 200
"""Shorter bodies stay as they are, as in the site."""
_COMPRESSIBLE = re.compile(
    rb"(?:text/.*|application/(?:json|xml|javascript|manifest\+json|.*\+xml)|image/svg\+xml)(?:;.*)?", re.IGNORECASE
)
_ZERO_QUALITY = re.compile(r"q=0(\.0*)?")
# Each level takes about as long as gzip's usual one, and a large seating plan less than half a second.
_GZIP_LEVEL, _BROTLI_QUALITY, _ZSTD_LEVEL = 6, 5, 9


def compress(body: bytes, content_type: bytes) -> Mapping[str, bytes]:
    """Return the body by its content coding, IDENTITY included. Copies that are not smaller are left out. Takes up to a
    second for the largest pages: for a thread."""
    copies = {IDENTITY: body}
    if len(body) < _BYTES_MIN or not _COMPRESSIBLE.fullmatch(content_type):
        return copies
    compressed = {
        "br": brotli.compress(body, quality=_BROTLI_QUALITY),
        "zstd": zstd.compress(body, _ZSTD_LEVEL),
        "gzip": gzip.compress(body, _GZIP_LEVEL, mtime=0),
    }
    return copies | {coding: copy for coding, copy in compressed.items() if len(copy) < len(body)}


@lru_cache(maxsize=512)
def accepted_codings(header: bytes) -> tuple[str, ...]:
    """Return the content codings that this `Accept-Encoding` allows, the preferred one first; IDENTITY comes last."""
    weights: dict[str, str] = {}
    for part in header.decode("latin-1").lower().split(","):
        coding, _, parameters = part.partition(";")
        weights[coding.strip()] = parameters.replace(" ", "")
    # "q=0", "q=0." and "q=0.000" mean not acceptable.
    allowed = {coding for coding, weight in weights.items() if _ZERO_QUALITY.fullmatch(weight) is None}
    return (*(coding for coding in _PREFERRED if coding in allowed), IDENTITY)
