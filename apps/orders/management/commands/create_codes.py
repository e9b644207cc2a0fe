"""`manage.py create_codes EVENT …`: many promo codes, each another, as CSV on standard output."""

import csv
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import IntegrityError

from apps.events import facade as events
from apps.orders.code_making import make_codes
from apps.orders.models import PromoCode
from apps.orders.models.codes import AMOUNT_MINOR_MAX, USES_MAX
from ticketing.kernel.code_words import COUNT_MAX, PREFIX_LENGTH_MAX
from ticketing.kernel.command_line import code_prefix, limit, moment, note, number, refuse_in_one_line
from ticketing.kernel.transactions import violated_constraint

LIMIT_MAX = 1_000
_VALUES = {
    PromoCode.Kind.PERCENT: ("percent", "rate", 10_000),
    PromoCode.Kind.PER_TICKET: ("per_ticket", "amount_minor", AMOUNT_MINOR_MAX),
    PromoCode.Kind.PER_ORDER: ("per_order", "amount_minor", AMOUNT_MINOR_MAX),
}


class Command(BaseCommand):
    help = (
        "Creates promo codes of an event, each another and none to be guessed, and writes them to standard output as "
        "CSV. All or none. One code with a word of your own is made in the admin."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        refuse_in_one_line(parser)
        add = parser.add_argument
        add("event", metavar="EVENT", help="the event's id in addresses")
        add("--count", required=True, metavar="N", help=f"how many, at most {COUNT_MAX:,}")
        add("--prefix", default="", help=f"at most {PREFIX_LENGTH_MAX} characters before the drawn ones")
        off = parser.add_mutually_exclusive_group(required=True)
        off.add_argument("--percent", metavar="BP", help="off each ticket, in basis points: 1000 is 10 percent")
        off.add_argument("--per-ticket", metavar="MINOR", help="off each ticket, in the currency's smallest unit")
        off.add_argument("--per-order", metavar="MINOR", help="off the whole order, in the currency's smallest unit")
        add("--category", action="append", default=[], metavar="KEY", help="only tickets of this one; may be repeated")
        add("--tickets", metavar="N", help="at most so many tickets of an order, the dearest first; default: all")
        add("--uses", default="1", metavar="N", help="orders that may use each code, or none for no limit; default: 1")
        add("--per-buyer", metavar="N", help="orders of one buyer that may use each code; default: no limit")
        add("--valid-from", metavar="TIME", help="ISO 8601 with its offset, such as 2027-03-01T10:00+01:00")
        add("--valid-until", metavar="TIME", help="likewise")
        add("--note", default="", help="for staff only")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            event = events.get_event(options["event"])
        except events.EventNotFound as error:
            raise CommandError(f"{options['event'][:80]}: no published event of this name") from error
        values = self._values(options) | {"event_id": event.id}
        ids = {category.key: category.id for category in events.list_categories(event.id)}
        unknown = [key for key in options["category"] if key not in ids]
        if unknown:
            raise CommandError(f"--category {unknown[0][:80]!r}: there are {', '.join(sorted(ids))}")
        try:
            made = make_codes(
                number(options["count"], "--count", COUNT_MAX),
                code_prefix(options["prefix"]),
                [ids[key] for key in dict.fromkeys(options["category"])],
                **values,
            )
        except IntegrityError as error:
            raise CommandError(f"nothing was created: {violated_constraint(error)}") from error
        write = csv.writer(self.stdout, lineterminator="\n").writerow
        write(["code", "uses", "valid_from", "valid_until"])
        for code in made:
            times = [time.isoformat() if time else "" for time in (code.valid_from, code.valid_until)]
            write([code.code, code.uses_max or "", *times])

    def _values(self, options: dict[str, Any]) -> dict[str, Any]:
        (kind,) = [kind for kind, (option, _, _) in _VALUES.items() if options[option] is not None]
        option, field, most = _VALUES[kind]
        return {
            "kind": kind,
            field: number(options[option], f"--{option.replace('_', '-')}", most),
            "places_max": limit(options["tickets"], "--tickets", LIMIT_MAX),
            "uses_max": limit(options["uses"], "--uses", USES_MAX),
            "uses_per_buyer_max": limit(options["per_buyer"], "--per-buyer", LIMIT_MAX),
            "valid_from": moment(options["valid_from"], "--valid-from"),
            "valid_until": moment(options["valid_until"], "--valid-until"),
            "note": note(options["note"]),
        }
