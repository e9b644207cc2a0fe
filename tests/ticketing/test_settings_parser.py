"""Addresses of servers: read before anything connects, refused in one sentence that gives no password away."""

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
def test_a_database_address_is_taken_as_it_is(value: str) -> None:
    assert parse_database_url("DATABASE_URL", value) == value


@pytest.mark.parametrize("value", ["redis://127.0.0.1:6379/0", "rediss://:b@cache.example:6380/1", "redis://[::1]"])
def test_a_redis_address_is_taken_as_it_is(value: str) -> None:
    assert parse_redis_url("REDIS_URL", value) == value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("hidden", "not a URL"),
        ("hidden:5432/c", "not a URL"),
        ("mysql://a:hidden@h/c", "mysql://"),
        ("postgres://a:hidden@h:many/c", "cannot be read"),
        ("postgres://a:hidden@[h/c", "cannot be read"),
        ("postgres://a:hidden@h:5432", "no database"),
        ("postgres://a:hidden@h:5432/", "no database"),
    ],
)
def test_what_is_no_database_address_is_refused_by_the_name_of_its_variable(value: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=r"^DATABASE_URL must look like postgres://user:password@host") as refused:
        parse_database_url("DATABASE_URL", value)
    assert said in str(refused.value)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("value", ["hidden", "http://hidden/0", "redis://", "redis:///0", "redis://h:hidden/0"])
def test_what_is_no_redis_address_is_refused_by_the_name_of_its_variable(value: str) -> None:
    with pytest.raises(InvalidSetting, match=r"^REDIS_URL must look like redis://:password@host") as refused:
        parse_redis_url("REDIS_URL", value)
    assert "hidden" not in str(refused.value)
