"""Django's SMTP backend with connections that are kept: each thread sends its mails over one, one after the other.

A mail that an outbox handler sends has a Message-ID that depends on the outbox message alone. If the process ends after
the server has accepted the mail and before this is recorded, the mail is sent again, and mailboxes recognize it.

A server that looks up a recipient's domain before it answers RCPT has little time for that at the first attempt of a
mail to a new domain. At that point it has not got the mail, so none arrives twice.
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
from apps.kernel.mail.new_domains import sender_of
from apps.kernel.outbox import facade as outbox

MAILS_MAX = 50
"""Mails sent over one connection. Servers close connections after a number of mails, Postfix after 100."""
KEPT_SECONDS = 10.0
"""A connection that is not used for this long is closed before the next mail."""
NEW_RECIPIENT_SECONDS = domain_pauses.SLOW_SECONDS
"""For the answer to RCPT at the first attempt of a mail to a new domain; later attempts have EMAIL_TIMEOUT."""
NEW_RECIPIENT_RETRY_SECONDS = 300.0
NEW_RECIPIENT_ATTEMPTS_MAX = 4


class RecipientTimedOut(smtplib.SMTPServerDisconnected):
    """The server has not answered RCPT in time. Nothing was sent."""


class _TimedRecipients(smtplib.SMTP):
    """A connection with a timeout of its own for the answers to RCPT."""

    recipient_seconds: float | None = None
    """None: the connection's timeout."""

    def rcpt(self, recip: str, options: Sequence[str] = ()) -> tuple[int, bytes]:
        assert self.sock is not None
        before = self.sock.gettimeout()
        if self.recipient_seconds is not None:
            self.sock.settimeout(self.recipient_seconds)
        try:
            answer = super().rcpt(recip, options)
        except smtplib.SMTPServerDisconnected as error:
            if isinstance(error.__context__, TimeoutError):
                raise RecipientTimedOut("the server has not answered RCPT") from error
            raise
        self.sock.settimeout(before)
        return answer


class _TimedRecipientsSSL(_TimedRecipients, smtplib.SMTP_SSL):
    pass


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
    outbox.RetryLater, with nothing sent, while the domain of a recipient pauses, and outbox.NotDelivered if the server
    refuses the mail or does not answer."""

    @property
    def connection_class(self) -> type[smtplib.SMTP]:
        return _TimedRecipientsSSL if self.use_ssl else _TimedRecipients

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        message = outbox.handled_message()
        if message is None:
            return self._send_over_kept(email_messages, None)
        for mail in email_messages:
            set_message_id(mail)
        domains = set().union(*map(domain_pauses.domains_of, email_messages))
        sender = sender_of(message)
        are_new = False
        try:
            with domain_pauses.pauses.sending(domains, sender) as are_new:
                is_timed = are_new and not sender.is_repeat
                return self._send_over_kept(email_messages, NEW_RECIPIENT_SECONDS if is_timed else None)
        except (smtplib.SMTPException, OSError) as error:
            raise _not_delivered(error, are_new=are_new) from error

    def _send_over_kept(self, email_messages: Sequence[EmailMessage], recipient_seconds: float | None) -> int:
        of = (self.host, self.port, self.username, self.password, self.use_tls, self.use_ssl)
        kept, _thread.kept = _thread.kept, None
        if kept is not None and kept.is_usable(of):
            self.connection = kept.connection
        else:
            self.open()
            if self.connection is None:
                return 0  # `fail_silently` is set.
            kept = _Kept(self.connection, of)
        assert isinstance(self.connection, _TimedRecipients)
        self.connection.recipient_seconds = recipient_seconds
        # After an error the state of the connection is unknown, and `kept` closes it.
        sent = super().send_messages(email_messages)
        kept.mails_sent += len(email_messages)
        kept.used_at = time.monotonic()
        self.connection, _thread.kept = None, kept
        return sent


def _not_delivered(error: Exception, *, are_new: bool) -> outbox.NotDelivered:
    """Return the failure of the attempt. A mail to a new domain for which the server has not answered is repeated
    late, and few times: anyone can cause such mails."""
    why = f"{type(error).__name__}: {error}"
    if are_new and isinstance(error, RecipientTimedOut):
        return outbox.NotDelivered(
            why, retry_seconds=NEW_RECIPIENT_RETRY_SECONDS, attempts_max=NEW_RECIPIENT_ATTEMPTS_MAX
        )
    return outbox.NotDelivered(why)


def set_message_id(mail: EmailMessage) -> None:
    """Give the mail a Message-ID that is the same at every attempt of the outbox message that is being handled. A mail
    of no outbox message, or with a Message-ID, is left unchanged."""
    message = outbox.handled_message()
    if message is not None and "message-id" not in map(str.lower, mail.extra_headers):
        moment = int(message.created_at.timestamp() * 1_000_000)
        mail.extra_headers["Message-ID"] = f"<{moment}.{message.id}@{DNS_NAME}>"
