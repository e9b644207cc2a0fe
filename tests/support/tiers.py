"""Two tiers of tests: `make test` leaves out the slow ones, `make test-all` runs every test with all its examples.

A test is slow by the folder that contains it, because it starts a Redis of its own (the fixture `own_redis`), or by
`@pytest.mark.slow`. A test that is not slow and takes longer than CALL_SECONDS_MAX fails the run; on a machine that is
busy with other work it may take longer in proportion.
"""

import os
import subprocess
import sys
from functools import cache
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import hypothesis
import pytest

TESTS = Path(__file__).parent.parent
SLOW_FOLDERS = ("browser", "chaos", "models", "processes")
LONGEST = (
    "processes/contract",
    "processes/reservations/test_false_refusals.py",
    "browser/shop/test_accessibility.py",
    "browser/test_admin_accessibility.py",
    "processes/devserver/test_demo.py",
    "events/organizers/test_organizers.py",
    "ticketing/test_admin_lists.py",
    "chaos",
    "models",
)
"""Folders and modules of tests/ whose tests take longest: they run first."""
CALL_SECONDS_MAX = 2.0

FULL_EXAMPLES = 100
FEWEST_EXAMPLES = 5
"""Hypothesis begins with the simplest inputs: fewer examples would test hardly anything else."""
# No deadline: on a busy machine a slow example is not a counterexample.
_properties: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
    "print_blob": True,
}
hypothesis.settings.register_profile("few", max_examples=FULL_EXAMPLES // 10, **_properties)
hypothesis.settings.register_profile("full", max_examples=FULL_EXAMPLES, **_properties)
hypothesis.settings.load_profile("few")


def examples(full: int) -> int:
    """Return the number of examples for a property that has `full` of them in `make test-all`."""
    return min(full, max(FEWEST_EXAMPLES, full * hypothesis.settings().max_examples // FULL_EXAMPLES))


def deal(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the items so ordered that each worker begins with its part of the longest tests: started last, one would
    keep one worker busy while the others are idle. A worker begins with one of `workers` equal parts of the list, and
    takes over the end of another's when it has run its own. Tests that share a fixture stay together."""
    first = sorted((item for item in items if _rank(item.path) < len(LONGEST)), key=lambda item: _rank(item.path))
    units = [list(unit) for _, unit in groupby(first, key=_unit)]
    others = iter([item for item in items if _rank(item.path) == len(LONGEST)])
    dealt: list[pytest.Item] = []
    for number in range(workers):
        size = (len(items) - len(dealt)) // (workers - number)
        part = [item for unit in units[number::workers] for item in unit]
        dealt += part + list(islice(others, max(0, size - len(part))))
    return dealt + list(others)


@cache
def _rank(path: Path) -> int:
    """Return the index in LONGEST of what contains the module, or its length."""
    name = path.relative_to(TESTS)
    return next((rank for rank, longest in enumerate(LONGEST) if name.is_relative_to(longest)), len(LONGEST))


def _unit(item: pytest.Item) -> str:
    """Return what stays with one worker: the test, or its module if that has a fixture for all of its tests."""
    fixtures = getattr(item, "_fixtureinfo", None)
    definitions = fixtures.name2fixturedefs.values() if fixtures else ()
    shares = any(each[-1].scope in ("class", "module", "package") for each in definitions)
    return str(item.path) if shares else item.nodeid


def is_slow(item: pytest.Item) -> bool:
    """Whether the test is slow by its folder or its fixtures."""
    return _folder(item) in SLOW_FOLDERS or "own_redis" in getattr(item, "fixturenames", ())


def call_seconds_max() -> float:
    """Return the longest time of a test that is not slow, at the machine's present load."""
    return CALL_SECONDS_MAX * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]


class Tiers:
    """The pytest plugin: marks slow tests, and fails the run for those that are slow and not marked."""

    def __init__(self, workers: int) -> None:
        self._took_too_long: dict[str, float] = {}
        self._is_parallel = workers > 0

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        # At collection, so that `-m` sees the mark.
        if is_slow(item):
            item.add_marker(pytest.mark.slow)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        workers = getattr(config, "workerinput", {}).get("workercount", 1)
        items[:] = deal(items, workers)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not self._is_parallel and "hypothesis" in report.keywords and examples(FULL_EXAMPLES) == FULL_EXAMPLES:
            return  # The limit applies to a property with few examples.
        if report.when == "call" and report.duration > call_seconds_max() and "slow" not in report.keywords:
            self._took_too_long[report.nodeid] = report.duration

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """In a parallel run tests share the processors: those that took too long are measured again alone."""
        ended_early = exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if hasattr(session.config, "workerinput") or ended_early or not self._took_too_long:
            return
        failed = self._measure_alone() if self._is_parallel else self._report()
        session.exitstatus = session.exitstatus or failed

    def _measure_alone(self) -> int:
        """Run the tests that took too long one after the other, with few examples; return the exit status."""
        arguments = ["-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-profile=few", *self._took_too_long]
        # Like a worker, it uses this run's PostgreSQL, which is still up.
        environment = {**os.environ, "PYTEST_XDIST_WORKER": "alone"}
        count = len(self._took_too_long)
        print(f"\n{count} tests took too long; measuring them alone:", flush=True)
        return subprocess.run([sys.executable, "-m", "pytest", *arguments], env=environment, check=False).returncode

    def _report(self) -> int:
        """Report the tests that took too long; return the exit status."""
        for test, seconds in self._took_too_long.items():
            print(
                f"\nFAILED {test} took {seconds:.1f} s, much more than {CALL_SECONDS_MAX}: make it quicker, mark it "
                f"@pytest.mark.slow, or move it into one of {', '.join(f'tests/{folder}/' for folder in SLOW_FOLDERS)}",
                flush=True,
            )
        return pytest.ExitCode.TESTS_FAILED
