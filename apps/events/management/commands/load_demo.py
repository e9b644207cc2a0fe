"""`manage.py load_demo`: create the demo events; a second run changes nothing."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from apps.events.demo.load import load_demo
from apps.events.demo.season import load_season
from apps.events.publication import EventRefused


class Command(BaseCommand):
    help = "Creates the demo events: a theatre, an arena and a festival rush. Existing ones are left unchanged."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--season", action="store_true", help="add 300 small events in a dozen cities")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            loaded = load_demo()
            season_count = load_season() if options["season"] else 0
        except EventRefused as error:
            raise CommandError(str(error)) from error
        started = [event.name for event in loaded if event.has_started]
        if started:
            self.stdout.write(f"Already over: {', '.join(started)}. `make reset` starts again with new dates.")
        if options["verbosity"] == 0:
            return
        for event in loaded:
            address = f"{settings.SITE_URL}{reverse('events:event', args=[event.slug])}"
            self.stdout.write(f"{event.name}: {'published' if event.is_new else 'already exists'}, {address}")
        if season_count:
            self.stdout.write(f"{season_count} events of the season: published")
