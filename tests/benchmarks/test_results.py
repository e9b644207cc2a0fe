"""The suite's arithmetic and its output files."""

import json
from pathlib import Path

import pytest

from benchmarks.suite import report, results
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import arrivals
from benchmarks.suite.results import Ratio


def test_a_ratio_is_the_median_of_its_rounds_with_the_lowest_and_the_highest() -> None:
    ratio = results.compare("3", "holds", [30, 8, 40], [10, 4, 8], acceptable=3, goal=8)
    assert (ratio.ratio, ratio.low, ratio.high) == (3, 2, 5)
    assert ratio.is_acceptable
    assert not ratio.reaches_goal


def test_if_lower_is_better_a_higher_ratio_is_not_acceptable() -> None:
    ratio = results.compare("7", "p99", [21, 21], [3, 3], acceptable=6, goal=3, better="lower", unit="ms")
    assert not ratio.is_acceptable
    assert results.compare("7", "p99", [9], [3], acceptable=6, goal=3, better="lower").reaches_goal


def test_a_ratio_without_limits_is_always_acceptable() -> None:
    assert results.compare("1c", "site", [1], [100], acceptable=None, goal=None).is_acceptable


def test_both_sides_alternate_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []

    def act(name: str) -> float:
        calls.append(name)
        return len(calls)

    found = results.in_turn(2, {"a": lambda: act("a"), "b": lambda: act("b")})
    assert calls == ["a", "b"] * 3
    assert found == {"a": [3, 5], "b": [4, 6]}


def test_the_file_is_a_list_with_one_entry_for_each_judged_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tmp_path / "performance.md"
    document.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(report, "DOCUMENT", document)
    ratios: list[Ratio] = [
        results.compare("4a", "seats", [3, 6], [2, 3], acceptable=0.6, goal=1.2),
        results.compare("10-1-10", "growth", [3], [2], acceptable=1.3, goal=1.3, better="lower"),
        results.compare("4-lean", "seats", [3, 6], [2, 3], acceptable=None, goal=None),
    ]
    file = report.write(ratios, [results.Fact("Asked", "often")], rounds=2, seconds=1, minutes=3)
    entry = {"row": "4a", "ratio": 1.75, "acceptable": 0.6, "goal": 1.2, "better": "higher", "spread": [1.5, 2.0]}
    assert json.loads(file.read_text())[0] == entry
    assert [one["row"] for one in json.loads(file.read_text())] == ["4a", "10-1-10"]
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| 10-1-10 | growth | 1.50 below |" in text
    assert "<svg" in (tmp_path / "bench-rows.svg").read_text()


def test_a_response_is_complete_once_its_body_is() -> None:
    head = b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\n"
    assert arrivals.status_of(head[:-1]) is None
    assert arrivals.status_of(head + b"bod") is None
    assert arrivals.status_of(head + b"body") == 201
    chunked = b"HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n"
    assert arrivals.status_of(chunked + b"2\r\nno\r\n") is None
    assert arrivals.status_of(chunked + b"2\r\nno\r\n0\r\n\r\n") == 503


def test_a_round_without_results_is_an_error() -> None:
    with pytest.raises(SuiteFailed):
        results.compare("10-4", "seats", [0, 5], [2, 3], acceptable=1.3, goal=1.3, better="lower")
