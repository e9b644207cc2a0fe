"""Two tiers of tests: `make test` leaves out the slow ones, `make test-all` runs every test with all its examples.

A test is slow by the folder it lies in. A test outside these folders that takes longer than CALL_SECONDS_MAX fails the
run, so that `make test` stays quick.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis
import pytest

TESTS = Path(__file__).parent
SLOW_FOLDERS = ("browser", "chaos", "models", "processes")
CALL_SECONDS_MAX = 2.0
IS_ALONE = "FAIRGATE_TESTS_RUN_ALONE"
"""Set in the environment of the run that measures again, one after the other, the tests that took too long."""

FULL_EXAMPLES = 100
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
    """Returns how many examples a property has that gets `full` of them in `make test-all`."""
    return max(1, full * hypothesis.settings().max_examples // FULL_EXAMPLES)


def is_slow(path: Path) -> bool:
    """Whether the tests of this file are slow by its folder."""
    return path.relative_to(TESTS).parts[0] in SLOW_FOLDERS


class Tiers:
    """The pytest plugin: marks slow tests, and fails the run for those that are slow and not marked."""

    def __init__(self) -> None:
        self._took_too_long: dict[str, float] = {}

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        # As soon as it is collected, so that `-m` sees the mark.
        if is_slow(item.path):
            item.add_marker(pytest.mark.slow)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.duration > CALL_SECONDS_MAX and "slow" not in report.keywords:
            self._took_too_long[report.nodeid] = report.duration

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tests slow each other down in a parallel run, so those that took too long are measured again alone."""
        is_parallel = bool(getattr(session.config.option, "tx", None))
        if self._took_too_long and is_parallel:
            profile = f"--hypothesis-profile={hypothesis.settings.get_current_profile_name()}"
            alone = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", profile, *self._took_too_long]
            # Like a worker, it uses this run's PostgreSQL, which still runs.
            environment = {**os.environ, IS_ALONE: "1", "PYTEST_XDIST_WORKER": "alone"}
            done = subprocess.run(alone, env=environment, check=False)
            session.exitstatus = session.exitstatus or done.returncode
        elif self._took_too_long and IS_ALONE in os.environ:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if IS_ALONE in os.environ:
            for test, seconds in self._took_too_long.items():
                terminalreporter.write_line(
                    f"{test} took {seconds:.1f} s, more than {CALL_SECONDS_MAX}: make it quicker, or move it into "
                    f"one of {', '.join(f'tests/{folder}/' for folder in SLOW_FOLDERS)}"
                )
