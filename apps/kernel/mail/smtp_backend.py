"""Django's SMTP backend with connections that are kept: each thread sends its mails over one, one after the other.

A mail that an outbox handler sends has a Message-ID that depends on the outbox message alone. If the process ends after
the server has accepted the mail and before this is recorded, the mail is sent again, and mailboxes recognize it.
"""

import smtplib
import threading
import time
from collections.abc import Sequence
from typing import Any

from django.core.mail import EmailMessage
from django.core.mail.backends import smtp
from django.core.mail.utils import DNS_NAME

from apps.kernel.mail import domain_pauses
from apps.kernel.outbox import facade as outbox

MAILS_MAX = 50
"""Mails sent over one connection. Servers close connections after a number of mails, Postfix after 100."""
KEPT_SECONDS = 10.0
"""A connection that is not used for this long is closed before the next mail."""


class _Kept:
    """The open connection of a thread. It is closed when the thread ends."""

    def __init__(self, connection: smtplib.SMTP, of: tuple[Any, ...]) -> None:
        self.connection = connection
        self.of = of
        """The server and the user for whom it was opened."""
        self.mails_sent = 0
        self.used_at = time.monotonic()

    def is_usable(self, of: tuple[Any, ...]) -> bool:
        """Return whether the next mail may be sent over it. Asks the server, which may have closed it."""
        is_fresh = self.mails_sent < MAILS_MAX and time.monotonic() - self.used_at < KEPT_SECONDS
        if not is_fresh or self.of != of:
            return False
        try:
            return self.connection.noop()[0] == 250
        except (smtplib.SMTPException, OSError):
            return False

    def __del__(self) -> None:
        self.connection.close()


class _Thread(threading.local):
    kept: _Kept | None = None


_thread = _Thread()


class EmailBackend(smtp.EmailBackend):
    """Sends mails as Django's backend does, over the thread's connection. A handler of the outbox gets
    outbox.RetryLater, with nothing sent, while the domain of a recipient pauses."""

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        message = outbox.handled_message()
        if message is None:
            return self._send_over_kept(email_messages)
        for mail in email_messages:
            set_message_id(mail)
        domains = set().union(*map(domain_pauses.domains_of, email_messages))
        with domain_pauses.pauses.sending(domains, message.topic):
            return self._send_over_kept(email_messages)

    def _send_over_kept(self, email_messages: Sequence[EmailMessage]) -> int:
        of = (self.host, self.port, self.username, self.password, self.use_tls, self.use_ssl)
        kept, _thread.kept = _thread.kept, None
        if kept is not None and kept.is_usable(of):
            self.connection = kept.connection
        else:
            self.open()
            if self.connection is None:
                return 0  # `fail_silently` is set.
            kept = _Kept(self.connection, of)
        # After an error the state of the connection is unknown, and `kept` closes it.
        sent = super().send_messages(email_messages)
        kept.mails_sent += len(email_messages)
        kept.used_at = time.monotonic()
        self.connection, _thread.kept = None, kept
        return sent


def set_message_id(mail: EmailMessage) -> None:
    """Give the mail a Message-ID that is the same at every attempt of the outbox message that is being handled. A mail
    of no outbox message, or with a Message-ID, is left unchanged."""
    message = outbox.handled_message()
    if message is not None and "message-id" not in map(str.lower, mail.extra_headers):
        moment = int(message.created_at.timestamp() * 1_000_000)
        mail.extra_headers["Message-ID"] = f"<{moment}.{message.id}@{DNS_NAME}>"
