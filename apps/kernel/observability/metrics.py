"""Figures of all processes of this machine together, whichever of them is asked for /metrics.

Each process keeps its figures in its own memory, where counting costs nothing, and every five seconds writes what they
come to into a file of its own. Who is scraped adds up the others' files and its own present figures: counters and
histograms of every process there has been, gauges of those that live. What a process that has ended had counted is
carried over into one file, so that no sum ever falls because somebody was restarted.

prometheus_client's own way, files mapped into memory, was not taken: there each count goes through a lock and a file,
and what a collector computes itself is left out.
"""

import atexit
import contextlib
import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from apps.kernel.observability import log_context

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0
_SAME_START_SECONDS = 5.0
_ENDED = "ended.json"
_ADDS_UP = frozenset(("counter", "histogram", "summary"))

Sample = tuple[str, dict[str, str], float]
Family = tuple[str, str, str, list[Sample]]
"""Name, type, help, samples."""
Snapshot = dict[str, Any]


class Metrics(Collector):
    """The figures of one process, and through their files those of the others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._collectors: list[Collector] = []
        self._file: Path | None = None
        self._process: Snapshot = {}
        self._writing = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._last = b""
        self._is_well = True

    def register(self, *collectors: Collector) -> None:
        """What these count belongs to this process's figures."""
        self._collectors += [one for one in collectors if one not in self._collectors]

    def begin(self, role: str) -> None:
        """From now on the others see what this process counts, under the name of what it does."""
        if self._thread is not None and self._process["pid"] == os.getpid():
            return
        own = psutil.Process()
        self._process = {"role": role, "pid": own.pid, "started": own.create_time()}
        self._file = self._folder / f"{role}-{own.pid}-{int(own.create_time())}.json"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._stopping,), name="metrics", daemon=True)
        self._thread.start()
        atexit.register(self.end)

    def end(self) -> None:
        """The others have seen the last of it, and nothing is written any more."""
        atexit.unregister(self.end)
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            thread.join(timeout=5)
        self.publish()
        self._file = None

    def publish(self) -> None:
        """The file says what was counted until now. Never raises; a folder that cannot be written to is said once."""
        with self._writing:
            # A child that was forked has its parent's figures, which are not its to tell.
            if self._file is None or os.getpid() != self._process["pid"]:
                return
            told = json.dumps({**self._process, "families": list(self._families(pause=True))}).encode()
            if told == self._last:
                return
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _replace(self._file, told)
            except OSError as error:
                if self._is_well:
                    logger.warning("/metrics does not show this process: %s", log_context.summarize_error(error))
                self._is_well = False
                return
            self._last, self._is_well = told, True

    def collect(self) -> Iterable[Metric]:
        """Everybody's figures, this process's own as they are now."""
        own = {"role": self._process.get("role", "this"), "families": list(self._families())}
        others: list[Snapshot] = []
        if self._file is not None:
            try:
                others = self._others()
            except OSError as error:
                logger.warning("/metrics shows this process alone: %s", log_context.summarize_error(error))
        processes = GaugeMetricFamily("fairgate_processes_count", "Processes in these figures.", labels=["role"])
        living = [own["role"], *(one["role"] for one in others if one["role"])]
        for role in sorted(set(living)):
            processes.add_metric([role], living.count(role))
        return [processes, *_added_up([own, *others])]

    def describe(self) -> Iterable[Metric]:
        return []

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.wait(INTERVAL_SECONDS):
            try:
                self.publish()
            except Exception:
                logger.exception("the figures of this process were not published")

    def _families(self, *, pause: bool = False) -> Iterator[Family]:
        for collector in list(self._collectors):
            for metric in collector.collect():
                # When a counter was made says nothing about a sum.
                samples = [
                    (one.name, one.labels, one.value) for one in metric.samples if not _is_creation_time(one.name)
                ]
                yield metric.name, metric.type, metric.documentation, samples
                if pause:
                    time.sleep(0)  # Beside a thread that answers requests: let it go first.

    def _others(self) -> list[Snapshot]:
        """What every other process has written: of those that have ended, what adds up."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self._folder / "lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            ended = _read(self._folder / _ENDED) or {"role": "", "families": [], "carried": []}
            living, dead = [], {}
            for file in sorted(self._folder.glob("*-*-*.json")):
                if file == self._file:
                    continue
                snapshot = _read(file)
                if snapshot is not None and _is_process_alive(snapshot):
                    living.append(snapshot)
                elif snapshot is None or file.name in ended["carried"]:
                    file.unlink(missing_ok=True)
                else:
                    dead[file] = snapshot
            if dead:
                families = [_as_family(one) for one in _added_up([ended, *map(_lasting, dead.values())])]
                # First carried over, by name, then removed: killed in between, nothing is counted twice.
                ended = {"role": "", "families": families, "carried": [file.name for file in dead]}
                _replace(self._folder / _ENDED, json.dumps(ended).encode())
                for file in dead:
                    file.unlink(missing_ok=True)
        return [ended, *living]


def _added_up(snapshots: list[Snapshot]) -> list[Metric]:
    found: dict[str, tuple[Metric, dict[tuple[Any, ...], float]]] = {}
    for snapshot in snapshots:
        for name, kind, text, samples in snapshot["families"]:
            metric, sums = found.setdefault(name, (Metric(name, text, kind), {}))
            if metric.type != kind:
                continue  # Of a process that runs another version.
            for sample, labels, value in samples:
                key = (sample, *labels.items())
                sums[key] = sums.get(key, 0.0) + value
    for metric, sums in found.values():
        for (sample, *labels), value in sums.items():
            metric.add_sample(sample, dict(labels), value)
    return [metric for metric, _ in found.values()]


def _as_family(metric: Metric) -> Family:
    return metric.name, metric.type, metric.documentation, [(one.name, one.labels, one.value) for one in metric.samples]


def _lasting(snapshot: Snapshot) -> Snapshot:
    return {**snapshot, "families": [one for one in snapshot["families"] if one[1] in _ADDS_UP]}


def _is_creation_time(name: str) -> bool:
    return name.endswith("_created")


def _is_process_alive(snapshot: Snapshot) -> bool:
    try:
        # The system's clock may be set meanwhile, by a little.
        return abs(psutil.Process(snapshot["pid"]).create_time() - snapshot["started"]) < _SAME_START_SECONDS
    except psutil.Error:
        return False


def _read(file: Path) -> Snapshot | None:
    """What the file says; None where it is gone or not whole."""
    try:
        said = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) and isinstance(said.get("families"), list) else None


def _replace(file: Path, content: bytes) -> None:
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        new.write_bytes(content)
        new.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


machine_metrics = Metrics(Path(settings.METRICS_FOLDER))
register, begin, end, publish = (
    machine_metrics.register,
    machine_metrics.begin,
    machine_metrics.end,
    machine_metrics.publish,
)
