"""`manage.py check_in`: check tickets in from a terminal, undo check-ins, or count them."""

import sys
import uuid
from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.events import facade as events
from apps.kernel.cli import get_os_username, report_errors_in_one_line
from apps.kernel.http import problems
from apps.orders.checkin.check_in import Outcome, scan, undo_last_check_in
from apps.orders.checkin.counts import count_entered
from apps.orders.checkin.scan_messages import build_scan_message
from apps.orders.checkin.scan_parser import read_scan

GOOD = (Outcome.WELCOME, Outcome.UNDONE)


class Command(BaseCommand):
    help = (
        "Checks tickets of an event in by their codes, given as arguments or one per line on standard input. Prints "
        "one line each; exit code 1 if any was refused. --undo undoes check-ins, --count prints counts by section."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument("event", metavar="EVENT", help="the event's id, as in its URL")
        parser.add_argument("codes", nargs="*", metavar="CODE", help="ticket codes; default: one per line of stdin")
        parser.add_argument("--undo", action="store_true", help="undo the check-ins of these codes")
        parser.add_argument(
            "--anyway", action="store_true", help="let in despite a warning: long before doors open, or after the event"
        )
        parser.add_argument("--count", action="store_true", help="print how many tickets are checked in, by section")
        parser.add_argument("--door", default="", metavar="NAME", help="recorded with each scan")
        parser.add_argument("--who", default="", metavar="NAME", help="recorded as the scanner; default: the OS user")

    def handle(self, *args: Any, **options: Any) -> None:
        event = events.get_event_for_command(options["event"])
        who = f"command:{options['who'] or get_os_username()}"[:120]
        codes: Iterable[str] = options["codes"]
        if not codes and not options["count"]:
            codes = sys.stdin
        refused = 0
        for code in codes:
            if code.strip():
                refused += not self._one(event, code.strip(), options, who)
        if options["count"]:
            self._count(event)
        if refused:
            raise CommandError(f"{event.slug}: {refused} refused")

    def _one(self, event: events.EventView, code: str, options: dict[str, Any], who: str) -> bool:
        payload = {"scan_id": uuid.uuid4().hex, "code": code, "door": options["door"], "anyway": options["anyway"]}
        try:
            sent = read_scan(payload)
            answer = undo_last_check_in(event, sent, who) if options["undo"] else scan(event, sent, who)
        except problems.Problem as problem:
            self.stdout.write(f"refused      {code[:80]!r}: {problem.detail}")
            return False
        shown = answer.ticket.label if answer.ticket is not None else f"{code[:80]!r}"
        self.stdout.write(f"{answer.outcome:<12} {shown}: {build_scan_message(event, answer).more}")
        return answer.outcome in GOOD

    def _count(self, event: events.EventView) -> None:
        counts = count_entered(event.id)
        for each in counts.sections:
            self.stdout.write(f"{each.entered:>7} of {each.expected:>7} in  {each.section}")
        self.stdout.write(f"{counts.entered:>7} of {counts.expected:>7} in  {event.name}")
