"""allauth's adapter for accounts: log-in, mails, messages and limits in our terms."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.internal.stagekit import clear_login
from allauth.account.models import EmailAddress
from allauth.core import context as allauth_context
from allauth.core.exceptions import ImmediateHttpResponse
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import authenticate
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from apps.accounts import pending_address, registries
from apps.accounts.models import User
from apps.accounts.pages import mail, stages
from apps.accounts.passwords import attempts
from apps.accounts.passwords import backend as password_backend
from apps.accounts.staff import reauthentication
from apps.kernel.http import client_address

SIGNED_IN_COOKIE = "signed_in"
"""Pages are the same for every visitor. Only with this cookie do their scripts request the user's details. The cookie
neither identifies the user nor grants anything."""

_MESSAGES = {
    "email_confirmation_sent": "We’re sending an email to {email}. Open its link to confirm the address.",
    "email_confirmation_failed": "{email} cannot be confirmed, because another account uses it.",
    "email_confirmed": "{email} is confirmed.",
    "password_changed": "Your password was changed. All other devices were logged out.",
    "password_set": "Your password was set. All other devices were logged out.",
    "totp_activated": "The authenticator app was added.",
    "totp_deactivated": "The authenticator app was removed.",
    "webauthn_added": "The passkey was added.",
    "webauthn_removed": "The passkey was removed.",
    "recovery_codes_generated": "New recovery codes were created. Earlier ones no longer work.",
}
"""By the name of allauth's template. Its other messages are not shown."""
_VERSION = "log_in_version"
"""In the session: the account's version when the log-in began."""


class AccountAdapter(DefaultAccountAdapter):
    error_messages = {
        **DefaultAccountAdapter.error_messages,
        "email_password_mismatch": "The email address or password is incorrect. Passwords are case-sensitive.",
        "mismatch_or_unconfirmed": "The email address or password is incorrect, or the address is not confirmed yet. "
        "Passwords are case-sensitive. Open the link in the email that we sent when you signed up, or choose a new "
        "password.",
        "username_password_mismatch": "The email address or password is incorrect. Passwords are case-sensitive.",
        "email_taken": "An account with this email address already exists. Log in instead.",
        "incorrect_password": "The password is incorrect. Passwords are case-sensitive.",
        "enter_current_password": "The password is incorrect. Passwords are case-sensitive.",
    }

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Do nothing: the authentication backend limits attempts."""

    def pre_login(self, request: HttpRequest, user: Any, **kwargs: Any) -> HttpResponse | None:
        """Note the account's version at the password, which may be minutes before the second factor."""
        response: HttpResponse | None = super().pre_login(request, user, **kwargs)
        if response is None:
            request.session[_VERSION] = user.token_version
        return response

    def login(self, request: HttpRequest, user: Any) -> None:
        """Start the session, and move what the browser did as a guest to the account. A log-in that has waited for its
        second factor while the account's sessions ended has ended with them: its password may be the old one."""
        if request.session.pop(_VERSION, None) != user.token_version:
            clear_login(request)
            self.add_message(request, messages.ERROR, message="This log-in has ended. Log in again.")
            raise ImmediateHttpResponse(redirect("log_in"))
        registries.call_before_log_in(request, user.pk)
        user.backend = password_backend.PATH
        super().login(request, user)
        registries.call_after_log_in(request, user.pk)

    def post_login(self, request: HttpRequest, user: Any, **kwargs: Any) -> HttpResponse:
        response = super().post_login(request, user, **kwargs)
        set_signed_in_cookie(request, response)
        attempts.set_known_browser_cookie(request, response, user)
        return response

    def get_login_stages(self) -> list[str]:
        return [f"{stages.__name__}.ConfirmedAddressStage", "allauth.mfa.stages.AuthenticateStage"]

    def reauthenticate(self, user: Any, password: str) -> bool:
        found = authenticate(allauth_context.request, username=user.username, password=password, is_logged_in=True)
        return found is not None and found.pk == user.pk

    def is_reauthentication_required(self, *, app: str, **kwargs: Any) -> bool:
        return not reauthentication.is_recent(allauth_context.request)

    def populate_username(self, request: HttpRequest, user: Any) -> None:
        user.username = user.email

    def save_user(self, request: HttpRequest, user: Any, form: Any, commit: bool = True) -> User:
        """Save a new account. Raises HashingBusy, and ValidationError if a concurrent sign-up has taken the address."""
        try:
            with transaction.atomic():
                saved = super().save_user(request, user, form, commit)
        except IntegrityError as error:
            raise self.validation_error("email_taken") from error
        assert isinstance(saved, User)
        return saved

    def clean_password(self, password: str, user: Any = None) -> str:
        if len(password) > password_backend.PASSWORD_LENGTH_MAX:
            raise forms.ValidationError(f"Use at most {password_backend.PASSWORD_LENGTH_MAX} characters.")
        return str(super().clean_password(password, user))

    def confirm_email(self, request: HttpRequest, email_address: EmailAddress) -> bool:
        """Confirm the address; return False, with a message, if another account has it, or if the request to confirm it
        has ended in the meantime."""
        try:
            with transaction.atomic():
                if not pending_address.lock_unconfirmed(email_address):
                    self.add_message(request, messages.ERROR, message="This link does not work any more.")
                    return False
                return bool(super().confirm_email(request, email_address))
        except IntegrityError:
            self.add_message(request, messages.ERROR, "email_confirmation_failed.txt", {"email": email_address.email})
            return False

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Schedule the mail, unless this recipient or address has been sent too many: then nothing is sent."""
        name = template_prefix.rpartition("/")[2]
        if name == "email_changed":
            return  # Sent at the signal (`security_signals`), which knows whether the former address was confirmed.
        mail.schedule(name, email, context, client_address.address_from_environ(allauth_context.request.META))

    def add_message(
        self,
        request: HttpRequest,
        level: int,
        message_template: str | None = None,
        message_context: dict[str, Any] | None = None,
        extra_tags: str = "",
        message: str | None = None,
    ) -> None:
        name = (message_template or "").rpartition("/")[2].removesuffix(".txt")
        text = str(message) if message else _MESSAGES.get(name, "").format_map(message_context or {})
        if text:
            messages.add_message(request, level, text)

    def is_safe_url(self, url: str) -> bool:
        request = allauth_context.request
        return url_has_allowed_host_and_scheme(url, {request.get_host()}, require_https=request.is_secure())

    def is_ajax(self, request: HttpRequest) -> bool:
        # Passkeys at log-in request their options as JSON. All other pages are forms.
        return request.path == reverse("mfa_login_webauthn") and "json" in request.headers.get("Accept", "")

    def get_client_ip(self, request: HttpRequest) -> str:
        return client_address.address_from_environ(request.META)

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return reverse("account")

    def get_email_verification_redirect_url(self, email_address: EmailAddress) -> str:
        is_own = allauth_context.request.user.is_authenticated
        return reverse("account") if is_own else reverse("log_in")


def set_signed_in_cookie(request: HttpRequest, response: HttpResponseBase) -> None:
    response.set_cookie(
        SIGNED_IN_COOKIE, "1", max_age=settings.SESSION_COOKIE_AGE, samesite="Lax", secure=request.is_secure()
    )


def delete_signed_in_cookie(response: HttpResponseBase) -> None:
    response.delete_cookie(SIGNED_IN_COOKIE, samesite="Lax")
