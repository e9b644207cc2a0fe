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
    begun = time.thread_time()
    parse_cookie(f'visitor="{chr(92) * backslashes}"')
    return time.thread_time() - begun


def test_the_time_grows_with_the_length_only() -> None:
    """Sixteen times the length took 256 times as long."""
    short = min(seconds_for(16_000) for _ in range(9))
    assert min(seconds_for(256_000) for _ in range(5)) < 64 * max(short, 0.0005)
