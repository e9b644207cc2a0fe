"""The id of a request in logs and in its response."""

import itertools
import secrets

from apps.kernel.fastpath.request import Request
from apps.kernel.observability import log_context

_prefix = secrets.token_hex(6)
_numbers = itertools.count(1)


def request_id_of(request: Request) -> str:
    """Return the id that a proxy has given the request, or a new one."""
    given = request.headers.plain(b"x-request-id")
    if given is not None and log_context.REQUEST_ID.fullmatch(name := given.decode("latin-1")):
        return name
    return f"{_prefix}{next(_numbers):x}"
