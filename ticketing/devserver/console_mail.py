"""Mail as the demo shows it: what a person would read, in the terminal, without the parts only a mail program reads."""

from django.core.mail import EmailMessage
from django.core.mail.backends.console import EmailBackend


class TextBackend(EmailBackend):
    """Prints sender, recipients, subject and the text; of every other part only what it is."""

    def write_message(self, message: EmailMessage) -> None:
        lines = [
            f"From: {message.from_email}",
            f"To: {', '.join(message.recipients())}",
            f"Subject: {message.subject}",
            "",
            str(message.body).rstrip(),
            "",
            *(f"[with {part.mimetype}]" for part in getattr(message, "alternatives", [])),
            *(f"[attached: {_name(part)}]" for part in message.attachments),
            "-" * 79,
        ]
        self.stream.write("\n".join(lines) + "\n")


def _name(part: object) -> str:
    return str(getattr(part, "filename", None) or "a file")
