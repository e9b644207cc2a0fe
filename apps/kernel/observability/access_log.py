"""The access log: one line of JSON for some requests, and for every one that failed or was slow.

    access_log.log(method: str, route: str, status: int, seconds: float, size: int, request_id: str, address: str,
                   event: str = "") -> None

Called after the answer has left. It writes for ACCESS_LOG_SAMPLE of all requests, and for each with a status from 500
on or of ACCESS_LOG_SLOW_SECONDS and more, but never more than LINES_PER_SECOND_MAX: an outage must not be a flood of
lines besides. Which were left out the next line says (`left_out`). No token, no cookie, no query and no path is ever
in it: `route` is a name of ours, `event` a slug. Addresses are cut to their /24 or /48
(ACCESS_LOG_ADDRESSES=full keeps them, none leaves them out).
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
_FAULTS = 500


class _Pace:
    """How many lines this second has had."""

    second = 0
    lines = 0
    left_out = 0


_pace = _Pace()
_sample: float = settings.ACCESS_LOG_SAMPLE
_slow_seconds: float = settings.ACCESS_LOG_SLOW_SECONDS if _sample else float("inf")
_faults = _FAULTS if _sample else 1_000


def log(
    method: str,
    route: str,
    status: int,
    seconds: float,
    size: int,
    request_id: str,
    address: str,
    event: str = "",
) -> None:
    """The request has its line, where it is to have one. A fifth of a microsecond where it is not; never raises."""
    if random.random() < _sample or status >= _faults or seconds >= _slow_seconds:  # noqa: S311 - a sample, no secret
        _write(method, route, status, seconds, size, request_id, address, event)


def _write(
    method: str, route: str, status: int, seconds: float, size: int, request_id: str, address: str, event: str
) -> None:
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
    """The address as far as ACCESS_LOG_ADDRESSES lets the log know it."""
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
