"""manage.py preload_gate: an event's gate compared with the ledger and filled from it, before the on-sale."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.cli import report_errors_in_one_line
from apps.reservations.gate.ledger_check import SectionCheck
from apps.reservations.gate.preload import PreloadResult, preload

_OUTCOME_MESSAGES = {
    "away": "Redis is away: the gate is open to all, and the ledger decides",
    "out_of_memory": "Redis is out of memory: the gate is open to all, and the ledger decides",
    "refused": "the ledger differs from itself (see manage.py reconcile); the gate stays open to all",
    "differs": "Redis does not give back what was written; the gate stays open to all, and the ledger decides",
    "lapsing": "so much is past its deadline that nobody is refused yet; it is being ended, try again in a moment",
}


class Command(BaseCommand):
    help = (
        "Compares the ledger with itself, section by section, and fills the event's gate in Redis from it. The gate "
        "refuses what is sold out without asking PostgreSQL. Exit 1, and nobody is refused, where something differs "
        "that reservations do not explain. It happens by itself ten minutes before the on-sale, too."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument("event", metavar="EVENT", help="the event's id in addresses")

    def handle(self, *args: Any, **options: Any) -> None:
        slug = options["event"]
        try:
            event = events.get_event(slug)
        except events.EventNotFound:
            raise CommandError(f"no event {slug[:80]!r} has been published") from None
        now = clock.now()
        if event.is_over(now):
            raise CommandError(f"{slug} is over: nothing is sold any more")
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
    said = f"the gate said {before}, now {after}"
    parts = (
        f"{section.slug}: {section.capacity:,} = {section.free:,} free + {section.held:,} held + "
        f"{section.sold:,} sold + {section.blocked:,} blocked; {said}"
    )
    return parts if not section.differences else f"{section.slug}: {'; '.join(section.differences)}"
