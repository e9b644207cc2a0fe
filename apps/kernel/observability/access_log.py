"""The access log: one line of JSON for a sample of requests, and for every request that failed or was slow.

It logs the share ACCESS_LOG_SAMPLE of all requests, and every request with a status of 500 or more or a duration of
ACCESS_LOG_SLOW_SECONDS or more. It writes at most LINES_PER_SECOND_MAX lines, so that an outage does not flood the log;
the next line has the number of omitted ones (`left_out`). A line never contains a token, a cookie, a query or a path:
`route` is the route's name and `event` a slug. Addresses are cut to their /24 or /48 network
(ACCESS_LOG_ADDRESSES=full keeps them, none omits them).
"""

import ipaddress
import json
import logging
import random
from time import monotonic

from django.conf import settings

from apps.kernel import clock

logger = logging.getLogger("ticketing.access")
LINES_PER_SECOND_MAX = 200


class _Pace:
    """The number of lines written and omitted in the current second."""

    second = 0
    lines = 0
    left_out = 0


_pace = _Pace()
_sample: float = settings.ACCESS_LOG_SAMPLE
_slow_seconds: float = settings.ACCESS_LOG_SLOW_SECONDS if _sample else float("inf")
_faults = 500 if _sample else 1_000


def log(
    method: str, route: str, status: int, seconds: float, size: int, request_id: str, address: str, event: str = ""
) -> None:
    """Log one response if it is sampled, failed or slow. An unlogged response costs 0.2 µs. Never raises."""
    if random.random() >= _sample and status < _faults and seconds < _slow_seconds:  # noqa: S311 - Not a secret.
        return
    second = int(monotonic())
    if second != _pace.second:
        _pace.second, _pace.lines = second, 0
    if _pace.lines >= LINES_PER_SECOND_MAX:
        _pace.left_out += 1
        return
    _pace.lines += 1
    line = {
        "time": clock.iso(clock.process_now()),
        "method": method[:16],
        "route": route,
        "status": status,
        "ms": round(seconds * 1_000, 2),
        "bytes": size,
        "request_id": request_id[:64],
        "address": shortened(address),
    }
    if event:
        line["event"] = event[:100]
    if _pace.left_out:
        line["left_out"], _pace.left_out = _pace.left_out, 0
    logger.info("%s", json.dumps(line))


def shortened(address: str) -> str:
    """Return the address as precisely as ACCESS_LOG_ADDRESSES allows."""
    if settings.ACCESS_LOG_ADDRESSES == "none":
        return ""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    known = getattr(known, "ipv4_mapped", None) or known
    if settings.ACCESS_LOG_ADDRESSES == "full":
        return str(known)
    return str(ipaddress.ip_network((known, 24 if known.version == 4 else 48), strict=False))
