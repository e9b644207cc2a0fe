"""manage.py deliver_outbox: delivers what waits, without a broker."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from ticketing.kernel import signing
from ticketing.kernel.outbox import facade


class Command(BaseCommand):
    help = "Delivers the outbox messages that are due, without Celery or Redis. Says how many."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--limit", type=int, default=1_000, help="at most this many messages")

    def handle(self, *args: Any, **options: Any) -> None:
        signing.require_key()
        delivered, limit = 0, options["limit"]
        while delivered < limit:
            count = facade.deliver(min(50, limit - delivered))
            delivered += count
            if count == 0:
                break
        self.stdout.write(f"outbox: {delivered} messages handed over")
