"""manage.py relay: counts free tickets of the events on sale, publishes them, and expires overdue reservations."""

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection

from apps.kernel import secret_key
from apps.kernel.observability import metrics, operations_port
from apps.reservations.counts import relay
from apps.reservations.lifecycle import redis_deadlines


class Command(BaseCommand):
    help = (
        "Recounts the changed sections of the events on sale several times a second, and writes the free counts to "
        "Redis and, once a second, to PostgreSQL. Expires reservations whose deadline in Redis has passed."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        secret_key.require_safe_settings()
        connection.ensure_connection()  # Fail at start without a database; later the loop survives its loss.
        metrics.begin("relay")
        operations_port.begin("relay")
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        self.stdout.write("relay: counting")
        # A long recount must not delay the expiry of reservations.
        watcher = threading.Thread(target=redis_deadlines.loop, args=(stopping,), name="deadlines", daemon=True)
        watcher.start()
        relay.loop(stopping)
        watcher.join(timeout=2)
