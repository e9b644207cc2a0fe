"""manage.py gatekeeper: admits visitors and runs maintenance; needs only PostgreSQL."""

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection

from apps.kernel import maintenance, secret_key
from apps.kernel.checks import whole_audit
from apps.kernel.observability import health_signals, metrics, operations_port
from apps.kernel.scheduler import picker
from apps.queue.lobby import draw
from apps.queue.room import gatekeeper


class Command(BaseCommand):
    help = (
        "Admits visitors from the waiting rooms, or stands by while another gatekeeper leads. Also draws the lobbies' "
        "numbers, picks scheduled tasks and runs the maintenance loop. Stops on SIGTERM or SIGINT."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        secret_key.require_safe_settings()
        health_signals.begin()  # While no worker runs, charges are made here.
        connection.ensure_connection()  # Fail at start without a database; later the loop survives its loss.
        metrics.begin("gatekeeper")
        operations_port.begin("gatekeeper")
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        self.stdout.write(f"gatekeeper: {', '.join(maintenance.jobs())}")
        # A long job (a sweep after an outage) must not delay admissions.
        ticker = threading.Thread(target=gatekeeper.loop, args=(stopping,), name="ticker", daemon=True)
        ticker.start()
        # A draw may take long, and must not delay them either.
        drawer = threading.Thread(target=draw.loop, args=(stopping,), name="drawer", daemon=True)
        drawer.start()
        # Takes minutes to hours, and must not delay the jobs either.
        auditor = threading.Thread(target=whole_audit.loop, args=(stopping,), name="auditor", daemon=True)
        auditor.start()
        # Scheduled tasks start within seconds of their minute, whatever the jobs do.
        tasks = threading.Thread(target=picker.loop, args=(stopping,), name="picker", daemon=True)
        tasks.start()
        maintenance.loop(stopping)
        ticker.join(timeout=2)
        drawer.join(timeout=2)
        auditor.join(timeout=2)
        tasks.join(timeout=2)
