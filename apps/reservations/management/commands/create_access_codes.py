"""`manage.py create_access_codes EVENT …`: many access codes, each another, as CSV on standard output."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.events import facade as events
from apps.kernel.codes import generation
from apps.kernel.codes.abstract_code import USES_MAX
from apps.reservations.access_codes.generation import link_of
from apps.reservations.models import AccessCode


class Command(BaseCommand):
    help = (
        "Creates access codes of an event, each another and none to be guessed, and writes them to standard output as "
        "CSV, each with a link that brings it along. All or none. One code with a word of your own is made in the "
        "admin; which sections need a code, `manage.py stock EVENT guard` says."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        generation.add_code_arguments(
            parser, uses="reservations by each code", of_one_buyer="reservations of one buyer by each code"
        )
        parser.add_argument(
            "--section", action="append", default=[], metavar="ID", help="opens this one; may be repeated; default: all"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            event = events.get_event(options["event"])
        except events.EventNotFound as error:
            raise CommandError(f"{options['event'][:80]}: no published event of this name") from error
        ids = {section.slug: section.id for section in events.list_sections(event.id)}
        opened = generation.resolve_ids("--section", options["section"], ids)
        made = generation.make_from_options(AccessCode, "sections", opened, options, USES_MAX, event_id=event.id)
        generation.write_csv(self.stdout, made, link=lambda code: link_of(event.slug, code.code))
