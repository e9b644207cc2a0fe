"""manage.py reconcile: compares counters and copies with the rows they are derived from."""

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from apps.events import facade as events
from apps.kernel.admin_lists import format_count
from apps.kernel.checks import reconciler
from apps.kernel.cli import get_os_username, report_errors_in_one_line


class Command(BaseCommand):
    help = (
        "Compares counters and copies with the rows they are derived from, and prints one line per difference. "
        "--repair corrects, under locks, the differences whose repair takes nothing from a buyer. Exits with 1 if "
        "there was a difference, repaired or not, or if a check failed; otherwise with 0."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument("event", nargs="?", metavar="EVENT", help="only the event with this slug")
        parser.add_argument(
            "--repair", action="store_true", help="report, then make the repairs that take nothing from a buyer"
        )
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        part = None if options["event"] is None else events.get_event_for_command(options["event"]).id
        result = reconciler.run_and_record(part, repair_by=f"operator:{get_os_username()}" if options["repair"] else "")
        found = result.difference_count or result.failure_count
        if options["json"]:
            report = {
                "clean": not found,
                "failed_checks": result.failure_count,
                "took_ms": result.duration_ms,
                "differences": result.difference_count,
                "repaired": result.repaired_count,
                "left": result.left_count,
                "checks": result.report,
            }
            self.stdout.write(json.dumps(report))
        else:
            self._print(result)
        if found:
            sys.exit(1)

    def _print(self, result: Any) -> None:
        for check in result.report:
            count = check["difference_count"]
            word = "FAILED" if check["failure"] else "ok" if not count else f"x{count}"
            self.stdout.write(f"{check['check']:<10} {word:<6} {check['promise']}")
            if check["failure"]:
                self.stdout.write(f"       the check failed: {check['failure']}")
            for difference in check["differences"]:
                self.stdout.write(f"       {difference['line']}")
            if count > len(check["differences"]):
                self.stdout.write(f"       … and {count - len(check['differences'])} more")
        verdict = format_count(result.difference_count, "difference") if result.difference_count else "no difference"
        if result.failure_count:
            verdict = f"{format_count(result.failure_count, 'check')} FAILED, {verdict} found by the others"
        if result.repair_by and result.difference_count:
            verdict += f", {result.repaired_count} repaired, {result.left_count} left"
            if result.gone_count:
                verdict += f", {result.gone_count} gone before the repair"
        self.stdout.write(f"reconcile: {verdict} ({len(result.report)} checks, {result.duration_ms} ms)")
