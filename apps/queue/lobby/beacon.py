"""Randomness from outside the house, as drand publishes it: one value per round, at moments known long before.

`GET {source}/public/{round}` answers `{"round", "randomness": hex, "signature": hex}`. Whoever runs the house cannot
know a round before it is out, and everyone can ask for it afterwards and compare.
"""

import hashlib
import http.client
import json
import logging
import math
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from django.conf import settings

logger = logging.getLogger(__name__)

NONE = "none"
VALUE_BYTES = 32
ANSWER_BYTES_MAX = 16_384
FETCH_MS_MAX = 5_000
"""For the whole of it, however slowly the source speaks."""
SOURCE_CHARACTERS_MAX = 300


class BeaconUnavailable(Exception):
    """The source gave no usable value: it is away, late, or says something else. Another try may do."""


class SourceRefused(ValueError):
    """The beacon's settings cannot be: the message says why."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one source, and when it comes out."""

    source: str
    number: int
    at: datetime


def round_after(moment: datetime) -> Round | None:
    """The first round of the configured source that comes out later than the moment; None without a source. Raises
    SourceRefused."""
    source = settings.QUEUE_BEACON_URL.rstrip("/")
    if not source:
        return None
    check_source(source)
    period = settings.QUEUE_BEACON_PERIOD_SECONDS
    begins = datetime.fromtimestamp(settings.QUEUE_BEACON_GENESIS, UTC)
    if period < 1 or begins > moment:
        raise SourceRefused("QUEUE_BEACON_PERIOD_SECONDS or QUEUE_BEACON_GENESIS is not the source's")
    # Round 1 came out at the genesis.
    number = math.floor((moment - begins).total_seconds() / period) + 2
    return Round(source, number, begins + timedelta(seconds=(number - 1) * period))


def check_source(source: str) -> None:
    """Returns for an address that can be asked. Raises SourceRefused."""
    try:
        parts = urlsplit(source)
        port = parts.port
    except ValueError as error:
        raise SourceRefused(f"QUEUE_BEACON_URL {source[:80]!r} is no address: {error}") from error
    plain = len(source) <= SOURCE_CHARACTERS_MAX and source.isascii() and source.isprintable() and " " not in source
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not plain:
        raise SourceRefused(f"QUEUE_BEACON_URL {source[:80]!r} is no http(s) address")
    if parts.username or parts.password or parts.query or parts.fragment:
        # It is published, as part of what is committed to.
        raise SourceRefused("QUEUE_BEACON_URL has a user, a query or a fragment: it is shown to everyone")


def fetch(source: str, number: int, *, within_ms: int = FETCH_MS_MAX) -> bytes:
    """The round's value, as the source gives it. Raises BeaconUnavailable. Never call it inside a transaction."""
    parts = urlsplit(source)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    deadline = time.monotonic() + within_ms / 1_000
    wire = kind(parts.hostname or "", parts.port, timeout=within_ms / 1_000)
    # A time-out counts from one byte to the next: a source that drips would hold us for ever. This ends all of it.
    watch = threading.Timer(within_ms / 1_000, _abort_connection, [wire])
    watch.daemon = True
    watch.start()
    try:
        wire.request("GET", f"{parts.path}/public/{number}", headers={"Accept": "application/json"})
        answer = wire.getresponse()
        if answer.status != 200:
            raise BeaconUnavailable(f"the beacon answered {answer.status}")
        body = answer.read(ANSWER_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException, AttributeError) as error:
        # AttributeError: http.client, when it is cut off between two steps of its own.
        raise BeaconUnavailable(f"the beacon is away or was cut off: {type(error).__name__}") from error
    finally:
        watch.cancel()
        wire.close()
    if time.monotonic() >= deadline:
        # Cut off in the middle it looks like an end.
        raise BeaconUnavailable("the beacon took too long")
    if len(body) > ANSWER_BYTES_MAX:
        raise BeaconUnavailable(f"the beacon's answer is longer than {ANSWER_BYTES_MAX} bytes")
    return _parse_answer(body, number)


def _abort_connection(wire: http.client.HTTPConnection) -> None:
    sock = wire.sock
    if sock is not None:
        try:
            # Closing alone would leave a read of another thread where it is.
            sock.shutdown(2)
        except OSError as error:
            logger.debug("beacon: the connection had ended: %s", error)


def _parse_answer(body: bytes, number: int) -> bytes:
    try:
        said = json.loads(body)
        if not isinstance(said, dict) or type(said.get("round")) is not int or said["round"] != number:
            raise BeaconUnavailable("the beacon answered for another round")
        value = parse_value(str(said.get("randomness")))
        signature = said.get("signature")
        # drand's value is the digest of its signature: an answer that contradicts itself is none.
        if signature is not None and hashlib.sha256(bytes.fromhex(str(signature))).digest() != value:
            raise BeaconUnavailable("the beacon's value is not its signature's digest")
    except (ValueError, RecursionError) as error:
        raise BeaconUnavailable("the beacon's answer is not what a beacon says") from error
    return value


def parse_value(text: str) -> bytes:
    """The value as its hexadecimal digits say it. Raises ValueError."""
    if len(text) != 2 * VALUE_BYTES or not text.isascii() or not text.isalnum():
        raise ValueError(f"a beacon's value is {2 * VALUE_BYTES} hexadecimal digits")
    return bytes.fromhex(text)
