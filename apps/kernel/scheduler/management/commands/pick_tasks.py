"""manage.py pick_tasks: a further picker, beside those of the gatekeepers."""

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import connection

from apps.kernel import secret_key
from apps.kernel.observability import metrics
from apps.kernel.scheduler import picker


class Command(BaseCommand):
    help = (
        "Picks scheduled tasks two minutes ahead and hands due runs to executors, as each gatekeeper does. "
        "Stops on SIGTERM or SIGINT."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="Run one round, print its rows, and end.")

    def handle(self, *args: Any, **options: Any) -> None:
        secret_key.require_safe_settings()
        connection.ensure_connection()
        if options["once"]:
            self.stdout.write(f"{picker.run_once()} rows")
            return
        metrics.begin("picker")
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        picker.loop(stopping)
