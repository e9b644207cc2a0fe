"""Mails over kept SMTP connections, to a server that this test runs."""

import socketserver
import threading
from collections.abc import Iterator
from datetime import timedelta
from email import message_from_bytes
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings as settings_of_django
from django.core import mail

from apps.kernel import clock
from apps.kernel.mail import domain_pauses, smtp_backend
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage


class _Session(socketserver.StreamRequestHandler):
    """One connection: accepts mails, and refuses recipients whose name is "north"."""

    server: "MailServer"

    def handle(self) -> None:
        self.server.connections += 1
        self.answer("220 ready")
        while line := self.rfile.readline().decode().strip():
            verb = line.upper().split()[0]
            if verb == "DATA":
                self.answer("354 go on")
                received = b"".join(iter(self.rfile.readline, b".\r\n"))
                self.server.mails.append(message_from_bytes(received))
                # Read before the answer: the test may change it as soon as it has that.
                closes = self.server.closes_after_each
                self.answer("250 accepted")
                if closes:
                    return
            elif verb == "RCPT" and "@silent." in line:
                self.server.asked.append(line)
                self.server.is_over.wait(10)
                return
            elif verb == "RCPT" and "<north@" in line:
                self.answer("550 no such mailbox")
            else:
                self.answer("250 ok")

    def answer(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


class MailServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    connections = 0
    closes_after_each = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[Any] = []
        self.asked: list[str] = []
        self.is_over = threading.Event()


@pytest.fixture
def server(settings: Any) -> Iterator[MailServer]:
    with MailServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        settings.EMAIL_BACKEND = "apps.kernel.mail.smtp_backend.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = server.server_address
        yield server
        server.is_over.set()
        smtp_backend._thread.kept = None
        server.shutdown()
        thread.join()


def send(to: str = "ann@example.org") -> int:
    return mail.EmailMessage("Tickets", "Here they are.", to=[to]).send()


def test_the_mails_of_a_thread_share_a_connection_and_threads_share_none(server: MailServer) -> None:
    assert [send() for _ in range(3)] == [1, 1, 1]
    assert (len(server.mails), server.connections) == (3, 1)
    other = threading.Thread(target=send)
    other.start()
    other.join()
    assert (len(server.mails), server.connections) == (4, 2)


def test_control_djangos_backend_opens_a_connection_for_each_mail(server: MailServer, settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    send(), send()
    assert server.connections == 2


def test_a_refused_recipient_ends_one_mail_and_no_other(server: MailServer) -> None:
    send()
    with pytest.raises(smtp_backend.smtplib.SMTPRecipientsRefused):
        send("north@example.org")
    assert send() == 1
    assert [one["To"] for one in server.mails] == ["ann@example.org"] * 2


def test_a_connection_is_opened_anew_if_the_server_has_closed_it_or_it_is_old_or_used_up(
    server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.closes_after_each = True
    send(), send()
    assert server.connections == 2
    server.closes_after_each = False
    send(), send()
    assert server.connections == 3
    kept = smtp_backend._thread.kept
    assert kept is not None
    kept.used_at -= smtp_backend.KEPT_SECONDS
    send()
    assert server.connections == 4
    monkeypatch.setattr(smtp_backend, "MAILS_MAX", 1)
    send()
    assert server.connections == 5


@pytest.mark.django_db(transaction=True)
def test_a_mail_has_the_same_message_id_at_each_attempt(server: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server accepts the mail, and the handler fails before it records that."""
    topic, attempts = f"test.{uuid4()}", 0

    def handler(message: outbox.Message) -> None:
        nonlocal attempts
        attempts += 1
        send()
        if attempts == 1:
            raise outbox.NotDelivered("the process was killed")

    monkeypatch.setattr(outbox, "_topics", {})
    outbox.register_handler(topic, handler, backoff=lambda attempts: timedelta())
    with outbox.transactions.write():
        outbox.publish(topic, "one", {})
        outbox.publish(topic, "two", {})
    outbox.deliver(), outbox.deliver()
    ids = [one["Message-ID"] for one in server.mails]
    assert (len(ids), len(set(ids))) == (3, 2), "the first mail twice"
    assert send() == 1
    assert server.mails[-1]["Message-ID"] not in ids


@pytest.mark.django_db(transaction=True)
def test_a_failed_mail_is_logged_without_a_traceback_and_one_to_a_silent_new_domain_is_repeated_late(
    server: MailServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(smtp_backend, "NEW_RECIPIENT_SECONDS", 0.1)
    monkeypatch.setattr(domain_pauses, "pauses", domain_pauses.DomainPauses())
    monkeypatch.setattr(outbox, "_topics", {})
    topic = f"test.{uuid4()}"
    outbox.register_handler(topic, lambda message: send(message.body["to"]) and None)
    with outbox.transactions.write():
        for to in ("ann@silent.example", "north@example.org", "ann@example.org"):
            outbox.publish(topic, to, {"to": to})
    outbox.deliver()
    assert [one["To"] for one in server.mails] == ["ann@example.org"]
    assert [bool(one.exc_info) for one in caplog.records if "failed, attempt 1" in one.message] == [False, False]
    waiting = {message.key: message for message in OutboxMessage.objects.filter(topic=topic, done_at=None)}
    delays = {key: (one.available_at - one.claimed_at).total_seconds() for key, one in waiting.items()}
    assert delays["north@example.org"] < 60 < smtp_backend.NEW_RECIPIENT_RETRY_SECONDS <= delays["ann@silent.example"]
    OutboxMessage.objects.filter(pk=waiting["ann@silent.example"].pk).update(
        attempts=smtp_backend.NEW_RECIPIENT_ATTEMPTS_MAX - 1, available_at=clock.now()
    )
    monkeypatch.setattr(settings_of_django, "EMAIL_TIMEOUT", 0.1)
    smtp_backend._thread.kept = None
    outbox.deliver()
    waiting["ann@silent.example"].refresh_from_db()
    assert waiting["ann@silent.example"].dead_at is not None, "it was the last attempt"
