"""Row 10: rows 1 to 6 again, with ten and a hundred times the seats, reservations and people waiting."""

from contextlib import ExitStack
from functools import partial

from benchmarks.suite import systems
from benchmarks.suite.bench import Bench
from benchmarks.suite.results import Findings, compare, in_turn

WITHIN = 1.3
SMALLEST = 1


def run(bench: Bench) -> Findings:
    findings = Findings()
    asked = {
        "1": ("status polls", bench.polls),
        "2": ("section availability", bench.sections),
        "3": ("general admission", bench.places),
        "4": ("two named seats", bench.seats),
        "5": ("sold-out refusals", bench.refusals),
        "6": ("joins", bench.joins),
    }
    with ExitStack() as until:
        for house in bench.others.values():
            if house is not bench.house:
                until.enter_context(systems.opened(house))
        for row, (title, ask) in asked.items():
            acts = {f"{size}×": partial(ask, house) for size, house in sorted(bench.others.items())}
            found = in_turn(bench.rounds, acts, bench.say)
            for size in sorted(bench.others):
                if size != SMALLEST:
                    findings.ratios.append(
                        compare(f"10-{row}-{size}", f"{title}: the smallest house ÷ {size} times as large",
                                found[f"{SMALLEST}×"], found[f"{size}×"],
                                acceptable=WITHIN, goal=WITHIN, better="lower")
                    )  # fmt: skip
        largest = bench.others[max(bench.others)]
        with bench.profiled("10", largest):
            bench.seats(largest)
    return findings
