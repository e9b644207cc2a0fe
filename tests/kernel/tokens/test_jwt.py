"""Signed tokens: believed when ours, of the right kind, for the right event and in time; else never."""

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


def test_a_token_says_what_it_was_issued_with() -> None:
    claims = own_jwt.verify(own_jwt.issue("queue", "entry-1", HOUR, "concert", num=7), KINDS, audience="concert")
    assert (claims.typ, claims.subject, claims.audience, claims.values["num"]) == ("queue", "entry-1", "concert", 7)


def test_a_token_past_its_time_of_another_kind_or_for_another_event_is_refused_by_name() -> None:
    assert refused(own_jwt.issue("queue", "x", timedelta(seconds=-1))) == "token-expired"
    assert refused(own_jwt.issue("admission", "x", HOUR)) == "token-invalid"
    assert refused(own_jwt.issue("queue", "x", HOUR, "opera"), audience="concert") == "token-wrong-event"


@pytest.mark.parametrize("token", ["", ".", "..", "a.b.c", "🎫", "x" * 5_000, "eyJhbGciOiJub25lIn0.e30."])
def test_what_is_no_token_is_refused(token: str) -> None:
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


def test_the_algorithm_is_ours_to_choose_not_the_token_s() -> None:
    kid, key = signing_key()
    claims = {"typ": "queue", "sub": "x", "aud": "", "exp": 4_000_000_000}
    for algorithm, secret in (("none", None), ("HS384", key * 2), ("HS512", key * 2)):
        assert refused(jwt.encode(claims, secret, algorithm=algorithm, headers={"kid": kid})) == "token-invalid"
    assert refused(jwt.encode(claims, key, algorithm="HS256")) == "token-invalid"  # No key id.
    assert refused(jwt.encode(claims, key, algorithm="HS256", headers={"kid": "unknown"})) == "token-invalid"


@pytest.mark.parametrize("claim", ["typ", "sub", "aud", "exp"])
@pytest.mark.parametrize("value", [[], ["queue"], {}, None, True, 4_000_000_000.5], ids=repr)
def test_a_token_with_a_claim_of_another_kind_is_refused(claim: str, value: Any) -> None:
    kid, key = signing_key()
    claims = {"typ": "queue", "sub": "x", "aud": "", "exp": 4_000_000_000, claim: value}
    assert refused(jwt.encode(claims, key, algorithm="HS256", headers={"kid": kid})) == "token-invalid"


@pytest.mark.parametrize("missing", ["typ", "sub", "aud", "exp"])
def test_a_token_without_a_claim_it_must_have_is_refused(missing: str) -> None:
    kid, key = signing_key()
    claims = {"typ": "queue", "sub": "x", "aud": "", "exp": 4_000_000_000}
    del claims[missing]
    assert refused(jwt.encode(claims, key, algorithm="HS256", headers={"kid": kid})) == "token-invalid"


def test_an_old_key_still_verifies_a_dropped_one_does_not_and_the_first_one_signs(settings: Any) -> None:
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
