"""A public randomness beacon such as drand, which publishes one value per round at times known in advance.

`GET {source}/public/{round}` returns `{"round", "randomness": hex, "signature": hex}`, in a chained scheme also
`"previous_signature"`. The operator cannot know a round's value before its publication, and afterwards anyone can fetch
it. The value is the digest of the signature, and the signature must be valid for the key that the commitment names, so
the source itself need not be trusted.
"""

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings

from apps.kernel import safe_http
from apps.queue import beacon_chains
from apps.queue.beacon_chains import Chain

NONE = "none"
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
    """One round of a source, the time of its publication, and the key that signs it."""

    source: str
    number: int
    at: datetime
    chain: Chain | None
    """None: the commitment names no key, so no value of the round can be verified, and none is used."""


@dataclass(frozen=True, slots=True)
class Signed:
    """The verified signature of a round; its digest is the round's value."""

    signature: bytes
    previous: bytes = b""
    """The previous round's signature, in a chained scheme."""

    @property
    def value(self) -> bytes:
        return beacon_chains.value_of(self.signature)


def round_after(moment: datetime) -> Round | None:
    """Return the configured source's first round published after `moment`; None without a source. Raises
    SourceRefused."""
    source = settings.QUEUE_BEACON_URL.rstrip("/")
    if not source:
        return None
    check_source(source)
    chain = _configured_chain(source)
    period = settings.QUEUE_BEACON_PERIOD_SECONDS
    begins = datetime.fromtimestamp(settings.QUEUE_BEACON_GENESIS, UTC)
    if period < 1 or begins > moment:
        raise SourceRefused("QUEUE_BEACON_PERIOD_SECONDS or QUEUE_BEACON_GENESIS is not valid")
    # Round 1 was published at the genesis.
    number = math.floor((moment - begins).total_seconds() / period) + 2
    return Round(source, number, begins + timedelta(seconds=(number - 1) * period), chain)


def _configured_chain(source: str) -> Chain:
    """Return the configured scheme and key. Raises SourceRefused if they are not valid, or belong to another network
    than the source's address or the other settings."""
    key = settings.QUEUE_BEACON_PUBLIC_KEY or beacon_chains.QUICKNET.chain.public_key.hex()
    try:
        chain = Chain(settings.QUEUE_BEACON_SCHEME, bytes.fromhex(key))
    except ValueError as error:
        raise SourceRefused("QUEUE_BEACON_PUBLIC_KEY is not hexadecimal") from error
    if chain.scheme not in beacon_chains.SCHEMES:
        raise SourceRefused(f"QUEUE_BEACON_SCHEME must be one of {', '.join(beacon_chains.SCHEMES)}")
    if not beacon_chains.is_valid_key(chain):
        raise SourceRefused(f"QUEUE_BEACON_PUBLIC_KEY is not a key of the scheme {chain.scheme}")
    known = beacon_chains.find_known(chain)
    for network in beacon_chains.KNOWN_NETWORKS:
        if network.hash in source and network is not known:
            raise SourceRefused(f"QUEUE_BEACON_URL names {network.name}, but QUEUE_BEACON_PUBLIC_KEY is another key")
    times = (settings.QUEUE_BEACON_GENESIS, settings.QUEUE_BEACON_PERIOD_SECONDS)
    if known is not None and times != (known.genesis, known.period_seconds):
        raise SourceRefused(
            f"the key is that of {known.name}, so QUEUE_BEACON_GENESIS must be {known.genesis} and "
            f"QUEUE_BEACON_PERIOD_SECONDS {known.period_seconds}"
        )
    return chain


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


def fetch(chosen: Round, *, within_ms: int = FETCH_MS_MAX) -> Signed:
    """Return the round's verified signature from its source. Raises BeaconUnavailable. Never call it inside a
    transaction."""
    try:
        answer = safe_http.request(
            "GET",
            f"{chosen.source}/public/{chosen.number}",
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
    return _parse_answer(answer.body, chosen)


def _parse_answer(body: bytes, chosen: Round) -> Signed:
    try:
        answer = json.loads(body)
        if not isinstance(answer, dict) or type(answer.get("round")) is not int or answer["round"] != chosen.number:
            raise BeaconUnavailable("the beacon answered for another round")
        signed = parse_signature(str(answer.get("signature")), str(answer.get("previous_signature") or ""))
        randomness = answer.get("randomness")
        if randomness is not None and bytes.fromhex(str(randomness)) != signed.value:
            raise BeaconUnavailable("the beacon's value is not its signature's digest")
    except (ValueError, RecursionError) as error:
        raise BeaconUnavailable("the beacon's answer is malformed") from error
    if not is_signed_by(chosen, signed):
        raise BeaconUnavailable("the beacon's signature is not valid for this round and the committed key")
    return signed


def is_signed_by(chosen: Round, signed: Signed) -> bool:
    """Return whether this is the signature of the round by the key that the commitment names."""
    if chosen.chain is None:
        return False
    return beacon_chains.is_valid_signature(chosen.chain, chosen.number, signed.signature, signed.previous)


def parse_signature(signature: str, previous: str = "") -> Signed:
    """Parse hexadecimal signatures. Raises ValueError."""
    for text in (signature, previous):
        if not text.isascii() or len(text) > 2 * beacon_chains.G2_BYTES or (text and not text.isalnum()):
            raise ValueError("a signature is 96 or 192 hexadecimal digits")
    if len(signature) not in (2 * beacon_chains.G1_BYTES, 2 * beacon_chains.G2_BYTES):
        raise ValueError("a signature is 96 or 192 hexadecimal digits")
    return Signed(bytes.fromhex(signature), bytes.fromhex(previous))
