"""Parameters of headers: as Python splits them, in linear time."""

import time

import pytest
from django.utils.http import parse_header_parameters
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tiers import examples
from ticketing.server.header_parameters import split_parameters


def quadratic(value: str) -> list[str]:
    """The algorithm of Python 3.11."""
    left, parts = ";" + value, []
    while left[:1] == ";":
        left = left[1:]
        end = left.find(";")
        while end > 0 and (left.count('"', 0, end) - left.count('\\"', 0, end)) % 2:
            end = left.find(";", end + 1)
        part = left if end < 0 else left[:end]
        if "=" in part:
            at = part.index("=")
            part = part[:at].strip().lower() + "=" + part[at + 1 :].strip()
        parts.append(part.strip())
        left = left[len(left) if end < 0 else end :]
    return parts


@given(st.text(st.sampled_from('aB "\\;= \t'), max_size=30))
@settings(max_examples=examples(500), deadline=None)
def test_values_are_split_as_python_splits_them(value: str) -> None:
    assert split_parameters(value) == quadratic(value)


def test_django_reads_parameters_in_linear_time() -> None:
    """Eight times the length took 64 times as long."""

    def seconds_for(semicolons: int) -> float:
        begun = time.thread_time()
        parse_header_parameters('a;"' + ";" * semicolons)
        return time.thread_time() - begun

    short = min(seconds_for(8_000) for _ in range(5))
    assert min(seconds_for(64_000) for _ in range(3)) < 24 * max(short, 0.0005)


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        ("Text/HTML; Charset=UTF-8", ("text/html", {"charset": "UTF-8"})),
        ('form-data; name="a;b"; filename="c\\"d"', ("form-data", {"name": "a;b", "filename": 'c"d'})),
        ("attachment; filename*=UTF-8''%E2%82%AC.txt", ("attachment", {"filename": "€.txt"})),
    ],
)
def test_django_reads_usual_parameters(value: str, parsed: object) -> None:
    assert parse_header_parameters(value) == parsed
