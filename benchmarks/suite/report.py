"""Writes the results: benchmarks/results/DATE.json, its context beside it, and the table in docs/performance.md."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.suite import plot
from benchmarks.suite.results import Fact, Ratio, table
from benchmarks.suite.systems import CHECKOUT

RESULTS = CHECKOUT / "benchmarks" / "results"
DOCUMENT = CHECKOUT / "docs" / "performance.md"
PLOTS = {"bench-rows.svg": "each row", "bench-growth.svg": "growth"}
BEGIN = "<!-- make bench writes from here -->"
END = "<!-- to here -->"


def write(ratios: Sequence[Ratio], facts: Sequence[Fact], rounds: int, seconds: int, minutes: float) -> Path:
    """Write the ratios, the context of their measurement, the document's table and the plots. Return the file of
    ratios."""
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    judged = [ratio for ratio in ratios if ratio.acceptable is not None]
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{today}.json"
    entries = ",\n".join(" " + json.dumps(ratio.entry()) for ratio in judged)
    file.write_text(f"[\n{entries}\n]\n")
    about = {
        "date": today,
        "commit": _commit(),
        "machine": machine(),
        "rounds": rounds,
        "slice_seconds": seconds,
        "minutes": round(minutes, 1),
        "ratios": [asdict(ratio) for ratio in ratios],
        "facts": [asdict(fact) for fact in facts],
    }
    (RESULTS / f"{today}.about.json").write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    grown = [ratio for ratio in judged if ratio.row.startswith("10-")]
    rest = [ratio for ratio in judged if ratio not in grown]
    for name, (title, shown) in zip(PLOTS, (("Every row", rest), ("Growth", grown)), strict=True):
        (DOCUMENT.parent / name).write_text(plot.draw(shown, f"{title}, {today}"))
    text = DOCUMENT.read_text()
    DOCUMENT.write_text(between_marks(text, section(ratios, facts, rounds, seconds, today)))
    return file


def section(ratios: Sequence[Ratio], facts: Sequence[Fact], rounds: int, seconds: int, today: str) -> list[str]:
    return [
        f"`make bench`, {today}, {machine()}; the generator runs on the same machine. A ratio is the",
        f"median of {rounds} rounds, in each of which both sides are measured in turn, in slices of {seconds} s; the",
        "spread is the lowest and the highest round. Rates are those of this machine; ratios carry over to others.",
        "",
        *table(ratios),
        "",
        *[f"- {fact.title}: {fact.value}." for fact in facts],
        "",
        *[f"![{alt}]({name})" for name, alt in PLOTS.items()],
    ]


def between_marks(text: str, lines: Sequence[str]) -> str:
    """Replace the text between the marks by these lines. Raises ValueError if the marks are missing."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT.name} has no lines {BEGIN} and {END}")
    return "\n".join([f"{head}{begin}", "", *lines, "", f"{end}{tail}"])


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    system = platform.freedesktop_os_release().get("NAME", platform.system()).removesuffix(" GNU/Linux")
    version = platform.freedesktop_os_release().get("VERSION_ID", "")
    python = ".".join(map(str, sys.version_info[:2]))
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {system} {version}".strip() + f", Python {python}"


def _commit() -> str:
    result: Any = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    return str(result.stdout.strip())
