"""The strict parser of JSON bodies."""

import time

import pytest

from apps.kernel.http import json_body, problems


@pytest.mark.parametrize("part", [b"[]", b"{}", b'{"":{}}', b"0", b'{"":0}', b"[" * 29 + b"]" * 29])
def test_a_body_of_many_values_is_refused_before_it_is_parsed(part: bytes) -> None:
    body = b"[" + b",".join([part] * (250_000 // len(part))) + b"]"
    begun = time.thread_time()
    with pytest.raises(problems.MalformedBody, match="more than 10,000 values"):
        json_body.read_json(body)
    refused = time.thread_time() - begun
    begun = time.thread_time()
    json_body.read_json(body, values_max=len(body))
    assert refused < (time.thread_time() - begun) / 3, "parsing costs much more"


def test_the_values_of_a_large_list_of_scans_are_few_enough() -> None:
    scans = b",".join(b'{"ticket":"%d","at":"2026-01-01T10:00:00Z"}' % number for number in range(1_000))
    assert len(json_body.read_json(b'{"scans":[' + scans + b"]}")["scans"]) == 1_000
