"""Server URLs in settings: checked before anything connects, refused in one sentence without the password."""

import pytest

from ticketing.settings_parser import InvalidSetting, parse_database_url, parse_redis_url


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
