"""manage.py audit: every invariant checked on the live system; exit 1 on a breach."""

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from ticketing.kernel import audit


class Command(BaseCommand):
    help = "Checks the invariants on the live system, one line each. Exit 1 on a breach."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        result = audit.run_and_record()
        if options["json"]:
            self.stdout.write(
                json.dumps({"clean": result.breach_count == 0, "took_ms": result.duration_ms, "checks": result.report})
            )
        else:
            for check in result.report:
                count = check["breach_count"]
                self.stdout.write(
                    f"{check['invariant']:<4} {'clean' if count == 0 else f'BREACH x{count}':<12} {check['promise']}"
                )
                for breach in check["breaches"]:
                    self.stdout.write(f"       {breach}")
            verdict = "clean" if result.breach_count == 0 else f"{result.breach_count} breaches"
            self.stdout.write(f"audit: {verdict} ({len(result.report)} checks, {result.duration_ms} ms)")
        if result.breach_count:
            sys.exit(1)
