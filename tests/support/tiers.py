"""Two tiers of tests: `make test` leaves out the slow ones, `make test-all` runs every test with all its examples.

A test is slow by the folder that contains it, because it starts a Redis of its own (the fixture `own_redis`), or by
`@pytest.mark.slow`. A test that is not slow and takes longer than CALL_SECONDS_MAX fails the run; on a machine that is
busy with other work it may take longer in proportion.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis
import pytest

TESTS = Path(__file__).parent.parent
SLOW_FOLDERS = ("browser", "chaos", "models", "processes")
LONGEST_FOLDERS = ("chaos", "models")
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

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # The longest first: started last, one would keep one worker busy while the others are idle.
        items.sort(key=lambda item: _folder(item) not in LONGEST_FOLDERS)

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
