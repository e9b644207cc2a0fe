"""`manage.py create_codes EVENT …`: create many different promo codes and print them as CSV."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from apps.events import facade as events
from apps.kernel.cli import parse_bounded_integer, parse_limit
from apps.kernel.codes import generation
from apps.kernel.codes.abstract_code import USES_MAX
from apps.kernel.codes.generation import LIMIT_MAX
from apps.orders.models import PromoCode
from apps.orders.models.codes import AMOUNT_MINOR_MAX

_VALUES = {
    PromoCode.Kind.PERCENT: ("percent", "rate", 10_000),
    PromoCode.Kind.PER_TICKET: ("per_ticket", "amount_minor", AMOUNT_MINOR_MAX),
    PromoCode.Kind.PER_ORDER: ("per_order", "amount_minor", AMOUNT_MINOR_MAX),
}


class Command(BaseCommand):
    help = (
        "Creates unique, unguessable promo codes for an event, all or none, and writes them to standard output as CSV. "
        "To create a single code with a word of your own, use the admin."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        generation.add_code_arguments(
            parser,
            uses="orders that may use each code",
            of_one_buyer="orders of one buyer that may use each code",
        )
        off = parser.add_mutually_exclusive_group(required=True)
        off.add_argument("--percent", metavar="BP", help="off each ticket, in basis points: 1000 is 10 percent")
        off.add_argument("--per-ticket", metavar="MINOR", help="off each ticket, in the currency's smallest unit")
        off.add_argument("--per-order", metavar="MINOR", help="off the whole order, in the currency's smallest unit")
        add = parser.add_argument
        add(
            "--category",
            action="append",
            default=[],
            metavar="KEY",
            help="only tickets of this category; can be repeated",
        )
        add("--tickets", metavar="N", help="at most N tickets of an order, the most expensive first; default: all")

    def handle(self, *args: Any, **options: Any) -> None:
        event = events.get_event_for_command(options["event"])
        ids = {category.key: category.id for category in events.list_categories(event.id)}
        categories = generation.resolve_ids("--category", options["category"], ids)
        (kind,) = [kind for kind, (option, _, _) in _VALUES.items() if options[option] is not None]
        option, field, most = _VALUES[kind]
        values = {
            "event_id": event.id,
            "kind": kind,
            field: parse_bounded_integer(options[option], f"--{option.replace('_', '-')}", most),
            "places_max": parse_limit(options["tickets"], "--tickets", LIMIT_MAX),
        }
        made = generation.make_from_options(PromoCode, "categories", categories, options, USES_MAX, **values)
        generation.write_csv(self.stdout, made)
