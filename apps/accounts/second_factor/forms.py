"""allauth's forms for one-time codes and passkeys, with our check of codes, and safe against malformed input."""

import logging
from collections.abc import Callable
from typing import Any

from allauth.core import context
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base.forms import AuthenticateForm as AllauthAuthenticateForm
from allauth.mfa.base.forms import ReauthenticateForm as AllauthReauthenticateForm
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.forms import ActivateTOTPForm as AllauthActivateTOTPForm
from allauth.mfa.webauthn import forms as webauthn
from django import forms

from apps.accounts.models import User
from apps.accounts.second_factor import codes
from apps.kernel.http import problems

logger = logging.getLogger(__name__)

CREDENTIAL_LENGTH_MAX = 20_000


class _CodeMixin:
    user: User
    authenticator: Authenticator
    cleaned_data: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["code"]  # type: ignore[attr-defined]
        field.max_length = codes.LENGTH_MAX
        field.label = "Code"
        field.help_text = "From your authenticator app, or one of your recovery codes."
        field.widget.attrs = {"autocomplete": "one-time-code", "inputmode": "numeric", "autofocus": True}

    def clean_code(self) -> str:
        found = codes.verify_code(context.request, self.user, self.cleaned_data["code"][: codes.LENGTH_MAX])
        if found is None:
            raise get_adapter().validation_error("incorrect_code")
        found.user = self.user
        self.authenticator = found
        return str(self.cleaned_data["code"])


class AuthenticateForm(_CodeMixin, AllauthAuthenticateForm):
    pass


class ReauthenticateForm(_CodeMixin, AllauthReauthenticateForm):
    pass


def _refuse_malformed(check: Callable[[], Any]) -> Any:
    """Return the result of allauth's check of a credential. A malformed credential raises various errors in the
    library; each becomes a form error."""
    try:
        return check()
    except (forms.ValidationError, problems.Problem):
        raise
    except Exception as error:
        logger.info("a malformed credential was refused: %s", type(error).__name__)
        raise get_adapter().validation_error("incorrect_code") from error


class _CredentialField(forms.JSONField):
    def __init__(self) -> None:
        super().__init__(widget=forms.HiddenInput)

    def to_python(self, value: Any) -> Any:
        try:
            if isinstance(value, str) and len(value) <= CREDENTIAL_LENGTH_MAX:
                return super().to_python(value)
        except RecursionError:  # Nested very deeply.
            pass
        raise get_adapter().validation_error("incorrect_code")

    def bound_data(self, data: Any, initial: Any) -> Any:
        return initial  # The form is never shown with a refused credential.


class ActivateTOTPForm(AllauthActivateTOTPForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].label = "Code"
        self.fields["code"].widget.attrs = {"autocomplete": "one-time-code", "inputmode": "numeric"}


class AddWebAuthnForm(webauthn.AddWebAuthnForm):
    credential = _CredentialField()
    passwordless = forms.BooleanField(
        label="Log in without the password",
        required=False,
        initial=True,
        help_text="The device then asks for your fingerprint, face or PIN.",
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = _refuse_malformed(super().clean)
        return cleaned


class _CredentialMixin(forms.Form):
    credential = _CredentialField()

    def clean_credential(self) -> Authenticator:
        found: Authenticator = _refuse_malformed(super().clean_credential)  # type: ignore[misc]
        return found


class AuthenticateWebAuthnForm(_CredentialMixin, webauthn.AuthenticateWebAuthnForm):
    pass


class LoginWebAuthnForm(_CredentialMixin, webauthn.LoginWebAuthnForm):
    pass


class ReauthenticateWebAuthnForm(_CredentialMixin, webauthn.ReauthenticateWebAuthnForm):
    pass
