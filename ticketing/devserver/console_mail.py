"""The demo's email backend: prints the readable part of each message to the terminal."""

from django.core.mail import EmailMessage
from django.core.mail.backends.console import EmailBackend


class TextBackend(EmailBackend):
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
