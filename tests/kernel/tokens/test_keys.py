"""Keys that change while their tokens are in use: published, signing, verifying only, expired; or dropped."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any

import jwt
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import OperationalError

from apps.kernel import clock
from apps.kernel.http import problems
from apps.kernel.models import TokenKey
from apps.kernel.tokens import jwt as own_jwt
from apps.kernel.tokens import keys
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
KINDS = frozenset({"queue"})


@pytest.fixture(autouse=True)
def _fresh_keys() -> Iterator[None]:
    keys.forget()
    yield
    keys.forget()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record one item for every read of the keys from the database."""
    seen: list[str] = []
    real = keys._read

    def counting(copy: Any) -> None:
        seen.append(threading.current_thread().name)
        real(copy)

    monkeypatch.setattr(keys, "_read", counting)
    return seen


def issue() -> str:
    return own_jwt.issue("queue", "x", HOUR)


def kid(token: str) -> str:
    return str(jwt.get_unverified_header(token)["kid"])


def verdict(token: str) -> str:
    try:
        return own_jwt.verify(token, KINDS).subject
    except problems.Problem as problem:
        return problem.type


def elapse(key: TokenKey, **moments: timedelta) -> None:
    """Set times of the key to these distances from now, and have this process read them again."""
    TokenKey.objects.filter(pk=key.pk).update(**{name: clock.now() + by for name, by in moments.items()})
    keys.forget()


def test_the_first_key_comes_from_the_settings_without_a_row() -> None:
    assert verdict(issue()) == "x"
    assert not TokenKey.objects.exists()


def test_a_new_key_is_published_a_minute_before_it_signs() -> None:
    before = issue()
    new = keys.rotate()
    keys.forget()
    assert kid(issue()) == kid(before)
    assert keys.find(new.key_id) is not None
    assert new.signs_from - new.created_at == timedelta(seconds=60)
    elapse(new, signs_from=timedelta(0))
    after = issue()
    assert kid(after) == new.key_id
    assert [verdict(token) for token in (before, after)] == ["x", "x"]


def test_an_old_key_verifies_until_the_last_token_it_may_have_signed_has_expired() -> None:
    old = issue()
    new = keys.rotate()
    row = TokenKey.objects.get(pk=kid(old))
    assert row.verifies_until == new.signs_from + keys.LIFETIME_MAX
    elapse(new, signs_from=-HOUR)
    elapse(row, verifies_until=timedelta(seconds=-1))
    assert verdict(old) == "token-expired"
    assert kid(issue()) == new.key_id


def test_repeated_rotations_leave_overlapping_keys_that_all_verify() -> None:
    issued = [issue()]
    for _ in range(3):
        elapse(keys.rotate(), signs_from=timedelta(0))
        issued.append(issue())
    assert len({kid(token) for token in issued}) == 4
    assert [verdict(token) for token in issued] == ["x"] * 4
    assert TokenKey.objects.filter(verifies_until=None).count() == 1


def test_a_dropped_key_verifies_nothing_and_a_new_one_signs_at_once() -> None:
    elapse(keys.rotate(), signs_from=timedelta(0))
    stolen = issue()
    new = keys.drop(kid(stolen))
    keys.forget()
    assert new is not None
    assert verdict(stolen) == "token-invalid"
    assert kid(issue()) == new.key_id
    assert keys.drop(kid(stolen)) is None, "dropping it again changes nothing"


def test_the_key_from_the_settings_can_be_dropped_too() -> None:
    stolen = issue()
    new = keys.drop(kid(stolen))
    keys.forget()
    assert verdict(stolen) == "token-invalid"
    assert new is not None
    assert kid(issue()) == new.key_id


def test_an_event_loop_that_has_read_the_keys_accepts_no_dropped_key_of_the_settings() -> None:
    stolen = issue()
    keys.drop(kid(stolen))

    async def first_verdict(*, reads: bool) -> str:
        keys.forget()
        if reads:
            await asyncio.to_thread(keys.read)
        return verdict(stolen)

    assert asyncio.run(first_verdict(reads=True)) == "token-invalid"
    assert asyncio.run(first_verdict(reads=False)) == "x", "control"


def test_dropping_a_key_that_no_longer_signs_keeps_the_signing_key() -> None:
    old = issue()
    elapse(keys.rotate(), signs_from=timedelta(0))
    current = issue()
    assert keys.drop(kid(old)) is None
    keys.forget()
    assert [verdict(old), verdict(current)] == ["token-invalid", "x"]
    assert kid(issue()) == kid(current)


def test_an_unknown_key_cannot_be_dropped() -> None:
    with pytest.raises(keys.NoSuchKey):
        keys.drop("nothing")
    assert not TokenKey.objects.exists()


def test_two_concurrent_rotations_leave_keys_that_all_verify() -> None:
    before = issue()
    made = values(storm(2, lambda _: keys.rotate()))
    for key in made:
        elapse(key, signs_from=timedelta(0))
    assert verdict(before) == verdict(issue()) == "x"


def test_the_table_contains_no_complete_secret(settings: Any) -> None:
    """Neither the database nor SECRET_KEY alone can sign."""
    new = keys.rotate()
    elapse(new, signs_from=timedelta(0))
    token = issue()
    half = bytes(TokenKey.objects.get(pk=new.pk).secret)
    forged = jwt.encode(
        {"typ": "queue", "sub": "y", "aud": "", "exp": 4_000_000_000}, half, headers={"kid": new.key_id}
    )
    assert verdict(forged) == "token-invalid"
    settings.SECRET_KEY = "another key of the deployment, long enough for any check of its length"
    keys.forget()
    assert verdict(token) == "token-invalid"


def test_keys_from_the_settings_remain_in_use_until_a_key_of_the_table_signs(settings: Any) -> None:
    settings.TOKEN_KEYS = ["new:" + "b" * 32, "old:" + "a" * 32]
    keys.forget()
    given = issue()
    assert kid(given) == "new"
    elapse(keys.rotate(), signs_from=timedelta(0))
    assert verdict(given) == "x"
    assert kid(issue()) not in ("new", "old")
    settings.TOKEN_KEYS = []
    keys.forget()
    assert verdict(given) == "token-invalid", "a key removed from the settings verifies nothing"


def test_a_process_with_its_keys_in_memory_sends_no_query(reads: list[str], django_assert_num_queries: Any) -> None:
    token = issue()
    with django_assert_num_queries(0):
        for _ in range(50):
            assert verdict(token) == "x"
    assert len(reads) == 1


def test_a_token_of_a_new_unknown_key_is_accepted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process dropped the signing key; the new key signs at once, before we have read the keys again."""
    monkeypatch.setattr(keys, "UNKNOWN_SECONDS", 0.0)
    issue()
    known = keys._copy
    keys.drop(kid(issue()))
    keys.forget()
    fresh = issue()
    keys._copy = known
    assert verdict(fresh) == "x"


def test_a_flood_of_unknown_key_ids_reads_the_database_once(reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "UNKNOWN_SECONDS", 3_600.0)
    secret = b"x" * 32
    for number in range(200):
        claims = {"typ": "queue", "sub": "x", "aud": "", "exp": 4_000_000_000}
        assert verdict(jwt.encode(claims, secret, headers={"kid": f"forged-{number}"})) == "token-invalid"
    assert len(reads) == 1


def test_an_old_copy_of_the_keys_is_refreshed_and_a_stale_one_before_it_is_used(
    reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stolen = issue()
    monkeypatch.setattr(keys, "REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(keys, "STALE_SECONDS", 0.0)
    keys.drop(kid(stolen))
    assert verdict(stolen) == "token-invalid"
    assert len(reads) == 2


def test_during_a_database_outage_known_keys_remain_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    elapse(keys.rotate(), signs_from=timedelta(0))
    token = issue()

    def no_database() -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(TokenKey.objects, "all", no_database)
    monkeypatch.setattr(keys, "REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(keys, "STALE_SECONDS", 0.0)
    for _ in range(3):
        assert verdict(token) == "x"
        assert kid(issue()) == kid(token)


def test_a_process_that_starts_during_a_database_outage_uses_the_keys_from_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_database() -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(TokenKey.objects, "all", no_database)
    assert verdict(issue()) == "x"


async def test_an_event_loop_never_waits_for_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The read of the keys hangs; tokens are verified and issued on the event loop nevertheless."""
    going, hanging = threading.Event(), threading.Event()

    def hang(copy: Any) -> None:
        hanging.set()
        assert going.wait(60)

    monkeypatch.setattr(keys, "_read", hang)
    token = issue()
    assert verdict(token) == "x"
    assert verdict(token.replace(token.split(".")[0], own_jwt._encode(b'{"alg":"HS256","kid":"?"}'))) == "token-invalid"
    assert hanging.wait(60)
    going.set()


def test_with_every_key_dropped_no_token_is_issued() -> None:
    issue_kid = kid(issue())
    TokenKey.objects.create(
        key_id=issue_kid, secret=b"", created_at=clock.now(), signs_from=clock.now(), dropped_at=clock.now()
    )
    keys.forget()
    with pytest.raises(ImproperlyConfigured, match="rotate_token_key"):
        issue()


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("rotate_token_key", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_publishes_drops_and_lists_keys() -> None:
    first = kid(issue())
    assert command("--list").split() == [first, "signs"]
    new = command().split()[0]
    lines = command("--list").splitlines()
    assert len(lines) == 2
    assert f"{new}  signs from" in lines[0]
    assert lines[1].split() == [first, "signs"]
    output = command("--drop", new)
    assert f"{new} is dropped" in output
    assert "signs at once" in output
    assert "dropped" in next(line for line in command("--list").splitlines() if new in line)
    with pytest.raises(CommandError, match="no token key"):
        command("--drop", "nothing")
    with pytest.raises(CommandError, match="cannot be combined"):
        command("--drop", new, "--list")
