"""Mails to accounts. A request only schedules a mail; an outbox handler sends it, so that a mail server that does not
respond delays no log-in, and the response takes equally long with and without an account.

A message has no secret: links are signed when the mail is sent, since staff can read messages.
"""

from typing import Any
from urllib.parse import urljoin

from allauth.account.forms import default_token_generator
from allauth.account.models import EmailAddress, EmailConfirmationHMAC
from allauth.account.utils import user_pk_to_url_str
from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db import transaction
from django.template.loader import render_to_string
from django.urls import reverse

from apps.accounts import pending_address
from apps.accounts.models import User
from apps.kernel import rate_limits
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.facade import Message
from apps.kernel.rate_limits import mail_caps

SEND_MAIL = "accounts.send_mail"
SENDING_MAX = 2
"""Mails that a process sends at once: strangers can cause them."""
NETWORK_SHARE, LINKLESS_SHARE, NOTICE_SHARE = 1 / 3, 1 / 5, 1 / 3
"""Of the cap of one mailbox: what requests of one network may use, what mails without a link of an account may, and
what each kind of notice may."""

_CHANGE = "security_change"
_MAILS = {
    "password_reset_key": ("Choose a new password", "password_reset", ""),
    "email_confirmation": ("Confirm your email address", "confirm_address", ""),
    "email_confirmation_signup": ("Confirm your email address", "confirm_address", ""),
    "account_already_exists": ("You already have an account", "account_exists", ""),
    "unknown_account": ("You have no account yet", "no_account", ""),
    "password_changed": ("Your password was changed", _CHANGE, "The password of your account was changed."),
    "password_set": ("A password was set", _CHANGE, "A password was set for your account."),
    "password_reset": (
        "Your password was changed",
        _CHANGE,
        "The password of your account was changed with a link that we had emailed to you.",
    ),
    "email_changed": ("Your email address was changed", "address_changed", "Your account has another email address."),
    "email_added": ("Your account has this email address", _CHANGE, "Your account now uses this email address."),
    "totp_activated": ("An authenticator app was added", _CHANGE, "An authenticator app was added to your account."),
    "totp_deactivated": (
        "The authenticator app was removed",
        _CHANGE,
        "The authenticator app was removed from your account.",
    ),
    "webauthn_added": ("A passkey was added", _CHANGE, "A passkey was added to your account."),
    "webauthn_removed": ("A passkey was removed", _CHANGE, "A passkey was removed from your account."),
    "data_downloaded": ("Your data was downloaded", _CHANGE, "All data of your account was downloaded."),
    "account_erased": ("Your account was erased", "account_erased", "Your account was erased."),
    "account_closed": ("Your account was closed", "account_closed", "Your account was closed."),
    "recovery_codes_generated": ("New recovery codes", _CHANGE, "New recovery codes were created for your account."),
}
"""Subject, templates, and for notices what changed, by the name of allauth's mail, or of our own."""
_LINKLESS = frozenset(("account_already_exists", "unknown_account"))
"""They say only that a person has entered the address: no account depends on them."""
_DROPPED = "is_dropped"
"""Of a message's body: its mail is not sent."""


def schedule(name: str, email: str, context: dict[str, Any], address: str, *, is_confirmed: bool | None = None) -> None:
    """Schedule the mail for the recipient, at the request of a client with this address. A mail beyond a cap of the
    recipient is dropped, and so is one beyond a cap of the address, unless it is a notice of a change. `is_confirmed`
    says whether the recipient had confirmed the address, if the account has it no longer.

    PostgreSQL counts the mails of a mailbox, for all processes. A flood of mails that a stranger can cause suppresses
    no notice of a stolen account, since notices are counted apart, for all networks; and none of the links that
    its owner asks for: mails without a link have a small cap of their own, and one network may use only a part of the
    cap.

    What the network has used decides alone whether a message with a link is written, so the work is the same with and
    without an account, although the caps of their mails differ.
    """
    if name not in _MAILS:
        return
    is_notice, origin = bool(_MAILS[name][2]), mail_caps.origin_of(address)
    # Only the last characters of a token count: the network belongs to the end.
    if not is_notice and rate_limits.check_request("mail", address, f"{email} {origin}") is not None:
        return
    user = context.get("user")
    body = {"mail": name, "email": email, "user": user.pk if isinstance(user, User) else None}
    body[outbox.ORIGIN_FIELD] = origin
    rate = settings.RATE_LIMITS["mail"][1]
    with transaction.atomic():
        if rate is not None:
            has_share = not is_notice and rate_limits.subject(address) != ""  # Exempt networks have no limit.
            if has_share and not mail_caps.take_mail("account mail", email, rate, NETWORK_SHARE, origin=origin):
                return
            has_room = _take_notice(name, email, rate, is_confirmed) if is_notice else _take_mail(name, email, rate)
            if not has_room:
                body[_DROPPED] = True
        outbox.publish(SEND_MAIL, email, body)


def has_confirmed(email: str) -> bool:
    """Return whether the account with this address has confirmed it, or was created by an administrator. An address
    that another account has yet to confirm does not count."""
    own = EmailAddress.objects.filter(email=email, user__email=email).values_list("verified", flat=True)
    return not own or any(own)


def _take_notice(name: str, email: str, rate: tuple[float, int], is_confirmed: bool | None) -> bool:
    """Count each kind of notice apart, so that a thief of an account who first causes many of one kind suppresses none
    of another. Strangers can sign up with spellings of a mailbox: what they cause without confirming them has one
    count for all kinds, and suppresses no notice to an address that is confirmed."""
    if has_confirmed(email) if is_confirmed is None else is_confirmed:
        return mail_caps.take_mail(f"account notice {name}", email, rate, NOTICE_SHARE)
    return mail_caps.take_mail("account notice", email, rate)


def _take_mail(name: str, email: str, rate: tuple[float, int]) -> bool:
    if name in _LINKLESS:
        return mail_caps.take_mail("account mail without link", email, rate, LINKLESS_SHARE)
    return mail_caps.take_mail("account mail", email, rate)


def send(message: Message) -> None:
    """Send the mail, unless it is beyond a cap, its account is gone or inactive, or its address has been confirmed or
    removed."""
    if message.body.get(_DROPPED):
        return
    name, email = message.body["mail"], message.body["email"]
    subject, template, change = _MAILS[name]
    user = User.objects.filter(pk=message.body["user"], is_active=True).first()
    if user is None and message.body["user"] is not None:
        return
    link = _link(name, user, email)
    if link is None:
        return
    context = {
        "subject": subject,
        "email": email,
        "account": pending_address.masked_name(user) if user else "",
        "is_change": user is not None and user.email != email,
        "requested_at": message.created_at,
        "link": urljoin(settings.SITE_URL, link),
        "change": change,
        "site_url": settings.SITE_URL,
        "reset_url": urljoin(settings.SITE_URL, reverse("account_reset_password")),
        "find_url": urljoin(settings.SITE_URL, reverse("orders:find")),
    }
    text = render_to_string(f"accounts/email/{template}.txt", context)
    sent = EmailMultiAlternatives(subject=subject, body=text, to=[email])
    sent.attach_alternative(render_to_string(f"accounts/email/{template}.html", context), "text/html")
    sent.send()


def _link(name: str, user: User | None, email: str) -> str | None:
    """Return the path of the mail's link; None if it would be of no use."""
    match name:
        case "password_reset_key":
            assert user is not None
            if user.email != email:
                return None  # The link would give the former mailbox an account that has another address now.
            key = default_token_generator.make_token(user)
            return reverse("account_reset_password_from_key", args=[user_pk_to_url_str(user), key])
        case "email_confirmation" | "email_confirmation_signup":
            found = EmailAddress.objects.filter(user=user, email=email, verified=False).first()
            return None if found is None else reverse("account_confirm_email", args=[EmailConfirmationHMAC(found).key])
        case "unknown_account":
            return reverse("sign_up")
        case "account_already_exists":
            return reverse("log_in")
        case _:
            return reverse("account")
