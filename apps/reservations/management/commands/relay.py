"""manage.py relay: recounts the events on sale and publishes what is free."""

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection

from apps.reservations import relay
from ticketing.kernel import signing


class Command(BaseCommand):
    help = "Recounts the events on sale every second and stores the last frame in Redis and PostgreSQL."

    def handle(self, *args: Any, **options: Any) -> None:
        signing.require_key()
        connection.ensure_connection()  # Later the loop outlives it; a process that never reached it says so and ends.
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        self.stdout.write("relay: recounting every second")
        relay.loop(stopping)
