"""Writes the security log at the signals of Django and allauth, and ends older sessions at a new second factor."""

from typing import Any

from allauth.account import signals as account_signals
from allauth.mfa import signals as mfa_signals
from allauth.mfa.models import Authenticator
from django.contrib.auth import signals as auth_signals
from django.contrib.auth import update_session_auth_hash
from django.db.models.signals import post_save
from django.http import HttpRequest

from apps.accounts.pages import mail
from apps.accounts.security_log import Kind, record
from apps.accounts.tokens import versions
from apps.kernel.cli import get_os_username
from apps.kernel.http import client_address
from apps.kernel.models import TokenKey


def connect() -> None:
    auth_signals.user_logged_in.connect(_on_log_in)
    auth_signals.user_logged_out.connect(_on_log_out)
    auth_signals.user_login_failed.connect(_on_failure)
    post_save.connect(_on_token_key, sender=TokenKey)
    account_signals.user_signed_up.connect(_on_sign_up)
    for signal in (account_signals.password_changed, account_signals.password_set):
        signal.connect(_on_password_change)
    account_signals.password_reset.connect(_on_password_reset)
    account_signals.email_changed.connect(_on_email_change)
    mfa_signals.authenticator_added.connect(_on_second_factor_added)
    mfa_signals.authenticator_removed.connect(_on_second_factor_removed)
    mfa_signals.authenticator_reset.connect(_on_recovery_codes)


def _on_log_in(request: HttpRequest, user: Any, **kwargs: Any) -> None:
    record(request, Kind.LOGGED_IN, user)


def _on_log_out(request: HttpRequest, user: Any, **kwargs: Any) -> None:
    if user is not None and user.erased_at is None:
        record(request, Kind.LOGGED_OUT, user)


def _on_failure(credentials: dict[str, Any], request: HttpRequest | None = None, **kwargs: Any) -> None:
    record(request, Kind.LOG_IN_FAILED, name=str(credentials.get("username", "")))


def _on_sign_up(request: HttpRequest, user: Any, **kwargs: Any) -> None:
    record(request, Kind.SIGNED_UP, user)


def _on_password_change(request: HttpRequest, user: Any, **kwargs: Any) -> None:
    record(request, Kind.PASSWORD_CHANGED, user)


def _on_password_reset(request: HttpRequest, user: Any, **kwargs: Any) -> None:
    record(request, Kind.PASSWORD_RESET, user)


def _on_email_change(
    request: HttpRequest, user: Any, from_email_address: Any, to_email_address: Any, **kwargs: Any
) -> None:
    """Record the change, and notify both addresses: allauth would do so when the former one is deleted already."""
    record(request, Kind.EMAIL_CHANGED, user, detail=to_email_address.email)
    address = client_address.address_from_environ(request.META)
    mail.schedule("email_added", to_email_address.email, {"user": user}, address)
    if from_email_address is not None:
        was_confirmed = from_email_address.verified
        mail.schedule("email_changed", from_email_address.email, {}, address, is_confirmed=was_confirmed)


def _on_second_factor_added(request: HttpRequest, user: Any, authenticator: Authenticator, **kwargs: Any) -> None:
    if authenticator.type != Authenticator.Type.RECOVERY_CODES:
        # Other sessions and tokens may be of a thief of the password. This browser stays logged in.
        versions.raise_version(user)
        update_session_auth_hash(request, user)
    record(request, Kind.SECOND_FACTOR_ADDED, user, detail=authenticator.get_type_display())


def _on_second_factor_removed(request: HttpRequest, user: Any, authenticator: Authenticator, **kwargs: Any) -> None:
    record(request, Kind.SECOND_FACTOR_REMOVED, user, detail=authenticator.get_type_display())


def _on_recovery_codes(request: HttpRequest, user: Any, **kwargs: Any) -> None:
    record(request, Kind.RECOVERY_CODES_CREATED, user)


def _on_token_key(instance: TokenKey, **kwargs: Any) -> None:
    state = "dropped" if instance.dropped_at is not None else "published"
    record(None, Kind.STAFF_ACTION, detail=f"token key {instance.key_id} {state} by {get_os_username()}")
