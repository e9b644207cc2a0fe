"""A loop that stops beating is stalled, in its own process and for the others of its role."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.kernel.observability import heartbeats
from apps.kernel.observability.metrics import STALLED_SECONDS, Metrics


@pytest.fixture(autouse=True)
def _no_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "_beats", {})


def test_a_loop_is_stalled_when_its_beat_is_overdue() -> None:
    assert heartbeats.stalled() == []
    heartbeats.beat("lively", 60.0)
    heartbeats.beat("hanging", -1.0)
    assert heartbeats.stalled() == ["hanging"]
    heartbeats.beat("hanging", 60.0)
    assert heartbeats.stalled() == []
    heartbeats.beat("ended", -1.0)
    heartbeats.end("ended")
    assert heartbeats.stalled() == []


def test_a_loop_that_waits_is_not_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "_waiting", {})
    is_away = True
    heartbeats.allow_waiting("consumer", lambda: is_away)
    for loop in ("consumer", "other"):
        heartbeats.beat(loop, -1.0)
    assert heartbeats.stalled() == ["other"]
    is_away = False
    assert heartbeats.stalled() == ["consumer", "other"]


@pytest.fixture
def sibling(tmp_path: Path) -> Iterator[Metrics]:
    """A process of `web` whose file only the test writes."""
    made = Metrics(tmp_path)
    made.begin("web")
    made._stopping.set()
    yield made
    made.end()


def test_a_process_reports_its_stalled_loops_to_the_others_of_its_role(tmp_path: Path, sibling: Metrics) -> None:
    watcher = Metrics(tmp_path)
    sibling.publish()
    assert watcher.stalled_processes("web") == []
    heartbeats.beat("event loop", -1.0)
    sibling.publish()
    assert watcher.stalled_processes("web") == [f"process {os.getpid()}: event loop"]
    assert watcher.stalled_processes("site") == []
    assert sibling.stalled_processes("web") == [], "each process asks its own loops itself"


def test_a_process_that_stops_writing_is_stalled_and_an_ended_one_is_not(tmp_path: Path, sibling: Metrics) -> None:
    watcher = Metrics(tmp_path)
    sibling.publish()
    assert sibling._file is not None
    long_ago = time.time() - STALLED_SECONDS - 5
    os.utime(sibling._file, (long_ago, long_ago))
    assert watcher.stalled_processes("web") == [f"process {os.getpid()}"]
    content = json.loads(sibling._file.read_text())
    sibling.publish()
    assert watcher.stalled_processes("web") == [], "an unchanged file is touched"
    sibling._file.write_text(json.dumps({**content, "started": 1.0, "stalled": ["event loop"]}))
    os.utime(sibling._file, (long_ago, long_ago))
    assert watcher.stalled_processes("web") == []
