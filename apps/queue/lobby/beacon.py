"""A public randomness beacon such as drand, which publishes one value per round at times known in advance.

`GET {source}/public/{round}` returns `{"round", "randomness": hex, "signature": hex}`. The operator cannot know a
round's value before its publication, and afterwards anyone can fetch and compare it.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings

from apps.kernel import safe_http

NONE = "none"
VALUE_BYTES = 32
ANSWER_BYTES_MAX = 16_384
FETCH_MS_MAX = 5_000
"""The limit of the whole request, even if the source sends slowly."""
SOURCE_CHARACTERS_MAX = 300


class BeaconUnavailable(Exception):
    """The source returned no usable value: it is unavailable, slow, or sent something else. A retry may succeed."""


class SourceRefused(ValueError):
    """The beacon's settings are not valid; the message says why."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a source, and the time of its publication."""

    source: str
    number: int
    at: datetime


def round_after(moment: datetime) -> Round | None:
    """Return the configured source's first round published after `moment`; None without a source. Raises
    SourceRefused."""
    source = settings.QUEUE_BEACON_URL.rstrip("/")
    if not source:
        return None
    check_source(source)
    period = settings.QUEUE_BEACON_PERIOD_SECONDS
    begins = datetime.fromtimestamp(settings.QUEUE_BEACON_GENESIS, UTC)
    if period < 1 or begins > moment:
        raise SourceRefused("QUEUE_BEACON_PERIOD_SECONDS or QUEUE_BEACON_GENESIS is not valid")
    # Round 1 was published at the genesis.
    number = math.floor((moment - begins).total_seconds() / period) + 2
    return Round(source, number, begins + timedelta(seconds=(number - 1) * period))


def check_source(source: str) -> None:
    """Raise SourceRefused unless the address can be requested and published."""
    try:
        parts = safe_http.check_url(source, safe_http.OPERATOR_URL)
    except safe_http.AddressRefused as error:
        raise SourceRefused(f"QUEUE_BEACON_URL {source[:80]!r} cannot be used: {error}") from error
    if len(source) > SOURCE_CHARACTERS_MAX:
        raise SourceRefused(f"QUEUE_BEACON_URL has more than {SOURCE_CHARACTERS_MAX} characters")
    if parts.query or parts.fragment:
        # It is published, as part of the commitment.
        raise SourceRefused("QUEUE_BEACON_URL must not have a query or a fragment, because it is published")


def fetch(source: str, number: int, *, within_ms: int = FETCH_MS_MAX) -> bytes:
    """Return the round's value from the source. Raises BeaconUnavailable. Never call it inside a transaction."""
    try:
        answer = safe_http.request(
            "GET",
            f"{source}/public/{number}",
            {"Accept": "application/json"},
            seconds_max=within_ms / 1_000,
            answer_bytes_max=ANSWER_BYTES_MAX + 1,
            allowed=safe_http.OPERATOR_URL,
        )
    except (safe_http.RequestFailed, safe_http.AddressRefused) as error:
        raise BeaconUnavailable(f"the beacon is unavailable or did not respond in time: {error}") from error
    if answer.status != 200:
        raise BeaconUnavailable(f"the beacon answered {answer.status}")
    if answer.is_late:
        raise BeaconUnavailable("the beacon took too long")
    if len(answer.body) > ANSWER_BYTES_MAX:
        raise BeaconUnavailable(f"the beacon's answer is longer than {ANSWER_BYTES_MAX} bytes")
    return _parse_answer(answer.body, number)


def _parse_answer(body: bytes, number: int) -> bytes:
    try:
        answer = json.loads(body)
        if not isinstance(answer, dict) or type(answer.get("round")) is not int or answer["round"] != number:
            raise BeaconUnavailable("the beacon answered for another round")
        value = parse_value(str(answer.get("randomness")))
        signature = answer.get("signature")
        # drand's value is the digest of its signature; an inconsistent answer is refused.
        if signature is not None and hashlib.sha256(bytes.fromhex(str(signature))).digest() != value:
            raise BeaconUnavailable("the beacon's value is not its signature's digest")
    except (ValueError, RecursionError) as error:
        raise BeaconUnavailable("the beacon's answer is malformed") from error
    return value


def parse_value(text: str) -> bytes:
    """Parse a value of hexadecimal digits. Raises ValueError."""
    if len(text) != 2 * VALUE_BYTES or not text.isascii() or not text.isalnum():
        raise ValueError(f"a beacon's value is {2 * VALUE_BYTES} hexadecimal digits")
    return bytes.fromhex(text)
