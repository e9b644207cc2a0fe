"""Addresses of servers as people write them: read before anything connects, so that a slip is one sentence."""

from urllib.parse import SplitResult, urlsplit

DATABASE_FORM = "postgres://user:password@host:port/name"
REDIS_FORM = "redis://:password@host:port/0"


class AddressRefused(ValueError):
    """The variable holds no such address. Says which and what is expected, never the value: passwords are in it."""


def database(variable: str, value: str) -> str:
    """The value, which is the address of a PostgreSQL database. Raises AddressRefused."""
    path = _checked(variable, value, ("postgres", "postgresql"), DATABASE_FORM).path
    if not path.strip("/"):
        raise AddressRefused(f"{variable} must look like {DATABASE_FORM}; it names no database")
    return value


def redis(variable: str, value: str) -> str:
    """The value, which is the address of a Redis. Raises AddressRefused."""
    if not _checked(variable, value, ("redis", "rediss"), REDIS_FORM).hostname:
        raise AddressRefused(f"{variable} must look like {REDIS_FORM}; it names no host")
    return value


def _checked(variable: str, value: str, schemes: tuple[str, ...], form: str) -> SplitResult:
    expected = f"{variable} must look like {form}"
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 - reading it is what tests it
    except ValueError as error:
        raise AddressRefused(f"{expected}; its host or port cannot be read") from error
    if parts.scheme not in schemes or "://" not in value:
        said = f"{parts.scheme}://" if "://" in value else "no address at all"
        raise AddressRefused(f"{expected}; it is {said}")
    return parts
