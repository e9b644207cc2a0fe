"""Metrics summed over processes, metrics of the fast path, and the access log."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.registry import Collector

from apps.kernel.observability import access_log, metrics, request_metrics
from apps.kernel.observability.metrics import Metrics
from apps.kernel.rate_limits.limits import Limits, Refusals


class Shop:
    """The metrics of one simulated process."""

    def __init__(self, folder: Path, role: str, *, started: float | None = None) -> None:
        self.sold = Counter("sold", "Sold.", ["what"], registry=None)
        self.waiting = Gauge("waiting", "Waiting.", registry=None)
        self.sizes = Histogram("sizes", "Sizes.", buckets=(1, 2, 4), registry=None)
        self.metrics = Metrics(folder)
        self.metrics.register(self.sold, self.waiting, self.sizes)
        self.metrics.begin(role)
        self.metrics._stopping.set()  # No thread beside the test.
        if started is not None:
            self.metrics._process["started"] = started
            self.metrics._file = folder / f"{role}-{os.getpid()}-{started:.0f}.json"


def figures(collector: Collector) -> dict[str, float]:
    return {
        one.name + "".join(f" {name}={value}" for name, value in one.labels.items()): one.value
        for metric in collector.collect()
        for one in metric.samples
    }


@pytest.fixture
def shops(tmp_path: Path) -> Iterator[list[Shop]]:
    """Three processes: two are alive, and the process id of the third now belongs to another process."""
    made = [Shop(tmp_path / "new", "web"), Shop(tmp_path / "new", "site"), Shop(tmp_path / "new", "web", started=5.0)]
    yield made
    for shop in made:
        shop.metrics.end()


def test_every_process_shows_the_sums_of_all_processes(shops: list[Shop]) -> None:
    for number, shop in enumerate(shops, 1):
        shop.sold.labels("seat").inc(number)
        shop.waiting.set(number)
        shop.sizes.observe(number)
        shop.metrics.publish()
    shops[0].sold.labels("place").inc()  # Not published: a process reads its own metrics from memory.
    for _ in range(2):
        found = figures(shops[0].metrics)
        assert found["sold_total what=seat"] == 1 + 2 + 3
        assert found["sold_total what=place"] == 1
        assert found["waiting"] == 1 + 2, "a gauge of an ended process does not count"
        assert [found[f"sizes_bucket le={bound}"] for bound in ("1.0", "2.0", "4.0", "+Inf")] == [1, 2, 3, 3]
        assert (found["sizes_sum"], found["sizes_count"]) == (6, 3)
        assert (found["fairgate_processes_count role=web"], found["fairgate_processes_count role=site"]) == (1, 1)
        assert not any(name.startswith(("sold_created", "sizes_created")) for name in found)
    assert shops[2].metrics._file is not None
    assert not shops[2].metrics._file.exists(), "merged, so that restarts do not accumulate files"
    assert figures(shops[1].metrics)["sold_total what=seat"] == 6


def test_a_process_killed_between_merging_a_file_and_deleting_it_counts_nothing_twice(shops: list[Shop]) -> None:
    ended = shops[2]
    ended.sold.labels("seat").inc(3)
    ended.metrics.publish()
    assert ended.metrics._file is not None
    content = ended.metrics._file.read_bytes()
    assert figures(shops[0].metrics)["sold_total what=seat"] == 3
    ended.metrics._file.write_bytes(content)
    assert [figures(shops[0].metrics)["sold_total what=seat"] for _ in range(2)] == [3, 3]


def test_an_incomplete_file_is_ignored(shops: list[Shop]) -> None:
    shops[1].sold.labels("seat").inc()
    shops[1].metrics.publish()
    assert shops[1].metrics._file is not None
    for name, content in (("web-1-1.json", "{"), ("web-2-2.json", "[]"), ("ended.json", "\x00")):
        shops[1].metrics._file.with_name(name).write_text(content)
    assert figures(shops[0].metrics)["sold_total what=seat"] == 1


def test_with_an_unwritable_folder_one_line_is_logged_and_the_process_shows_its_own_metrics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    shop = Shop(tmp_path / "file" / "metrics", "web")
    shop.sold.labels("seat").inc()
    for _ in range(3):
        shop.metrics.publish()
    assert [record.message.partition(":")[0] for record in caplog.records] == ["/metrics does not show this process"]
    assert figures(shop.metrics)["sold_total what=seat"] == 1
    shop.metrics.end()


@pytest.mark.slow
def test_the_counters_of_another_process_are_summed_and_kept_after_it_ends(tmp_path: Path) -> None:
    """A real process begins, counts, and exits without cleaning up."""
    script = (
        "import django, os, sys; django.setup()\n"
        "from pathlib import Path\n"
        "from apps.kernel.observability import metrics, request_metrics\n"
        "metrics.begin('web'); request_metrics.record_response('poll', 'GET', 200, 0.002); metrics.publish()\n"
        "print('ready', flush=True); sys.stdin.read(); os._exit(9)\n"
    )
    environment = {**os.environ, "METRICS_FOLDER": str(tmp_path), "DJANGO_SETTINGS_MODULE": "ticketing.settings"}
    seen = Metrics(tmp_path)
    seen.begin("site")
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        name = "fairgate_http_request_seconds_count route=poll method=GET status=200"
        assert figures(seen)[name] == 1
        assert figures(seen)["fairgate_processes_count role=web"] == 1
        assert other.stdin is not None
        other.stdin.close()
        other.wait(timeout=30)
    after = figures(seen)
    assert after[name] == 1
    assert "fairgate_processes_count role=web" not in after
    seen.end()


# --- traffic ---------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_traffic() -> Iterable[None]:
    request_metrics.forget()
    yield
    request_metrics.forget()


def test_responses_are_counted_by_route_method_and_status() -> None:
    for seconds in (0.0005, 0.001, 0.3, 60.0):
        request_metrics.record_response("poll", "GET", 200, seconds)
    request_metrics.request_started()
    found = figures(request_metrics.METRICS[0])
    of_poll = " route=poll method=GET status=200"
    assert found[f"fairgate_http_request_seconds_bucket{of_poll} le=0.001"] == 2
    assert found[f"fairgate_http_request_seconds_bucket{of_poll} le=0.5"] == 3
    assert found[f"fairgate_http_request_seconds_bucket{of_poll} le=+Inf"] == 4
    assert found[f"fairgate_http_request_seconds_sum{of_poll}"] == pytest.approx(60.3015)
    assert found["fairgate_http_in_flight_count"] == 1


def test_clients_cannot_make_the_number_of_metrics_grow() -> None:
    for number in range(5_000):
        request_metrics.record_response("forwarded", f"METHOD{number}", 200, 0.1)
    assert len(request_metrics._cells) == 1
    for number in range(5_000):
        request_metrics.record_response(f"route {number}", "GET", 200, 0.1)
    assert len(request_metrics._cells) <= request_metrics.CELLS_MAX + 1


def test_refusals_are_counted_by_kind_and_limit() -> None:
    limits = Limits({"hold": ((1.0, 1), (1.0, 1))})
    for token in ("one", "one", "two"):
        limits.ask("hold", "203.0.113.1", token)
    found = figures(Refusals(limits))
    assert found["fairgate_limits_refused_total kind=hold by=token"] == 1
    assert found["fairgate_limits_refused_total kind=hold by=address"] == 1


# --- the access log --------------------------------------------------------------------------------------------------


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(record.getMessage()))


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Yield the lines logged while no request is sampled."""
    handler = Lines()
    access_log.logger.addHandler(handler)
    monkeypatch.setattr(access_log, "_sample", 0.0)
    monkeypatch.setattr(access_log, "_slow_seconds", 1.0)
    monkeypatch.setattr(access_log, "_faults", 500)
    monkeypatch.setattr(access_log, "_pace", access_log._Pace())
    yield handler.lines
    access_log.logger.removeHandler(handler)


def test_errors_and_slow_requests_are_always_logged_and_others_as_sampled(
    lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for status, seconds in ((200, 0.01), (404, 0.01), (200, 1.5), (503, 0.01)):
        access_log.log("GET", "poll", status, seconds, 345, "abcdefgh", "203.0.113.77", "concert")
    assert [(line["status"], line["ms"]) for line in lines] == [(200, 1500.0), (503, 10.0)]
    line = dict(lines[0])
    assert line.pop("time").endswith("Z")
    assert line == {
        "method": "GET", "route": "poll", "status": 200, "ms": 1500.0, "bytes": 345, "request_id": "abcdefgh",
        "address": "203.0.113.0/24", "event": "concert",
    }  # fmt: skip
    monkeypatch.setattr(access_log, "_sample", 1.0)
    access_log.log("GET", "poll", 200, 0.01, 0, "abcdefgh", "")
    assert (lines[2]["address"], "event" in lines[2]) == ("", False)


def test_the_number_of_lines_is_limited_during_an_outage(
    lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [7.5]
    monkeypatch.setattr(access_log, "monotonic", lambda: now[0])
    for _ in range(1_000):
        access_log.log("GET", "poll", 503, 0.01, 0, "abcdefgh", "")
    assert len(lines) == access_log.LINES_PER_SECOND_MAX
    now[0] += 1
    for _ in range(2):
        access_log.log("GET", "poll", 503, 0.01, 0, "abcdefgh", "")
    assert [line.get("left_out") for line in lines[-2:]] == [1_000 - access_log.LINES_PER_SECOND_MAX, None]


@pytest.mark.parametrize(
    ("address", "shortened_address"),
    [
        ("203.0.113.77", "203.0.113.0/24"),
        ("::ffff:203.0.113.77", "203.0.113.0/24"),
        ("2001:db8:1:2::3", "2001:db8:1::/48"),
        ("fe80::1%eth0", "fe80::/48"),
        ("garbage", ""),
        ("", ""),
    ],
)
def test_addresses_are_shortened_or_left_out_as_configured(address: str, shortened_address: str, settings: Any) -> None:
    assert access_log.shortened(address) == shortened_address
    settings.ACCESS_LOG_ADDRESSES = "none"
    assert access_log.shortened(address) == ""


@pytest.mark.django_db
def test_the_site_logs_route_names_and_never_a_path_a_query_or_a_token(
    client: Client, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "_sample", 1.0)
    client.get("/api/docs?key=secret", headers={"authorization": "Bearer secret", "cookie": "visitor=secret"})
    client.get("/secret/nowhere")
    assert [(line["route"], line["status"]) for line in lines] == [("api_docs", 200), ("unknown", 404)]
    assert "secret" not in json.dumps(lines)
    found = figures(metrics.machine_metrics)
    assert found["fairgate_http_request_seconds_count route=api_docs method=GET status=200"] == 1
