"""URLs and keys in settings: checked before anything connects, refused in one sentence without the secret."""

import pytest

from ticketing.settings_parser import (
    InvalidSetting,
    parse_bearer_token,
    parse_database_url,
    parse_redis_url,
    parse_site_url,
    parse_token_keys,
)


@pytest.mark.parametrize(
    "value",
    [
        "postgres://a:b@127.0.0.1:5432/c",
        "postgresql://a@db.example/c?sslmode=require",
        "postgres:///c?host=/run/postgresql",
        "postgres://a:b@[::1]:5432/c",
        "postgres://a:b@%2Frun%2Fpostgresql/c",
    ],
)
def test_a_valid_database_url_is_returned_unchanged(value: str) -> None:
    assert parse_database_url("DATABASE_URL", value) == value


@pytest.mark.parametrize("value", ["redis://127.0.0.1:6379/0", "rediss://:b@cache.example:6380/1", "redis://[::1]"])
def test_a_valid_redis_url_is_returned_unchanged(value: str) -> None:
    assert parse_redis_url("REDIS_URL", value) == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("hidden", "not a URL"),
        ("hidden:5432/c", "not a URL"),
        ("mysql://a:hidden@h/c", "mysql://"),
        ("postgres://a:hidden@h:many/c", "is invalid"),
        ("postgres://a:hidden@[h/c", "is invalid"),
        ("postgres://a:hidden@h:5432", "no database"),
        ("postgres://a:hidden@h:5432/", "no database"),
    ],
)
def test_an_invalid_database_url_is_refused_with_the_name_of_its_variable(value: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=r"^DATABASE_URL must look like postgres://user:password@host") as refused:
        parse_database_url("DATABASE_URL", value)
    assert reason in str(refused.value)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("value", ["hidden", "http://hidden/0", "redis://", "redis:///0", "redis://h:hidden/0"])
def test_an_invalid_redis_url_is_refused_with_the_name_of_its_variable(value: str) -> None:
    with pytest.raises(InvalidSetting, match=r"^REDIS_URL must look like redis://:password@host") as refused:
        parse_redis_url("REDIS_URL", value)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("value", ["https://tickets.example", "http://localhost:8000", "HTTPS://tickets.example/"])
def test_a_valid_site_url_is_returned_unchanged(value: str) -> None:
    assert parse_site_url("SITE_URL", value) == value


@pytest.mark.parametrize(
    "value", ["", "tickets.example", "tickets.example:443", "ftp://hidden", "https:/hidden", "https://", "https://:443"]
)
def test_a_site_url_without_scheme_or_host_is_refused(value: str) -> None:
    """Without https:// the rules for a deployment would not apply."""
    with pytest.raises(InvalidSetting, match=r"^SITE_URL must look like https://tickets.example.org") as refused:
        parse_site_url("SITE_URL", value)
    assert "hidden" not in str(refused.value)


SECRET = "hidden" * 6


def test_valid_token_keys_are_returned_in_their_order() -> None:
    assert parse_token_keys("TOKEN_KEYS", []) == []
    pairs = [f"new:{SECRET}", f" old-1:{SECRET}:with:colons ", ""]
    assert parse_token_keys("TOKEN_KEYS", pairs) == [f"new:{SECRET}", f"old-1:{SECRET}:with:colons"]


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        (["hidden"], "key 1 is not kid:secret"),
        ([SECRET], "key 1 is not kid:secret"),
        ([f":{SECRET}"], "key 1 has a kid"),
        ([f"hidden hidden:{SECRET}"], "key 1 has a kid"),
        ([f"{SECRET}:new"], "key 1 has a kid"),
        (["new:"], "key 1 has a secret of less than 32 bytes"),
        (["new:hidden"], "key 1 has a secret of less than 32 bytes"),
        ([f"new:{SECRET}", "old:hidden"], "key 2 has a secret"),
        ([f"new:{SECRET}", f"new:{SECRET}"], "key 2 has the kid of an earlier key"),
    ],
)
def test_invalid_token_keys_are_refused_without_showing_a_part_of_them(pairs: list[str], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=r"^TOKEN_KEYS must look like kid:secret,kid:secret; key \d") as refused:
        parse_token_keys("TOKEN_KEYS", pairs)
    assert reason in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_a_bearer_token_may_be_absent_but_not_short_or_unprintable() -> None:
    assert parse_bearer_token("METRICS_TOKEN", "") == ""
    assert parse_bearer_token("METRICS_TOKEN", SECRET) == SECRET
    for value in ("hidden", f"hidden {SECRET}", f"hidden\n{SECRET}", f"hiddené{SECRET}"):
        with pytest.raises(InvalidSetting, match=r"^METRICS_TOKEN must be at least 16") as refused:
            parse_bearer_token("METRICS_TOKEN", value)
        assert "hidden" not in str(refused.value)
