"""The address that an account has yet to confirm before it replaces the present one."""

from typing import Any

from allauth.account import signals
from allauth.account.models import EmailAddress

from apps.accounts.models import User


def drop(user: User) -> None:
    """Drop the account's change of address: the link that confirms it no longer works. Otherwise a thief who has begun
    a change could complete it after the owner has set a new password, and then reset that password."""
    EmailAddress.objects.filter(user=user, verified=False).exclude(email=user.email).delete()


def connect() -> None:
    """Drop it whenever the account gets a new password."""
    for signal in (signals.password_changed, signals.password_set, signals.password_reset):
        signal.connect(_on_new_password)


def _on_new_password(user: Any, **kwargs: Any) -> None:
    drop(user)
