"""Recounts views from the log and compares them with the stored counts."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.events.interest import recount
from apps.events.interest.log import LOG_DAYS

SHOWN_MAX = 50


class Command(BaseCommand):
    help = (
        "Recounts the views of events from the log, hour by hour, and lists the minutes whose stored counts differ. "
        "Exits with 1 if there are any and --repair is not given."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--days", type=int, default=1, help=f"how many days back, at most {LOG_DAYS - 1}")
        parser.add_argument("--repair", action="store_true", help="store the counts of the log")

    def handle(self, *args: Any, **options: Any) -> None:
        days = options["days"]
        if not 0 <= days < LOG_DAYS:
            raise CommandError(f"--days is between 0 and {LOG_DAYS - 1}: the log has {LOG_DAYS} days")
        found = 0
        for first, until in recount.whole_hours(days):
            for one in recount.recount(first, until, repair=options["repair"]):
                found += 1
                if found <= SHOWN_MAX:
                    line = f"event {one.event_id} {one.minute:%Y-%m-%d %H:%M}: {one.stored}; by the log {one.logged}"
                    self.stdout.write(line)
        state = "repaired" if options["repair"] else "differing"
        self.stdout.write(f"{found} {state} minute{'' if found == 1 else 's'} in {days} day{'' if days == 1 else 's'}")
        if found and not options["repair"]:
            raise CommandError("The counts differ from the log; --repair stores those of the log.")
