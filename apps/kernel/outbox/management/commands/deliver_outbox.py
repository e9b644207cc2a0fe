"""manage.py deliver_outbox: delivers what waits, without a broker."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connection

from apps.kernel import secret_key
from apps.kernel.outbox.delivery import Delivery

END_SECONDS_MAX = 3.0
"""Who interrupts the command waits so long for what is under way."""
INTERRUPTED = 130


class Command(BaseCommand):
    help = (
        "Delivers the outbox messages that are due, many at once, without Celery or Redis, until none is due any more."
        " Says how many. One that is stuck delays no other, only the command's end."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--limit", type=int, default=1_000, help="at most this many messages")

    def handle(self, *args: Any, **options: Any) -> None:
        secret_key.require_key()
        # A ledger that is away is told by this thread, in one line.
        connection.ensure_connection()
        crew = Delivery(settings.OUTBOX_DELIVERERS, messages_max=max(0, options["limit"]))
        crew.wake()
        is_interrupted = False
        try:
            crew.wait(None)
        except KeyboardInterrupt:
            is_interrupted = True
        crew.close(END_SECONDS_MAX)
        self.stdout.write(f"outbox: {crew.handed_over_count} messages handed over")
        if is_interrupted:
            if left := crew.under_way_count:
                self.stdout.write(f"{left} still under way: delivered again once their claims have run out")
            sys.exit(INTERRUPTED)
        if crew.failure is not None:
            raise crew.failure
