"""`manage.py audit [EVENT]`: check all invariants on the live system; exit status 1 on a breach."""

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.kernel.cli import report_errors_in_one_line
from apps.kernel.models import AuditRun


class Command(BaseCommand):
    help = (
        "Checks the invariants on the live system and prints one line each. Exits with 1 on a breach, or if a check "
        "could not run. A complete audit is stored and shown to staff; an audit of one event is only printed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument(
            "event", nargs="?", default="", metavar="EVENT", help="only this event, by its id as in URLs"
        )
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        slug = options["event"]
        if slug:
            events.get_event_for_command(slug)
        result = auditor.audit(slug) if slug else auditor.run_and_record()
        self.stdout.write(_json(result, slug) if options["json"] else _text(result))
        if not result.is_clean:
            sys.exit(1)


def _json(result: AuditRun, slug: str) -> str:
    return json.dumps(
        {
            "clean": result.is_clean,
            "event": slug or None,
            "started_at": clock.iso(result.started_at),
            "took_ms": result.duration_ms,
            "breach_count": result.breach_count,
            "unchecked_count": result.unchecked_count,
            "checks": result.report,
        }
    )


def _text(result: AuditRun) -> str:
    lines = []
    for check in result.report:
        count, unchecked = check["breach_count"], check["unchecked"]
        verdict = f"BREACH x{count}" if count else "NOT CHECKED" if unchecked else "clean"
        lines.append(f"{check['invariant']:<4} {verdict:<12} {check['promise']}")
        lines += [f"       {breach}" for breach in check["breaches"]]
        if count > len(check["breaches"]):
            lines.append(f"       and {count - len(check['breaches'])} more")
        if unchecked:
            lines.append(f"       {unchecked}")
    lines.append(f"audit: {result.verdict} ({len(result.report)} checks, {result.duration_ms} ms)")
    return "\n".join(lines)
