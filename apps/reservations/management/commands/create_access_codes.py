"""`manage.py create_access_codes EVENT …`: many access codes, each another, as CSV on standard output."""

import csv
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import IntegrityError

from apps.events import facade as events
from apps.reservations.models import USES_MAX
from apps.reservations.staff.codes import link_of, make_codes
from ticketing.kernel.code_words import COUNT_MAX, PREFIX_LENGTH_MAX
from ticketing.kernel.command_line import code_prefix, limit, moment, note, number, refuse_in_one_line
from ticketing.kernel.transactions import violated_constraint

LIMIT_MAX = 1_000


class Command(BaseCommand):
    help = (
        "Creates access codes of an event, each another and none to be guessed, and writes them to standard output as "
        "CSV, each with a link that brings it along. All or none. One code with a word of your own is made in the "
        "admin; which sections need a code, `manage.py stock EVENT guard` says."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        refuse_in_one_line(parser)
        add = parser.add_argument
        add("event", metavar="EVENT", help="the event's id in addresses")
        add("--count", required=True, metavar="N", help=f"how many, at most {COUNT_MAX:,}")
        add("--prefix", default="", help=f"at most {PREFIX_LENGTH_MAX} characters before the drawn ones")
        add(
            "--section", action="append", default=[], metavar="ID", help="opens this one; may be repeated; default: all"
        )
        add("--uses", default="1", metavar="N", help="reservations by each code, or none for no limit; default: 1")
        add("--per-buyer", metavar="N", help="reservations of one buyer by each code; default: no limit")
        add("--valid-from", metavar="TIME", help="ISO 8601 with its offset, such as 2027-03-01T10:00+01:00")
        add("--valid-until", metavar="TIME", help="likewise")
        add("--note", default="", help="for staff only")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            event = events.get_event(options["event"])
        except events.EventNotFound as error:
            raise CommandError(f"{options['event'][:80]}: no published event of this name") from error
        ids = {section.slug: section.id for section in events.list_sections(event.id)}
        unknown = [slug for slug in options["section"] if slug not in ids]
        if unknown:
            raise CommandError(f"--section {unknown[0][:80]!r}: there are {', '.join(sorted(ids))}")
        try:
            made = make_codes(
                number(options["count"], "--count", COUNT_MAX),
                code_prefix(options["prefix"]),
                [ids[slug] for slug in dict.fromkeys(options["section"])],
                event_id=event.id,
                uses_max=limit(options["uses"], "--uses", USES_MAX),
                uses_per_buyer_max=limit(options["per_buyer"], "--per-buyer", LIMIT_MAX),
                valid_from=moment(options["valid_from"], "--valid-from"),
                valid_until=moment(options["valid_until"], "--valid-until"),
                note=note(options["note"]),
            )
        except IntegrityError as error:
            raise CommandError(f"nothing was created: {violated_constraint(error)}") from error
        write = csv.writer(self.stdout, lineterminator="\n").writerow
        write(["code", "uses", "valid_from", "valid_until", "link"])
        for code in made:
            times = [time.isoformat() if time else "" for time in (code.valid_from, code.valid_until)]
            write([code.code, code.uses_max or "", *times, link_of(event.slug, code.code)])
