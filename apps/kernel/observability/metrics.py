"""Metrics of all processes on this host, whichever process serves /metrics.

Each process counts in its own memory, which is cheap, and writes its values into its own file every five seconds. The
scraped process adds the values of the others to its own: counters and histograms of all processes, gauges only of
running ones. The counters of ended processes are moved into one common file, so that a restart never lowers a sum.

The multiprocess mode of prometheus_client (memory-mapped files) is not used: it takes a lock and writes a file for
each count, and omits the values that collectors compute.
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

from apps.kernel import clock
from apps.kernel.observability import heartbeats, log_context

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0
STALLED_SECONDS = 30.0
"""A process that has not written for this long is stalled: its file is due every INTERVAL_SECONDS."""
_SAME_START_SECONDS = 5.0
_ENDED = "ended.json"
_ADDITIVE_TYPES = frozenset(("counter", "histogram", "summary"))

Sample = tuple[str, dict[str, str], float]
Family = tuple[str, str, str, list[Sample]]
"""Name, type, help, samples."""
Snapshot = dict[str, Any]


class Metrics(Collector):
    """The metrics of this process, and of the others through their files."""

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
        self._shows_others = False

    def register(self, *collectors: Collector) -> None:
        """Add collectors to this process's metrics."""
        self._collectors += [collector for collector in collectors if collector not in self._collectors]

    def begin(self, role: str) -> None:
        """Start publishing this process's metrics to the others, labeled with its role."""
        if self._thread is not None and self._process["pid"] == os.getpid():
            return
        own = psutil.Process()
        self._process = {"role": role, "pid": own.pid, "started": own.create_time()}
        self._file = self._folder / f"{role}-{own.pid}-{int(own.create_time())}.json"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._stopping,), name="metrics", daemon=True)
        self._thread.start()
        self._shows_others = True
        atexit.register(self.end)

    def show_others(self) -> None:
        """Include the other processes in `collect`, without publishing this one."""
        self._shows_others = True

    def stalled_processes(self, role: str) -> list[str]:
        """Return the other running processes of this role that stopped writing, or that report stalled loops."""
        found = []
        for file in self._folder.glob(f"{role}-*-*.json"):
            snapshot = None if file == self._file else _read(file)
            if snapshot is None or not _is_process_alive(snapshot):
                continue
            name = f"process {snapshot['pid']}"
            found += [f"{name}: {loop}" for loop in snapshot.get("stalled", ())]
            with contextlib.suppress(OSError):  # It has just ended.
                if clock.process_seconds() - file.stat().st_mtime > STALLED_SECONDS:
                    found.append(name)
        return found

    def end(self) -> None:
        """Publish once more, and stop."""
        atexit.unregister(self.end)
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            thread.join(timeout=5)
        self.publish()
        self._file, self._shows_others = None, False

    def publish(self) -> None:
        """Write the current values to this process's file. Never raises; an unwritable folder is logged once."""
        with self._writing:
            # A forked child has a copy of its parent's values and must not publish them.
            if self._file is None or os.getpid() != self._process["pid"]:
                return
            with contextlib.suppress(OSError):  # Missing at first.
                os.utime(self._file)  # Shows that this process runs, also if the disk is full.
            snapshot = {**self._process, "stalled": heartbeats.stalled(), "families": list(self._families(pause=True))}
            content = json.dumps(snapshot).encode()
            if content == self._last:
                return
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _replace(self._file, content)
            except OSError as error:
                if self._is_well:
                    logger.warning("/metrics does not show this process: %s", log_context.summarize_error(error))
                self._is_well = False
                return
            self._last, self._is_well = content, True

    def collect(self) -> Iterable[Metric]:
        """Return the sums over all processes, with this one's current values."""
        own = {"role": self._process.get("role", "this"), "families": list(self._families())}
        others: list[Snapshot] = []
        if self._shows_others:
            try:
                others = self._others()
            except OSError as error:
                logger.warning("/metrics shows only this process: %s", log_context.summarize_error(error))
        processes = GaugeMetricFamily(
            "fairgate_processes_count", "Processes included in these metrics.", labels=["role"]
        )
        roles = [other["role"] for other in others if other["role"]]
        if self._file is not None or not self._shows_others:
            roles.append(own["role"])
        for role in sorted(set(roles)):
            processes.add_metric([role], roles.count(role))
        return [processes, *_sum([own, *others])]

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.wait(INTERVAL_SECONDS):
            try:
                self.publish()
            except Exception:
                logger.exception("the metrics of this process were not published")

    def _families(self, *, pause: bool = False) -> Iterator[Family]:
        for collector in list(self._collectors):
            for metric in collector.collect():
                # A counter's creation time has no meaning in a sum.
                samples = [sample for sample in _samples(metric) if not sample[0].endswith("_created")]
                yield metric.name, metric.type, metric.documentation, samples
                if pause:
                    time.sleep(0)  # Yields to threads that serve requests.

    def _others(self) -> list[Snapshot]:
        """Return the values of the other running processes, and the sums of those that have ended."""
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
                sums = _sum([ended, *map(_additive, dead.values())])
                families = [(metric.name, metric.type, metric.documentation, _samples(metric)) for metric in sums]
                # Files are recorded as carried over before they are removed: if this process is killed in between,
                # nothing is counted twice.
                ended = {"role": "", "families": families, "carried": [file.name for file in dead]}
                _replace(self._folder / _ENDED, json.dumps(ended).encode())
                for file in dead:
                    file.unlink(missing_ok=True)
        return [ended, *living]


def _sum(snapshots: list[Snapshot]) -> list[Metric]:
    by_name: dict[str, tuple[Metric, dict[tuple[Any, ...], float]]] = {}
    for snapshot in snapshots:
        for name, kind, text, samples in snapshot["families"]:
            metric, sums = by_name.setdefault(name, (Metric(name, text, kind), {}))
            if metric.type != kind:
                continue  # Written by a process of another version.
            for sample, labels, value in samples:
                key = (sample, *labels.items())
                sums[key] = sums.get(key, 0.0) + value
    for metric, sums in by_name.values():
        for (sample, *labels), value in sums.items():
            metric.add_sample(sample, dict(labels), value)
    return [metric for metric, _ in by_name.values()]


def _samples(metric: Metric) -> list[Sample]:
    return [(sample.name, sample.labels, sample.value) for sample in metric.samples]


def _additive(snapshot: Snapshot) -> Snapshot:
    return {**snapshot, "families": [family for family in snapshot["families"] if family[1] in _ADDITIVE_TYPES]}


def _is_process_alive(snapshot: Snapshot) -> bool:
    try:
        # A small difference allows for an adjusted system clock.
        return abs(psutil.Process(snapshot["pid"]).create_time() - snapshot["started"]) < _SAME_START_SECONDS
    except psutil.Error:
        return False


def _read(file: Path) -> Snapshot | None:
    """Return the file's snapshot, or None if the file is missing or damaged."""
    try:
        snapshot = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return snapshot if isinstance(snapshot, dict) and isinstance(snapshot.get("families"), list) else None


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
register, begin = machine_metrics.register, machine_metrics.begin
end, publish = machine_metrics.end, machine_metrics.publish
