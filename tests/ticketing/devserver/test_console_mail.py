"""Email in the demo's terminal."""

from io import StringIO

from django.core.mail import EmailMultiAlternatives

from ticketing.devserver.console_mail import TextBackend


def test_an_email_shows_its_text_and_only_names_its_other_parts() -> None:
    message = EmailMultiAlternatives("Your tickets", "Row A, seat 4", "shop@example.org", ["ada@example.org"])
    message.attach_alternative("<table>markup</table>", "text/html")
    message.attach("tickets.pdf", b"%PDF", "application/pdf")
    stream = StringIO()
    assert TextBackend(stream=stream).send_messages([message]) == 1
    shown = stream.getvalue()
    assert "To: ada@example.org" in shown
    assert "Subject: Your tickets" in shown
    assert "Row A, seat 4" in shown
    assert "[attached: tickets.pdf]" in shown
    assert "<table>" not in shown
