"""Signed tokens are accepted only if we signed them, for the right kind and event, and until they expire."""

import base64
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import jwt
import pytest

from apps.kernel import clock
from apps.kernel.http import problems
from apps.kernel.tokens import jwt as own_jwt
from apps.kernel.tokens import keys

HOUR = timedelta(hours=1)
KINDS = frozenset({"queue"})


@pytest.fixture(autouse=True)
def _fresh_keys() -> Iterator[None]:
    """Keys are read once per process; these tests change them."""
    keys.forget()
    yield
    keys.forget()


def signing_key() -> tuple[str, bytes]:
    key = keys.signing_key(clock.process_now())
    return key.key_id, key.secret


def refused(token: str, **options: Any) -> str:
    with pytest.raises(problems.Problem) as problem:
        own_jwt.verify(token, KINDS, **options)
    return problem.value.type


def test_a_token_contains_the_claims_it_was_issued_with() -> None:
    claims = own_jwt.verify(own_jwt.issue("queue", "entry-1", HOUR, "concert", num=7), KINDS, audience="concert")
    assert (claims.typ, claims.subject, claims.audience, claims.values["num"]) == ("queue", "entry-1", "concert", 7)


def test_an_expired_token_and_one_of_another_kind_or_event_are_refused_with_distinct_types() -> None:
    assert refused(own_jwt.issue("queue", "x", timedelta(seconds=-1))) == "token-expired"
    assert refused(own_jwt.issue("admission", "x", HOUR)) == "token-invalid"
    assert refused(own_jwt.issue("queue", "x", HOUR, "opera"), audience="concert") == "token-wrong-event"


@pytest.mark.parametrize("token", ["", ".", "..", "a.b.c", "🎫", "x" * 5_000, "eyJhbGciOiJub25lIn0.e30."])
def test_malformed_tokens_are_refused(token: str) -> None:
    assert refused(token) == "token-invalid"
    assert own_jwt.peek_type(token) is None


@pytest.mark.parametrize("junk", ["=", "====", "=junk", "\n", " ", ".", ".x", "!"])
def test_a_token_with_something_appended_is_refused(junk: str) -> None:
    token = own_jwt.issue("queue", "entry-1", HOUR)
    assert refused(token + junk) == "token-invalid"
    assert own_jwt.peek_type(token + junk) is None


def test_a_changed_claim_breaks_the_signature() -> None:
    header, body, signature = own_jwt.issue("queue", "entry-1", HOUR).split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    forged = base64.urlsafe_b64encode(json.dumps(claims | {"sub": "entry-2"}).encode()).decode().rstrip("=")
    assert refused(f"{header}.{forged}.{signature}") == "token-invalid"


def test_the_token_cannot_choose_the_algorithm() -> None:
    kid, key = signing_key()
    claims = {"typ": "queue", "sub": "x", "aud": "", "exp": 4_000_000_000}
    for algorithm, secret in (("none", None), ("HS384", key * 2), ("HS512", key * 2)):
        assert refused(jwt.encode(claims, secret, algorithm=algorithm, headers={"kid": kid})) == "token-invalid"
    assert refused(jwt.encode(claims, key, algorithm="HS256")) == "token-invalid"  # No key id.
    assert refused(jwt.encode(claims, key, algorithm="HS256", headers={"kid": "unknown"})) == "token-invalid"


@pytest.mark.parametrize("claim", ["typ", "sub", "aud", "exp"])
@pytest.mark.parametrize("value", [[], ["queue"], {}, None, True, 4_000_000_000.5], ids=repr)
def test_a_claim_of_the_wrong_type_is_refused(claim: str, value: Any) -> None:
    kid, key = signing_key()
    claims = {"typ": "queue", "sub": "x", "aud": "", "exp": 4_000_000_000, claim: value}
    assert refused(jwt.encode(claims, key, algorithm="HS256", headers={"kid": kid})) == "token-invalid"


@pytest.mark.parametrize("missing", ["typ", "sub", "aud", "exp"])
def test_a_token_without_a_required_claim_is_refused(missing: str) -> None:
    kid, key = signing_key()
    claims = {"typ": "queue", "sub": "x", "aud": "", "exp": 4_000_000_000}
    del claims[missing]
    assert refused(jwt.encode(claims, key, algorithm="HS256", headers={"kid": kid})) == "token-invalid"


def test_the_first_key_signs_an_old_key_still_verifies_and_a_removed_key_does_not(settings: Any) -> None:
    settings.TOKEN_KEYS = ["old:" + "a" * 32]
    issued = own_jwt.issue("queue", "x", HOUR)
    settings.TOKEN_KEYS = ["new:" + "b" * 32, "old:" + "a" * 32]
    keys.forget()
    assert own_jwt.verify(issued, KINDS).subject == "x"
    assert jwt.get_unverified_header(own_jwt.issue("queue", "x", HOUR))["kid"] == "new"
    settings.TOKEN_KEYS = ["new:" + "b" * 32]
    keys.forget()
    assert refused(issued) == "token-invalid"


def test_a_token_that_would_outlive_its_key_is_not_issued() -> None:
    own_jwt.issue("queue", "x", keys.LIFETIME_MAX)
    with pytest.raises(ValueError, match="31 days"):
        own_jwt.issue("queue", "x", keys.LIFETIME_MAX + timedelta(seconds=1))
