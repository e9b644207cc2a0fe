"""Row search: a search among 10,000 events, and its type-ahead, compared with one read by primary key through the same
kind of view, and with 1,000 events. Each size is searched in a process of its own, without a network."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median

import psycopg

from benchmarks.suite import flame_graph, systems
from benchmarks.suite.bench import Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import searches
from benchmarks.suite.results import Fact, Findings, compare
from benchmarks.support.event_searches import BY_KEY
from ticketing.devserver import postgres

SIZES = (1_000, 10_000)
KINDS = ("search", "type-ahead")
WITHIN = 2.0
_P50, _P99 = 0, 1
_QUANTILES = {_P50: "p50", _P99: "p99"}

Slice = dict[str, tuple[float, float]]
"""p50 and p99 in milliseconds, by kind of request."""


def run(bench: Bench) -> Findings:
    found: dict[int, list[Slice]] = {size: [] for size in SIZES}
    with ExitStack() as until:
        # Both are filled at the same time.
        programs = {size: until.enter_context(_started(bench, size)) for size in SIZES}
        for program in programs.values():
            program.wait_until_ready()
        for round_ in range(bench.rounds + 1):
            for size, program in programs.items():
                one = program.slice()
                if round_ > 0:  # The first is to warm up.
                    found[size].append(one)
                    bench.say(f"  {size:,} events: " + "  ".join(f"{name} p50 {q[0]:.2f}" for name, q in one.items()))
        largest = programs[max(SIZES)]
        with flame_graph.recorded(bench.programs.py_spy, largest.process.pid, bench.folder / "flame-search.svg"):
            largest.slice()
    small, large = (found[size] for size in SIZES)
    findings = Findings()
    for kind in KINDS:
        for at, name in _QUANTILES.items():
            findings.ratios.append(
                compare(f"search-{kind}-{name}", f"{kind} among 10,000 events ÷ read by primary key, {name}",
                        _of(large, kind, at), _of(large, BY_KEY, at),
                        acceptable=8, goal=3, better="lower", unit="ms")
            )  # fmt: skip
        findings.ratios.append(
            compare(f"search-{kind}-growth", f"{kind}, p50: 10,000 events ÷ 1,000",
                    _of(large, kind, _P50), _of(small, kind, _P50),
                    acceptable=WITHIN, goal=WITHIN, better="lower", unit="ms")
        )  # fmt: skip
    growth = {kind: median(_of(large, kind, _P99)) / median(_of(small, kind, _P99)) for kind in KINDS}
    text = ", ".join(f"{kind} × {factor:.2f}" for kind, factor in growth.items())
    findings.facts.append(Fact("Row search", f"p99 with 10,000 events by that with 1,000: {text}"))
    return findings


def _of(slices: list[Slice], kind: str, at: int) -> list[float]:
    return [one[kind][at] for one in slices]


@dataclass
class _Program:
    process: "subprocess.Popen[str]"
    name: str

    def wait_until_ready(self) -> None:
        if self._line() != searches.READY:
            raise SuiteFailed(f"{self.name} did not start")

    def slice(self) -> Slice:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return {kind: (p50, p99) for kind, (p50, p99) in json.loads(self._line()).items()}

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SuiteFailed(f"{self.name} ended: see its log")
        return line.strip()


@contextmanager
def _started(bench: Bench, size: int) -> Iterator[_Program]:
    name, servers = f"searching-{size}", bench.servers
    database = f"bench_search_{size}"
    with psycopg.connect(servers.cluster.superuser_url(), autocommit=True) as cluster:
        cluster.execute(f"CREATE DATABASE {database} TEMPLATE {postgres.OWNER} OWNER {postgres.OWNER}")  # type: ignore[call-overload]
    command = [sys.executable, "-m", "benchmarks.suite.load.searches", str(size), str(bench.seconds)]
    with (servers.folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=systems.CHECKOUT,
            env=servers.environment(database, 0),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield _Program(process, name)
    finally:
        process.kill()
        process.communicate()
