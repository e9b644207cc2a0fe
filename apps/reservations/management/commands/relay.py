"""manage.py relay: counts the events on sale, publishes what is free, and releases what is due in Redis."""

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection

from apps.kernel import secret_key
from apps.kernel.observability import metrics
from apps.reservations.counts import relay
from apps.reservations.lifecycle import redis_deadlines


class Command(BaseCommand):
    help = (
        "Counts what has moved in the events on sale, several times a second; frames of what is free go to Redis, and "
        "each second to PostgreSQL. Releases reservations as their deadlines, kept in Redis, pass."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        secret_key.require_key()
        connection.ensure_connection()  # Later the loop outlives it; a process that never reached it says so and ends.
        metrics.begin("relay")
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        self.stdout.write("relay: counting what moves")
        # A recount that takes long must not keep what has lapsed from being sold.
        watcher = threading.Thread(target=redis_deadlines.loop, args=(stopping,), name="deadlines", daemon=True)
        watcher.start()
        relay.loop(stopping)
        watcher.join(timeout=2)
