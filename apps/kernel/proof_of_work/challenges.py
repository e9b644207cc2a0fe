"""Altcha challenges (version 2 of its protocol): created and verified without I/O.

The server derives one key from a secret counter and publishes half of that key. The client derives keys for 1, 2, 3 …
until one matches. The challenge is signed, has an expiry, and contains a digest of what it is bound to, so that a
solution serves one purpose and one visitor. The derived key is signed too: verifying costs two HMACs, no derivation.

PBKDF2, because one call of a browser's WebCrypto then does most of its work natively: a page is about a third as fast
as a program. With a plain hash the program would be many times as fast.
"""

import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import altcha
from django.conf import settings
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from apps.kernel import clock, secret_key
from apps.kernel.http import problems

ALGORITHM = "PBKDF2/SHA-256"
ITERATIONS = 300
"""Of one derivation, which takes about 0.1 ms. Creating a challenge costs one."""
LIFETIME_SECONDS = 600
PAYLOAD_LENGTH_MAX = 2_000
"""A solution has about 700 characters."""
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Errors of altcha's parser for a payload that is not Base64 of JSON in its form."""


class Solution(NamedTuple):
    """A verified solution. Whether it was used before is for the caller to decide."""

    id: bytes
    """16 random bytes of its challenge: the value that may be used once."""
    seconds: float
    """From the challenge to the solution."""
    points: int
    """The score for which the challenge was created."""


class WorkRequired(problems.Problem):
    """The request needs a solution of the challenge in `challenge`, sent as `proof`. Nothing has been changed."""

    type, status, title = "work-required", 428, "Solve the challenge, then send this request again with the proof."
    page_texts = "One more step", "Refresh the page and try again."


def steps_for(points: int) -> int:
    """Return the derivations for this score: each point doubles the base difficulty, a negative one halves it."""
    steps: int = min(settings.PROOF_OF_WORK_STEPS_MAX, int(settings.PROOF_OF_WORK_STEPS * 2.0 ** min(points, 30)))
    return max(1, steps)


def create(binding: str, steps: int, points: int = 0) -> dict[str, Any]:
    """Return a challenge in Altcha's JSON form that takes `steps` derivations on average, at most twice as many. Its
    solution says `points`.

    `binding` begins with the purpose's name, a word, and names the visitor. Only `verify` with the same binding accepts
    the solution.
    """
    challenge = altcha.create_challenge(
        ALGORITHM,
        ITERATIONS,
        counter=1 + secrets.randbelow(2 * steps),
        expires_at=int(clock.process_seconds()) + LIFETIME_SECONDS,
        data={"for": digest_of(binding), "at": _milliseconds(), "points": points},
        hmac_secret=_key("challenge"),
        hmac_key_secret=_key("derived key"),
    )
    _counts[_purpose(binding), "created"] += 1
    return challenge.to_dict()


def verify(payload: str, binding: str) -> Solution | None:
    """Return the solution, or None if it is malformed, wrong, forged, expired or bound to something else."""
    solution = _verify(payload, binding)
    _counts[_purpose(binding), "refused" if solution is None else "accepted"] += 1
    return solution


def _verify(payload: str, binding: str) -> Solution | None:
    if len(payload) > PAYLOAD_LENGTH_MAX:
        return None
    try:
        given = altcha.Payload.from_base64(payload)
        result = altcha.verify_solution(given, _key("challenge"), hmac_key_secret=_key("derived key"))
    except _MALFORMED:
        return None
    if not result.verified:
        return None
    # From here on the parameters are ours: their signature is valid.
    parameters = given.challenge.parameters
    bound = parameters.data or {}
    if not hmac.compare_digest(str(bound.get("for")), digest_of(binding)):
        return None
    seconds = max(0.0, (_milliseconds() - int(bound["at"])) / 1_000)
    return Solution(bytes.fromhex(parameters.nonce), seconds, int(bound.get("points", 0)))


class Challenges(Collector):
    """Exports how many challenges this process has created, and how many solutions it has accepted and refused."""

    def collect(self) -> Iterable[Metric]:
        help_text = "Challenges and their solutions, by purpose."
        found = CounterMetricFamily("fairgate_work", help_text, labels=["purpose", "what"])
        for (purpose, what), count in list(_counts.items()):
            found.add_metric([purpose, what], count)
        return [found]


METRICS = (Challenges(),)
_counts: Counter[tuple[str, str]] = Counter()


def digest_of(binding: str) -> str:
    """Return the text that stands for a binding in a challenge. It reveals no visitor id, and none can be guessed."""
    return hashlib.blake2b(binding.encode("utf-8", "surrogatepass"), key=_key("binding"), digest_size=16).hexdigest()


@cache
def _key(use: str) -> bytes:
    return hmac.digest(secret_key.require_key().encode(), b"proof of work: " + use.encode(), "sha256")


def _purpose(binding: str) -> str:
    return binding.partition(" ")[0]


def _milliseconds() -> int:
    return int(clock.process_seconds() * 1_000)
