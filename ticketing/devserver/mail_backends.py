"""Email backends for systems without a mail server: a folder, which the mailbox page shows, or the terminal."""

import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend
from django.core.mail.backends.console import EmailBackend as ConsoleBackend

MESSAGES_MAX = 500
"""Older files are deleted."""


class MailboxBackend(BaseEmailBackend):
    """Writes each message to a file of MAILBOX_FOLDER, named so that the newest sorts last."""

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        folder = Path(settings.MAILBOX_FOLDER)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for message in email_messages:
            name = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
            partial = folder / f".{name}"
            # Mails contain keys of orders and accounts.
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(message.message().as_bytes())
            partial.rename(folder / f"{name}.eml")
        for path in sorted(folder.glob("*.eml"))[:-MESSAGES_MAX]:
            path.unlink(missing_ok=True)
        return len(email_messages)


class TextBackend(ConsoleBackend):
    """Prints sender, recipients, subject and text, and only the type of other parts."""

    def write_message(self, message: EmailMessage) -> None:
        lines = [
            f"From: {message.from_email}",
            f"To: {', '.join(message.recipients())}",
            f"Subject: {message.subject}",
            "",
            str(message.body).rstrip(),
            "",
            *(f"[with {part.mimetype}]" for part in getattr(message, "alternatives", [])),
            *(f"[attached: {getattr(part, 'filename', None) or 'a file'}]" for part in message.attachments),
            "-" * 79,
        ]
        self.stream.write("\n".join(lines) + "\n")
