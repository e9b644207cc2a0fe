"""Compare the wait estimates of recorded or simulated sales with the waits that followed."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.events import facade as events
from apps.kernel.cli import parse_bounded_integer
from apps.queue.calibration import recorded_runs, simulated_runs
from apps.queue.calibration.report import report_of
from apps.queue.calibration.runs import Run, estimates_of
from apps.queue.models import WaitingRoom

SIMULATED_MAX = 10_000


class Command(BaseCommand):
    help = (
        "Say how often the estimated interval contained the true wait: for recorded sales of these events, or without "
        "events for simulated ones."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("events", nargs="*", metavar="SLUG", help="Events with a waiting room.")
        parser.add_argument("--simulated", default="100", help="The number of simulated sales (default 100).")

    def handle(self, *args: Any, **options: Any) -> None:
        count = parse_bounded_integer(options["simulated"], "--simulated", SIMULATED_MAX)
        runs = [_read(slug) for slug in options["events"]]
        runs = runs or [simulated_runs.simulate_run(seed) for seed in range(count)]
        reports = report_of(estimate for run in runs for estimate in estimates_of(run))
        if not reports:
            raise CommandError("nothing was estimated: no visitor has waited in these sales")
        self.stdout.write(f"{'stage':24} {'estimates':>9} {'right':>6} {'widest':>7} {'true / likely':>14}")
        for one in reports:
            self.stdout.write(
                f"{one.name:24} {one.count:9,} {one.right_share:6.0%} {one.widest:7.1f} {one.median_error:14.2f}"
            )


def _read(slug: str) -> Run:
    event = events.get_event_for_command(slug)
    try:
        return recorded_runs.read_run(event.id)
    except WaitingRoom.DoesNotExist as error:
        raise CommandError(f"{slug}: this event has no waiting room") from error
