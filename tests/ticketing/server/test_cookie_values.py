"""Quoted cookie values are read in linear time."""

import time
from http.cookies import SimpleCookie
from typing import Any

import pytest
from django.http import parse_cookie

from ticketing.server import cookie_values


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ('"a\\054b"', "a,b"), ('"a\\"b"', 'a"b'), ('"\\\\"', "\\"), ('"\\400"', "400"), ('"a\\', '"a\\'), ('""', ""),
        ("plain", "plain"), ('"', '"'), ('"a\\"', "a\\"),
    ],
)  # fmt: skip
def test_escapes_are_read(given: str, value: str) -> None:
    assert cookie_values.unquote(given) == value
    assert parse_cookie(f"name={given}")["name"] == value


def test_django_and_python_read_what_python_writes() -> None:
    cookie: Any = SimpleCookie()
    cookie["name"] = 'a, "b"; c\\d é'
    sent = cookie["name"].OutputString().removeprefix("name=")
    assert parse_cookie(f"name={sent}")["name"] == 'a, "b"; c\\d é'


def seconds_for(backslashes: int) -> float:
    begun = time.perf_counter()
    parse_cookie(f'visitor="{chr(92) * backslashes}"')
    return time.perf_counter() - begun


def test_the_time_grows_with_the_length_only() -> None:
    """Eight times the length took 64 times as long."""
    short = min(seconds_for(8_000) for _ in range(5))
    assert min(seconds_for(64_000) for _ in range(5)) < 24 * max(short, 0.0005)
