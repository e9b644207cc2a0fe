"""Every benchmark can be started, so that rarely used ones do not break unnoticed. Mypy checks that what they call
exists (`make lint`)."""

import importlib
import sys
from pathlib import Path

import pytest

import benchmarks.suite
from benchmarks.suite import __main__ as suite

FOLDER = Path(benchmarks.suite.__file__).parent.parent
PROGRAMS = sorted(
    f"{folder}.{file.stem}"
    for folder in ("scenarios", "experiments", "rehearsals")
    for file in (FOLDER / folder).glob("*.py")
    if "__main__" in file.read_text()
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_benchmark_prints_its_usage(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    assert f"python -m benchmarks.{name}" in capsys.readouterr().out


@pytest.mark.parametrize("row", suite.ROWS.values())
def test_every_row_of_the_suite_has_a_run_function(row: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.suite.rows.{row}").run)
