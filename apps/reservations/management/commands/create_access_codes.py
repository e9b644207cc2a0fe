"""manage.py create_access_codes EVENT …: creates many random access codes and prints them as CSV."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from apps.events import facade as events
from apps.kernel.codes import generation
from apps.kernel.codes.abstract_code import USES_MAX
from apps.reservations.access_codes.generation import link_of
from apps.reservations.models import AccessCode


class Command(BaseCommand):
    help = (
        "Creates random access codes for an event, all or none, and prints them as CSV with a link each. Use the "
        "admin for a single code of your own wording, and `manage.py stock EVENT guard` to require a code for a "
        "section."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        generation.add_code_arguments(
            parser, uses="reservations with each code", of_one_buyer="reservations of one buyer with each code"
        )
        parser.add_argument(
            "--section",
            action="append",
            default=[],
            metavar="ID",
            help="the section it opens; repeatable; default: all",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        event = events.get_event_for_command(options["event"])
        ids = {section.slug: section.id for section in events.list_sections(event.id)}
        opened = generation.resolve_ids("--section", options["section"], ids)
        made = generation.make_from_options(AccessCode, "sections", opened, options, USES_MAX, event_id=event.id)
        generation.write_csv(self.stdout, made, link=lambda code: link_of(event.slug, code.code))
