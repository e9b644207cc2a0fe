"""`manage.py cancel_event`: cancel an event, refund its orders and report the progress."""

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.events import facade as events
from apps.kernel.cli import get_os_username, report_errors_in_one_line
from apps.kernel.formatting import format_money
from apps.kernel.http import problems
from apps.orders.cancellation import event_cancellation
from apps.orders.errors import CancellationNotFound
from apps.orders.models import EventCancellation

STEP_SECONDS = 5.0


class Command(BaseCommand):
    help = (
        "Cancels an event: ends all holds, cancels or refunds every order in a transaction of its own, and mails every "
        "buyer. Can be killed and continued with --resume, and can run beside a live sale and the workers. Exit code 1 "
        "if an order failed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument("event", metavar="EVENT", help="the event's id, as in its URL")
        how = parser.add_mutually_exclusive_group(required=True)
        how.add_argument("--reason", default="", metavar="TEXT", help="the message to the buyers, for the mail")
        how.add_argument("--resume", action="store_true", help="continue a cancellation and retry its failed orders")

    def handle(self, *args: Any, **options: Any) -> None:
        event = events.get_event_for_command(options["event"])
        try:
            if options["resume"]:
                event_cancellation.resume(event.id)
            else:
                event_cancellation.begin(event.id, options["reason"], f"operator:{get_os_username()}")
        except (CancellationNotFound, problems.Invalid) as problem:
            raise CommandError(problem.detail) from problem

        def report_progress(counted: EventCancellation) -> None:
            self.stdout.write(
                f"{event.slug}: {counted.orders_done} of {counted.orders_total} orders processed, "
                f"{format_money(counted.refunded_minor, event.currency)} refunded; {counted.orders_failed} failed, "
                f"{counted.reservations_done} holds ended"
            )

        more = True
        while more:
            more, pause = event_cancellation.step(event.id, STEP_SECONDS, report_progress)
            time.sleep(pause.total_seconds() if more else 0)
        cancellation = EventCancellation.objects.get(event_id=event.id)
        if cancellation.failures.exists():
            raise CommandError(f"{cancellation.failures.count()} orders failed: retry them with --resume")
        self.stdout.write(f"{event.slug}: done")
