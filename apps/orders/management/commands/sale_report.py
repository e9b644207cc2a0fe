"""`manage.py sale_report EVENT …`: allows, publishes and shows the public report of an event's sale."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse

from apps.events import facade as events
from apps.kernel.cli import add_event_actions, get_os_username
from apps.kernel.db import transactions
from apps.kernel.formatting import LOG_MINUTE, format_utc
from apps.orders.models import ReportVersion
from apps.orders.reports.publication import ReportRefused, publish_report


class Command(BaseCommand):
    help = (
        "Publishes the report of an event's sale: people, waits, admissions, stock, shares, acts of operators, audit "
        "and proof, as signed figures without names. The event must allow it (enable). A published version never "
        "changes; publishing again adds a version."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        act = add_event_actions(parser)
        act("show", "print whether a report is allowed, and the published versions", changes=False)
        act("enable", "allow a report of this event's sale", changes=False)
        act("disable", "do not allow it; published versions are no longer served", changes=False)
        act("publish", "compute, sign and publish the report, once the sale is over", changes=False)

    def handle(self, *args: Any, **options: Any) -> None:
        event = events.get_event_for_command(options["event"])
        act = options["act"]
        if act in ("enable", "disable"):
            with transactions.write():
                changed = events.set_report(event.id, publishes=act == "enable")
            state = "a report is allowed" if act == "enable" else "no report is allowed"
            self.stdout.write(f"{event.slug}: {state}{'' if changed else ', unchanged'}")
        elif act == "publish":
            try:
                report = publish_report(event, who=get_os_username())
            except ReportRefused as refused:
                raise CommandError(f"{event.slug}: {refused}") from refused
            address = f"{settings.SITE_URL}{reverse('orders:report', args=[event.slug])}"
            self.stdout.write(f"{event.slug}: version {report.version} is published, {address}")
        else:
            self.stdout.write(_summary(event))


def _summary(event: events.EventView) -> str:
    allowed = "a report is allowed" if events.publishes_report(event.id) else "no report is allowed"
    versions = [
        f"  version {one.version}  {format_utc(one.published_at, LOG_MINUTE)} UTC  by {one.published_by}, "
        f"signed with key {one.key_id}"
        for one in ReportVersion.objects.filter(event_id=event.id).order_by("-version")
    ]
    return "\n".join([f"{event.slug}: {allowed}", *(versions or ["  nothing is published"])])
