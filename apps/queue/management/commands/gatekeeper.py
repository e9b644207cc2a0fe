"""manage.py gatekeeper: the process that needs nothing but PostgreSQL."""

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection

from apps.kernel import maintenance, secret_key
from apps.kernel.observability import health_signals, metrics
from apps.queue.lobby import draw
from apps.queue.room import gatekeeper


class Command(BaseCommand):
    help = (
        "Lets the waiting rooms' lines in while it leads, stands by while another does, draws the lobbies' numbers, "
        "and runs the maintenance loop; until it is told to stop (SIGTERM, SIGINT)."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        secret_key.require_key()
        health_signals.begin()  # Where the worker is away, charges are made here.
        connection.ensure_connection()  # Later the loop outlives it; a process that never reached it says so and ends.
        metrics.begin("gatekeeper")
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        self.stdout.write(f"gatekeeper: {', '.join(maintenance.jobs())}")
        # A job that takes long (a sweep after an outage) must not keep the line waiting.
        ticker = threading.Thread(target=gatekeeper.loop, args=(stopping,), name="ticker", daemon=True)
        ticker.start()
        # A lobby's draw takes as long as it takes.
        drawer = threading.Thread(target=draw.loop, args=(stopping,), name="drawer", daemon=True)
        drawer.start()
        maintenance.loop(stopping)
        ticker.join(timeout=2)
        drawer.join(timeout=2)
