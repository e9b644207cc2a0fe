"""The address that an account has yet to confirm, at its sign-up or before it replaces the present one."""

from datetime import UTC, datetime
from typing import Any

from allauth.account import signals
from allauth.account.models import EmailAddress
from django.core import signing
from django.db import transaction

from apps.accounts.models import User


def drop(user: User) -> None:
    """Drop the account's change of address: the link that confirms it no longer works. Otherwise a thief who has begun
    a change could complete it after the owner has set a new password, and then reset that password."""
    EmailAddress.objects.filter(user=user, verified=False).exclude(email=user.email).delete()


def decline(address: EmailAddress) -> None:
    """End the request to confirm this address: its links no longer work. An account that signed up with the address
    keeps it as unconfirmed, under a new id: without any, it would count as created by an administrator."""
    with transaction.atomic():
        count, _ = EmailAddress.objects.filter(pk=address.pk, verified=False).delete()
        if count and address.email == address.user.email:
            EmailAddress.objects.create(user=address.user, email=address.email, primary=address.primary)


def lock_unconfirmed(address: EmailAddress) -> bool:
    """Lock the address in the caller's transaction until its end, and return whether it is still to be confirmed. To
    save it without this would restore a row that a concurrent `drop` or `decline` has deleted."""
    found = EmailAddress.objects.select_for_update(no_key=True, of=("self",)).filter(pk=address.pk, verified=False)
    return found.first() is not None


def requested_at(key: str) -> datetime:
    """Return when the link with this valid key was made, which is when its mail was sent."""
    return datetime.fromtimestamp(signing.b62_decode(key.rsplit(":", 2)[1]), tz=UTC)


def masked_name(user: User) -> str:
    """Return the account's name, as "a…n@example.org": its owner recognizes it, and a stranger does not learn it."""
    name, at, domain = user.username.partition("@")
    return f"{name[:1]}…{name[-1:] if len(name) > 2 else ''}{at}{domain}"


def connect() -> None:
    """Drop it whenever the account gets a new password."""
    for signal in (signals.password_changed, signals.password_set, signals.password_reset):
        signal.connect(_on_new_password)


def _on_new_password(user: Any, **kwargs: Any) -> None:
    drop(user)
