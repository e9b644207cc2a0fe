"""`manage.py check_event`: the checklist of a draft, as on the page that publishes it."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.events.checklist.draft import read_draft
from apps.events.checklist.findings import list_findings
from apps.events.checklist.registry import Level
from apps.events.models import Event
from apps.kernel import clock
from apps.kernel.cli import report_errors_in_one_line


class Command(BaseCommand):
    help = "Lists everything that is missing in a draft or unsafe about it. Exits with 1 if it cannot be published."

    def add_arguments(self, parser: CommandParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument("slug", metavar="SLUG", help="the event's id in URLs")

    def handle(self, *args: Any, **options: Any) -> None:
        slug = options["slug"]
        found = Event.objects.select_related("venue", "organizer", "plan")
        event = found.filter(slug=slug).first() if slug.isprintable() else None
        if event is None:
            raise CommandError(f"{slug[:80]!r}: there is no event with this slug")
        if event.status != Event.Status.DRAFT:
            self.stdout.write(f"{slug}: already published")
            return
        findings = list_findings(read_draft(event), clock.now())
        for finding in findings:
            link = f" {settings.SITE_URL}{finding.link}" if finding.link else ""
            self.stdout.write(f"{finding.level}: {finding.text}{link}")
        missing = sum(finding.level == Level.MISSING for finding in findings)
        if missing:
            raise CommandError(f"{slug}: cannot be published, {missing} missing")
        self.stdout.write(f"{slug}: can be published; repeat create_event without --draft, or use the admin")
