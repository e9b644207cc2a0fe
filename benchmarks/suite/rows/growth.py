"""Row 10: rows 1 to 6 with ten and a hundred times the seats, reservations and waiting visitors."""

from contextlib import ExitStack
from functools import partial

from benchmarks.suite import systems
from benchmarks.suite.bench import Bench
from benchmarks.suite.results import Findings, compare, in_turn

WITHIN = 1.3
SMALLEST = 1


def run(bench: Bench) -> Findings:
    findings = Findings()
    measured = {
        "1": ("status polls", bench.polls),
        "2": ("section availability", bench.sections),
        "3": ("general admission", bench.general_admission),
        "4": ("two named seats", bench.seats),
        "5": ("sold-out refusals", bench.refusals),
        "6": ("joins", bench.joins),
    }
    with ExitStack() as until:
        for deployment in bench.others.values():
            if deployment is not bench.deployment:
                until.enter_context(systems.running(deployment))
        for row, (title, measure) in measured.items():
            acts = {f"{size}×": partial(measure, deployment) for size, deployment in sorted(bench.others.items())}
            found = in_turn(bench.rounds, acts, bench.say)
            for size in sorted(bench.others):
                if size != SMALLEST:
                    findings.ratios.append(
                        compare(f"10-{row}-{size}", f"{title}: the smallest deployment ÷ {size} times as large",
                                found[f"{SMALLEST}×"], found[f"{size}×"],
                                acceptable=WITHIN, goal=WITHIN, better="lower")
                    )  # fmt: skip
        largest = bench.others[max(bench.others)]
        with bench.profiled("10", largest):
            bench.seats(largest)
    return findings
