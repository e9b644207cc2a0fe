"""The confirmed email addresses of accounts."""

from typing import Any

from allauth.account import app_settings, signals
from allauth.account.models import EmailAddress
from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef

from apps.accounts.models import User


def confirmed_address(account_id: int | None) -> str:
    """Return the email address of the active account if it has confirmed it; else empty."""
    if account_id is None:
        return ""
    own = EmailAddress.objects.filter(user=account_id, user__is_active=True, email=F("user__email"), verified=True)
    return own.values_list("email", flat=True).first() or ""


def is_confirmation_required() -> bool:
    """Return whether customers must confirm their address before they can log in."""
    return bool(app_settings.EMAIL_VERIFICATION == app_settings.EmailVerificationMethod.MANDATORY)


def is_name_unconfirmed(name: str) -> bool:
    """Return whether a customer's account with this name must confirm its address first."""
    if not is_confirmation_required():
        return False
    confirmed = EmailAddress.objects.filter(user=OuterRef("pk"), email=OuterRef("email"), verified=True)
    return User.objects.filter(~Exists(confirmed), username=name, is_staff=False).exists()


def has_unconfirmed_sign_up(user: User) -> bool:
    """Return whether the account signed up itself and has not confirmed its address, although that is required: another
    person may have signed up with this address. An account that an administrator created has no such address."""
    own = EmailAddress.objects.filter(user=user)
    return is_confirmation_required() and own.exists() and not own.filter(email=user.email, verified=True).exists()


def connect() -> None:
    """Confirm the address of an account whose password is reset: the link was in a mail to this address. A customer
    whose first mail is lost needs no other way."""
    signals.password_reset.connect(_on_password_reset)


def _on_password_reset(user: Any, **kwargs: Any) -> None:
    assert isinstance(user, User)
    if not user.email:
        return
    try:
        with transaction.atomic():
            values = {"verified": True, "primary": True}
            EmailAddress.objects.update_or_create(user=user, email=user.email, defaults=values)
    except IntegrityError:
        return  # Another account has confirmed the address in the meantime.
