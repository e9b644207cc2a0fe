"""manage.py deliver_outbox: delivers due messages without a broker."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connection

from apps.kernel import secret_key
from apps.kernel.outbox.delivery import Delivery

END_SECONDS_MAX = 3.0
"""Longest wait for messages in progress after an interrupt."""
INTERRUPTED = 130


class Command(BaseCommand):
    help = (
        "Delivers due outbox messages concurrently, without Celery or Redis, until none is due, and prints how many."
        " A stuck message delays the end of the command, but no other message."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--limit", type=int, default=1_000, help="at most this many messages")

    def handle(self, *args: Any, **options: Any) -> None:
        secret_key.require_safe_settings()
        # If PostgreSQL is unavailable, fail here with a one-line error.
        connection.ensure_connection()
        delivery = Delivery(settings.OUTBOX_DELIVERERS, messages_max=max(0, options["limit"]))
        delivery.wake()
        is_interrupted = False
        try:
            delivery.wait(None)
        except KeyboardInterrupt:
            is_interrupted = True
        delivery.close(END_SECONDS_MAX)
        self.stdout.write(f"outbox: {delivery.handed_over_count} messages handed over")
        if is_interrupted:
            if left := delivery.under_way_count:
                self.stdout.write(f"{left} still in progress: they are delivered again after their claims expire")
            sys.exit(INTERRUPTED)
        if delivery.failure is not None:
            raise delivery.failure
