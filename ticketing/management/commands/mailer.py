"""manage.py mailer: delivers the outbox messages that make mails and PDFs, at a low priority; needs only PostgreSQL."""

import signal
import threading
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connection

from apps.kernel import secret_key
from apps.kernel.observability import heartbeats, metrics, operations_port
from apps.kernel.outbox.delivery import Delivery
from apps.kernel.outbox.topic_groups import TopicGroup
from ticketing import startup

POLL_SECONDS = 1.0
"""The longest time until a new message is found. While it finds messages, it continues without a pause."""
ROUND_SECONDS_MAX = 60.0
END_SECONDS_MAX = 3.0
"""Longest wait for mails in progress at the end. Unfinished ones are sent again when their claims expire."""


class Command(BaseCommand):
    help = (
        "Sends the mails of the outbox and renders their PDFs, at a lower priority than all other processes, so that"
        " payments and tickets never wait for mail. Stops on SIGTERM or SIGINT."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        secret_key.require_safe_settings()
        connection.ensure_connection()  # Fail at start without a database; later the loop survives its loss.
        connection.close()
        startup.lower_priority(settings.MAILER_NICENESS)
        metrics.begin("mailer")
        operations_port.begin("mailer")
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        self.stdout.write("mailer: sending")
        delivery = Delivery(settings.MAIL_DELIVERERS, groups=[TopicGroup.MAIL])
        while not stopping.is_set():
            heartbeats.beat("mailer", ROUND_SECONDS_MAX)
            delivery.wake()
            stopping.wait(POLL_SECONDS)
        delivery.close(END_SECONDS_MAX)
