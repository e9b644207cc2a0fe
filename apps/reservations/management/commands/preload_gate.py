"""manage.py preload_gate: fills an event's gate from the ledger before the on-sale, and compares both."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.cli import report_errors_in_one_line
from apps.reservations.gate.ledger_check import SectionCheck
from apps.reservations.gate.preload import PreloadResult, preload

_OUTCOME_MESSAGES = {
    "away": "Redis is unavailable: the gate refuses nothing, and the ledger decides",
    "out_of_memory": "Redis is out of memory: the gate refuses nothing, and the ledger decides",
    "refused": "the ledger is inconsistent (see manage.py reconcile); the gate refuses nothing",
    "differs": "Redis does not return what was written; the gate refuses nothing, and the ledger decides",
    "lapsing": "too many reservations are overdue, so the gate refuses nothing; they are being expired, try again soon",
}


class Command(BaseCommand):
    help = (
        "Checks the ledger for consistency, section by section, and fills the event's gate in Redis from it. The gate "
        "refuses requests for sold-out sections without asking PostgreSQL. If reservations do not explain a "
        "difference, the command exits with 1 and the gate refuses nothing. The same happens automatically ten "
        "minutes before the on-sale."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument("event", metavar="EVENT", help="the event's slug")

    def handle(self, *args: Any, **options: Any) -> None:
        slug = options["event"]
        event, now = events.get_event_for_command(slug), clock.now()
        if event.is_over(now):
            raise CommandError(f"{slug} is over: sales have ended")
        done = preload(event.id)
        for section in done.sections:
            self.stdout.write(_line(section, done))
        if done.differences and done.outcome == "differs":
            for line in done.differences:
                self.stdout.write(line)
        if not done.is_open:
            raise CommandError(
                _OUTCOME_MESSAGES.get(done.outcome, f"the gate could not be opened ({done.outcome}): try again")
            )
        when = event.policy.opens_at
        later = f", reset every second from ten minutes before {clock.iso(when)} on" if when > now else ""
        self.stdout.write(f"{slug}: the gate is filled{later}")


def _line(section: SectionCheck, done: PreloadResult) -> str:
    before = "nothing" if done.before is None else f"{done.before.get(section.section_id, 0):,}"
    after = "nothing" if done.after is None else f"{done.after.get(section.section_id, 0):,}"
    counts = f"gate before: {before}, now: {after}"
    parts = (
        f"{section.slug}: {section.capacity:,} = {section.free:,} free + {section.held:,} held + "
        f"{section.sold:,} sold + {section.blocked:,} blocked; {counts}"
    )
    return parts if not section.differences else f"{section.slug}: {'; '.join(section.differences)}"
