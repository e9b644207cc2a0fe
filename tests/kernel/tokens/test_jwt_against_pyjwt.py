"""Our verification of tokens compared with PyJWT's: a token that we accept, PyJWT accepts with the same claims; a token
that PyJWT refuses, we refuse. Every case in which we are stricter is listed."""

import base64
import json
import string
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.kernel import clock
from apps.kernel.http import problems
from apps.kernel.tokens import jwt as own_jwt
from apps.kernel.tokens import keys

HOUR = timedelta(hours=1)
FUTURE = 4_000_000_000
KINDS = frozenset({"queue", "admission"})
GOOD = {"typ": "queue", "sub": "entry-1", "aud": "concert", "exp": FUTURE}


@pytest.fixture(autouse=True, scope="module")
def _fresh_keys() -> Iterator[None]:
    keys.forget()
    yield
    keys.forget()


def key() -> keys.Key:
    return keys.signing_key(clock.process_now())


def b64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def signed(header: bytes | dict[str, Any], body: bytes | dict[str, Any], *, secret: bytes | None = None) -> str:
    """Return a token of exactly these bytes, correctly signed with our key unless another is given."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, body)]
    text = ".".join(map(b64, parts))
    return f"{text}.{own_jwt._signature(key().secret if secret is None else secret, text)}"


def decode_with_ours(token: str) -> dict[str, Any] | str:
    try:
        return own_jwt.verify(token, KINDS).values
    except problems.Problem as problem:
        return problem.type


def decode_with_pyjwt(token: str) -> dict[str, Any] | str:
    """Return PyJWT's result under the rules that applied when it was our verifier. `iat` is ignored: a clock that is a
    second ahead must not invalidate a token."""
    try:
        kid = jwt.get_unverified_header(token)["kid"]
        claims = jwt.decode(
            token,
            keys.find(kid).secret,  # type: ignore[union-attr]
            algorithms=["HS256"],
            options={"require": ["exp", "sub", "typ", "aud"], "verify_aud": False, "verify_iat": False},
        )
    except jwt.ExpiredSignatureError:
        return "token-expired"
    except Exception:
        return "token-invalid"
    return claims if claims["typ"] in KINDS else "token-invalid"


def header(**changes: Any) -> dict[str, Any]:
    return {"alg": "HS256", "kid": key().key_id, "typ": "JWT"} | changes


def test_both_accept_a_token_that_we_issue() -> None:
    for lifetime in (HOUR, timedelta(days=7)):
        token = own_jwt.issue("queue", "entry-1", lifetime, "concert", num=12_345_678_901, who="ä")
        assert decode_with_ours(token) == decode_with_pyjwt(token)
        assert isinstance(decode_with_ours(token), dict)
        assert jwt.get_unverified_header(token) == header()
    expired = own_jwt.issue("queue", "entry-1", timedelta(0))
    assert decode_with_ours(expired) == decode_with_pyjwt(expired) == "token-expired"


def test_both_accept_a_token_that_pyjwt_issues() -> None:
    token = jwt.encode(GOOD, key().secret, algorithm="HS256", headers={"kid": key().key_id})
    assert decode_with_ours(token) == decode_with_pyjwt(token) == GOOD


def _without(claim: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name != claim}


HOSTILE: dict[str, Any] = {
    "no algorithm": lambda: signed(header(alg="none"), GOOD),
    "no algorithm, no signature": lambda: signed(header(alg="none"), GOOD).rpartition(".")[0] + ".",
    "RS256": lambda: signed(header(alg="RS256"), GOOD),
    "HS512": lambda: signed(header(alg="HS512"), GOOD),
    "hs256 in small letters": lambda: signed(header(alg="hs256"), GOOD),
    "algorithms in a list": lambda: signed(header(alg=["HS256"]), GOOD),
    "no kid": lambda: signed({"alg": "HS256", "typ": "JWT"}, GOOD),
    "unknown kid": lambda: signed(header(kid="unknown"), GOOD),
    "kid is a number": lambda: signed(header(kid=1), GOOD),
    "kid is null": lambda: signed(header(kid=None), GOOD),
    "kid is a list": lambda: signed(header(kid=[]), GOOD),
    "kid of NUL": lambda: signed(header(kid="\x00"), GOOD),
    "another secret": lambda: signed(header(), GOOD, secret=b"x" * 32),
    "an empty secret": lambda: signed(header(), GOOD, secret=b""),
    "header is a list": lambda: signed(b"[]", GOOD),
    "header is no JSON": lambda: signed(b"{", GOOD),
    "header is no UTF-8": lambda: signed(b'{"alg":"\xff"}', GOOD),
    "body is a list": lambda: signed(header(), b"[]"),
    "body is no JSON": lambda: signed(header(), b"{"),
    "body is no UTF-8": lambda: signed(header(), b'{"sub":"\xff"}'),
    "body is nested": lambda: signed(header(), b"[" * 400 + b"]" * 400),
    "claims are nested": lambda: signed(header(), b'{"sub":' + b"[" * 300 + b"]" * 300 + b"}"),
    "NaN": lambda: signed(header(), b'{"typ":"queue","sub":"x","aud":"","exp":NaN}'),
    "Infinity": lambda: signed(header(), b'{"typ":"queue","sub":"x","aud":"","exp":Infinity}'),
    "exp is negative": lambda: signed(header(), GOOD | {"exp": -1}),
    "exp is zero": lambda: signed(header(), GOOD | {"exp": 0}),
    "exp is long ago": lambda: signed(header(), GOOD | {"exp": 1_000_000_000}),
    "exp is null": lambda: signed(header(), GOOD | {"exp": None}),
    "exp is a word": lambda: signed(header(), GOOD | {"exp": "soon"}),
    "exp is a list": lambda: signed(header(), GOOD | {"exp": [FUTURE]}),
    "exp is false": lambda: signed(header(), GOOD | {"exp": False}),
    "sub is a number": lambda: signed(header(), GOOD | {"sub": 1}),
    "sub is null": lambda: signed(header(), GOOD | {"sub": None}),
    "another kind": lambda: signed(header(), GOOD | {"typ": "access"}),
    "the kind is a list": lambda: signed(header(), GOOD | {"typ": "x"}),
    "nothing at all": lambda: signed(header(), {}),
    **{f"no {claim}": lambda claim=claim: signed(header(), _without(claim)) for claim in GOOD},
    **{f"and {junk!r}": lambda junk=junk: signed(header(), GOOD) + junk for junk in ("\n", ".", "A", "é")},
    "three parts and one": lambda: signed(header(), GOOD) + "." + b64(b"x"),
    "two parts": lambda: signed(header(), GOOD).rpartition(".")[0],
    "nothing": lambda: "",
    "dots": lambda: "..",
    "huge": lambda: signed(header(), GOOD | {"x": "x" * 100_000}),
    "not ASCII": lambda: "é.ü.ß",
    "detached": lambda: signed(header(b64=False, crit=["b64"]), GOOD),
    "critical": lambda: signed(header(crit=["x"]), GOOD),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_we_refuse_what_pyjwt_refuses(name: str) -> None:
    token = HOSTILE[name]()
    verdict = decode_with_ours(token)
    assert isinstance(verdict, str), verdict
    if name != "huge":  # We refuse a token of that size unread.
        assert not isinstance(decode_with_pyjwt(token), dict) or name in ("critical", "detached"), (
            "PyJWT refuses it too"
        )


STRICTER: dict[str, Any] = {
    "exp as a float": lambda: signed(header(), GOOD | {"exp": 4e9}),
    "exp as text": lambda: signed(header(), GOOD | {"exp": str(FUTURE)}),
    "half a surrogate pair": lambda: signed(header(), b'{"typ":"queue","sub":"\\ud800","aud":"","exp":4000000000}'),
    "padded as base64 is": lambda: signed(header(), GOOD) + "=",
    "exp is true": lambda: signed(header(), GOOD | {"exp": True}),
    "aud as a list": lambda: signed(header(), GOOD | {"aud": ["concert"]}),
    "not before": lambda: signed(header(), GOOD | {"nbf": 1}),
    "an unknown word in the header": lambda: signed(header(jku="https://evil.example"), GOOD),
    "another kind of header": lambda: signed(header(typ="at+jwt"), GOOD),
    "another spelling of the same signature": lambda: _respelled(signed(header(), GOOD)),
}


def _respelled(token: str) -> str:
    """The last of 43 characters carries two unused bits: another character decodes to the same signature."""
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    return token[:-1] + alphabet[alphabet.index(token[-1]) ^ 1]


@pytest.mark.parametrize("name", STRICTER)
def test_we_refuse_cases_that_pyjwt_accepts(name: str) -> None:
    assert isinstance(decode_with_ours(STRICTER[name]()), str)


def test_both_read_the_last_value_of_a_repeated_name() -> None:
    """Only the owner of the key could write such a token."""
    body = b'{"typ":"queue","sub":"a","sub":"b","aud":"","exp":4000000000}'
    token = signed(header(), body)
    assert decode_with_ours(token) == decode_with_pyjwt(token)
    assert decode_with_ours(token)["sub"] == "b"  # type: ignore[index]


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
claims = st.fixed_dictionaries(
    {},
    optional={
        "typ": st.sampled_from(["queue", "admission", "access"]) | values,
        "sub": st.text(max_size=40) | values,
        "aud": st.just("concert") | values,
        "exp": st.sampled_from([FUTURE, 1]) | values,
        "iat": values,
        "num": values,
    },
)
headers = st.fixed_dictionaries(
    {},
    optional={
        "alg": st.sampled_from(["HS256", "none", "HS384", "RS256"]) | values,
        "kid": st.builds(lambda: key().key_id) | values,
        "typ": st.just("JWT") | values,
    },
)


def _same(mine: dict[str, Any], yours: dict[str, Any]) -> bool:
    return json.dumps(mine, sort_keys=True) == json.dumps(yours, sort_keys=True)


@given(head=headers, body=claims)
def test_pyjwt_accepts_and_reads_the_same_claims_in_every_signed_token_that_we_accept(
    head: dict[str, Any], body: dict[str, Any]
) -> None:
    token = signed(head, body)
    mine = decode_with_ours(token)
    if isinstance(mine, dict):
        yours = decode_with_pyjwt(token)
        assert isinstance(yours, dict)
        assert _same(mine, yours)


@given(
    position=st.integers(min_value=0, max_value=400),
    change=st.characters(min_codepoint=0, max_codepoint=0x2FF) | st.just(""),
)
def test_a_token_with_any_changed_character_is_refused(position: int, change: str) -> None:
    token = own_jwt.issue("queue", "entry-1", HOUR, "concert", num=7)
    position %= len(token)
    changed = token[:position] + change + token[position + 1 :]
    if changed != token:
        assert decode_with_ours(changed) == "token-invalid"


@given(st.text(max_size=300) | st.text(alphabet=string.ascii_letters + string.digits + "-_.", max_size=1_500))
def test_arbitrary_text_is_refused_without_an_error(text: str) -> None:
    assert decode_with_ours(text) == "token-invalid"
    own_jwt.peek_type(text)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_arbitrary_bytes_between_dots_are_refused_without_an_error(head: bytes, body: bytes) -> None:
    token = f"{b64(head)}.{b64(body)}.{b64(b'x' * 32)}"
    assert decode_with_ours(token) == "token-invalid"
    own_jwt.peek_type(token)
