"""Compression of responses with gzip, for clients that accept it."""

import re
from functools import lru_cache

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.utils.cache import patch_vary_headers

_VARIES_FROM_BYTES = 200
"""Django does not compress shorter responses."""
_ZERO_QUALITY = re.compile(r"q=0(\.0*)?")


@lru_cache(maxsize=256)
def takes_gzip(accepted: bytes) -> bool:
    """Return whether this `Accept-Encoding` allows gzip."""
    weights: dict[str, str] = {}
    for part in accepted.decode("latin-1").lower().split(","):
        coding, _, parameters = part.partition(";")
        weights[coding.strip()] = parameters.replace(" ", "")
    # "q=0", "q=0." and "q=0.000" mean not acceptable.
    return "gzip" in weights and _ZERO_QUALITY.fullmatch(weights["gzip"]) is None


def request_takes_gzip(request: HttpRequest) -> bool:
    return takes_gzip(request.META.get("HTTP_ACCEPT_ENCODING", "").encode())


class CompressedResponses(GZipMiddleware):
    """Compresses responses that their view has not compressed. Django's class does so also for `x-gzip` and `gzip;q=0`:
    a view with a compressed copy would then send the plain one, to be compressed for each such request."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if request_takes_gzip(request):
            return super().process_response(request, response)
        if response.streaming or len(response.content) >= _VARIES_FROM_BYTES:  # type: ignore[attr-defined]
            patch_vary_headers(response, ("Accept-Encoding",))
        return response
