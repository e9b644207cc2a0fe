"""Email without a mail server: the terminal, and the demo's mailbox with its pages."""

from io import StringIO
from pathlib import Path

import pytest
from django.core.mail import EmailMultiAlternatives
from django.test import Client

from ticketing.devserver import mail_backends
from ticketing.devserver.mail_backends import MailboxBackend, TextBackend


def _message(subject: str = "Your tickets", to: str = "ada@example.org") -> EmailMultiAlternatives:
    message = EmailMultiAlternatives(subject, "Row A, seat 4: http://127.0.0.1/orders/7", "shop@example.org", [to])
    message.attach_alternative("<table><script>alert(1)</script>markup</table>", "text/html")
    message.attach("tickets ő.pdf", b"%PDF", "application/pdf")
    message.attach("page.html", "<script>alert(1)</script>", "text/html")
    return message


@pytest.fixture
def folder(tmp_path: Path, settings: pytest.FixtureRequest) -> Path:
    settings.MAILBOX_FOLDER = str(tmp_path / "mail")  # type: ignore[attr-defined]
    return tmp_path / "mail"


def test_an_email_in_the_terminal_shows_its_text_and_only_names_its_other_parts() -> None:
    stream = StringIO()
    assert TextBackend(stream=stream).send_messages([_message()]) == 1
    shown = stream.getvalue()
    assert "To: ada@example.org" in shown
    assert "Subject: Your tickets" in shown
    assert "Row A, seat 4" in shown
    assert "[attached: tickets ő.pdf]" in shown
    assert "<table>" not in shown


def test_the_mailbox_lists_the_newest_mail_first_and_filters_by_recipient(folder: Path, client: Client) -> None:
    MailboxBackend().send_messages([_message("First"), _message("Second", "bob@example.org")])
    listed = client.get("/demo/mailbox").content.decode()
    assert listed.index("Second") < listed.index("First")
    only_ada = client.get("/demo/mailbox", {"to": "ADA@"}).content.decode()
    assert "First" in only_ada
    assert "Second" not in only_ada
    assert "No mail to" in client.get("/demo/mailbox", {"to": "eve@example.org"}).content.decode()


def test_a_mail_shows_its_links_its_html_without_scripts_and_its_files(folder: Path, client: Client) -> None:
    MailboxBackend().send_messages([_message()])
    name = next(folder.glob("*.eml")).stem
    page = client.get(f"/demo/mailbox/{name}").content.decode()
    assert '<a href="http://127.0.0.1/orders/7"' in page
    assert f'<iframe class="mail-html" src="/demo/mailbox/{name}/html"' in page
    html = client.get(f"/demo/mailbox/{name}/html")
    assert b"markup" in html.content
    policy = html["Content-Security-Policy"]
    assert "sandbox" in policy
    assert "frame-ancestors 'self'" in policy
    assert html["X-Frame-Options"] == "SAMEORIGIN"
    assert "default-src 'none'" in policy
    assert "script-src 'none'" in policy
    pdf = client.get(f"/demo/mailbox/{name}/attachments/1")
    assert (pdf["Content-Type"], pdf.content) == ("application/pdf", b"%PDF")
    page_file = client.get(f"/demo/mailbox/{name}/attachments/2")
    assert page_file["Content-Type"] == "application/octet-stream"
    assert page_file["Content-Disposition"].startswith("attachment")
    for missing in (f"{name}/attachments/3", f"{name}/attachments/0", "..%2f..%2fmanage", "0" * 20 + "-00000000"):
        assert client.get(f"/demo/mailbox/{missing}").status_code == 404


@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::1", ""])
def test_other_machines_do_not_see_the_mailbox(folder: Path, client: Client, address: str) -> None:
    MailboxBackend().send_messages([_message()])
    assert client.get("/demo/mailbox", REMOTE_ADDR="::ffff:127.0.0.1").status_code == 200
    assert client.get("/demo/mailbox", REMOTE_ADDR=address).status_code == 404


def test_without_a_folder_there_is_no_mailbox(client: Client) -> None:
    assert client.get("/demo/mailbox").status_code == 404


def test_the_mailbox_keeps_a_bounded_number_of_mails_readable_by_its_owner_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail_backends, "MESSAGES_MAX", 2)
    for number in range(4):
        MailboxBackend().send_messages([_message(f"Mail {number}")])
    kept = sorted(folder.iterdir())
    assert [b"Mail 2" in kept[0].read_bytes(), b"Mail 3" in kept[1].read_bytes(), len(kept)] == [True, True, 2]
    assert kept[0].stat().st_mode & 0o077 == 0
    assert folder.stat().st_mode & 0o077 == 0
