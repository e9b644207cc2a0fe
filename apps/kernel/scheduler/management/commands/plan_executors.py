"""manage.py plan_executors: how many executors the scheduled tasks of the next ten minutes need."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from apps.kernel import clock
from apps.kernel.scheduler import orchestrator


class Command(BaseCommand):
    help = (
        "Prints the runs of each of the next ten minutes and the executors that start them within 30 s. Exits with 1 "
        "if more are needed than there are."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print the plan as JSON, for a program that scales.")

    def handle(self, *args: Any, **options: Any) -> None:
        plan = orchestrator.read_plan()
        if options["json"]:
            minutes = [
                {"at": clock.iso(one.at), "runs": one.run_count, "executors_needed": one.executors_needed}
                for one in plan.minutes
            ]
            document = {
                "executors": plan.executors, "executors_needed": plan.executors_needed, "minutes": minutes,
            }  # fmt: skip
            self.stdout.write(json.dumps(document))
        else:
            self.stdout.write("minute (UTC)  runs  executors needed")
            for one in plan.minutes:
                self.stdout.write(f"{one.at:%H:%M} {one.run_count:>12,} {one.executors_needed:>17}")
            self.stdout.write(f"executors: {plan.executors}, needed: {plan.executors_needed}")
        if plan.late:
            self.stderr.write(orchestrator.describe(plan))
            raise SystemExit(1)
