"""The demo's mailbox: pages with the mails that the demo would have sent, for its own machine only."""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from functools import wraps
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_safe

from apps.kernel.http.client_address import address_from_environ

SHOWN_MAX = 100
_NAME = re.compile(r"[0-9]{20}-[0-9a-f]{8}")
_SAFE_TYPES = frozenset(("application/pdf", "text/calendar", "image/png"))
_HTML_POLICY = {
    "default-src": "'none'",
    "script-src": "'none'",
    "style-src": "'unsafe-inline'",
    "img-src": "data:",
    "sandbox": "allow-popups allow-popups-to-escape-sandbox",
    "frame-ancestors": "'self'",  # The page of the mail.
}
_View = Callable[..., HttpResponse]


@dataclass(frozen=True, slots=True)
class Attachment:
    name: str
    content_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Mail:
    """A stored mail; `html` is empty if it has text only."""

    name: str
    sender: str
    recipients: str
    subject: str
    sent_at: datetime | None
    text: str
    html: str
    attachments: list[Attachment]

    @property
    def url(self) -> str:
        return reverse("mailbox_mail", args=[self.name])


def _for_this_machine(view: _View) -> _View:
    """Answer 404 without MAILBOX_FOLDER and to other machines: mails contain keys of orders and accounts."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not settings.MAILBOX_FOLDER or not _is_loopback(address_from_environ(request.META)):
            raise Http404
        return view(request, *args, **kwargs)

    return never_cache(require_safe(guarded))


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


@_for_this_machine
def mailbox(request: HttpRequest) -> HttpResponse:
    """List the newest mails; `?to=` shows those whose recipients contain its value."""
    wanted = request.GET.get("to", "").strip().lower()
    paths = sorted(Path(settings.MAILBOX_FOLDER).glob("*.eml"), reverse=True)
    mails: list[Mail] = []
    for found in paths:
        mail = _read(found)
        if mail and wanted in mail.recipients.lower():
            mails.append(mail)
        if len(mails) == SHOWN_MAX:
            break
    context = {"mails": mails, "wanted": wanted, "total": len(paths), "shown_max": SHOWN_MAX}
    return render(request, "demo/mailbox.html", context)


@_for_this_machine
def mail(request: HttpRequest, name: str) -> HttpResponse:
    return render(request, "demo/mail.html", {"mail": _stored(name)})


@_for_this_machine
@xframe_options_sameorigin
def mail_html(request: HttpRequest, name: str) -> HttpResponse:
    """Return the HTML part as a mail program would show it: without scripts, forms and files of other sites."""
    stored = _stored(name)
    if not stored.html:
        raise Http404
    # Links open beside the page, not in its frame.
    response = HttpResponse(stored.html.replace("<head>", '<head><base target="_blank">', 1))
    response._csp_replace = _HTML_POLICY  # type: ignore[attr-defined]  # As django-csp's decorator does.
    return response


@_for_this_machine
def attachment(request: HttpRequest, name: str, number: int) -> HttpResponse:
    attachments = _stored(name).attachments
    if not 1 <= number <= len(attachments):
        raise Http404
    found = attachments[number - 1]
    content_type = found.content_type if found.content_type in _SAFE_TYPES else "application/octet-stream"
    filename = re.sub(r"[^A-Za-z0-9._-]", "-", found.name)
    headers = {"Content-Disposition": f'attachment; filename="{filename}"'}
    return HttpResponse(found.content, content_type=content_type, headers=headers)


def _stored(name: str) -> Mail:
    """Return a mail by its file's name. Raises Http404."""
    found = _read(Path(settings.MAILBOX_FOLDER) / f"{name}.eml") if _NAME.fullmatch(name) else None
    if found is None:
        raise Http404
    return found


def _read(found: Path) -> Mail | None:
    """Return the mail of a file; None if a newer mail has pushed it out meanwhile."""
    try:
        message = message_from_bytes(found.read_bytes(), policy=policy.default)
    except FileNotFoundError:
        return None
    assert isinstance(message, EmailMessage)
    return Mail(
        name=found.stem,
        sender=str(message["From"] or ""),
        recipients=str(message["To"] or ""),
        subject=str(message["Subject"] or "(no subject)"),
        sent_at=parsedate_to_datetime(str(message["Date"])) if message["Date"] else None,
        text=_content(message, "plain"),
        html=_content(message, "html"),
        attachments=[
            Attachment(part.get_filename() or "attachment", part.get_content_type(), _bytes(part))
            for part in message.iter_attachments()
            if isinstance(part, EmailMessage)
        ],
    )


def _bytes(part: EmailMessage) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _content(message: EmailMessage, kind: str) -> str:
    body = message.get_body(preferencelist=(kind,))
    return str(body.get_content()) if body else ""


root_urls = [
    path("demo/mailbox", mailbox, name="mailbox"),
    path("demo/mailbox/<str:name>", mail, name="mailbox_mail"),
    path("demo/mailbox/<str:name>/html", mail_html, name="mailbox_html"),
    path("demo/mailbox/<str:name>/attachments/<int:number>", attachment, name="mailbox_attachment"),
]
