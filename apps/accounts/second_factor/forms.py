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
from django.contrib import messages
from fido2.utils import websafe_decode
from fido2.webauthn import CollectedClientData

from apps.accounts.first_error import FocusesFirstError
from apps.accounts.models import User
from apps.accounts.second_factor import codes
from apps.kernel.http import problems

logger = logging.getLogger(__name__)

CREDENTIAL_LENGTH_MAX = 8_000
"""One without an attestation, as browsers are asked for, has about a thousand characters."""
PASSKEYS_MAX = 10
"""Of an account: each log-in with a passkey reads them all. A few that are added at the same moment may exceed it."""
PASSKEY_NAME_LENGTH_MAX = 60
_PASSWORDLESS = "passwordless"
"""The member of a stored credential that says whether the passkey may log in without the password."""
_NO_PASSKEY = "No passkey was used. Passkeys need JavaScript. Try again, or use another way."


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
        field.error_messages["required"] = "Enter a code."
        field.widget.attrs = {"autocomplete": "one-time-code", "autocapitalize": "none", "autofocus": True}

    def clean_code(self) -> str:
        found = codes.verify_code(context.request, self.user, self.cleaned_data["code"][: codes.LENGTH_MAX])
        if found is None:
            raise get_adapter().validation_error("incorrect_code")
        found.user = self.user
        self.authenticator = found
        return str(self.cleaned_data["code"])


class AuthenticateForm(FocusesFirstError, _CodeMixin, AllauthAuthenticateForm):
    pass


class ReauthenticateForm(FocusesFirstError, _CodeMixin, AllauthReauthenticateForm):
    pass


def _refuse_malformed(check: Callable[[], Any]) -> Any:
    """Return the result of allauth's check of a credential. A malformed credential raises various errors in the
    library; each becomes a form error."""
    try:
        return check()
    except forms.ValidationError as error:
        raise (_not_accepted() if error.code == "incorrect_code" else error) from error
    except problems.Problem:
        raise
    except Exception as error:
        logger.info("a malformed credential was refused: %s", type(error).__name__)
        raise _not_accepted() from error


def _not_accepted() -> forms.ValidationError:
    return forms.ValidationError("The passkey was not accepted. Try again, or use another way.", code="incorrect_code")


class _CredentialField(forms.JSONField):
    def __init__(self) -> None:
        super().__init__(widget=forms.HiddenInput, error_messages={"required": _NO_PASSKEY})

    def to_python(self, value: Any) -> Any:
        try:
            if isinstance(value, str) and len(value) <= CREDENTIAL_LENGTH_MAX:
                return super().to_python(value)
        except (RecursionError, ValueError):  # Nested very deeply; a number of thousands of digits.
            pass
        raise _not_accepted()

    def bound_data(self, data: Any, initial: Any) -> Any:
        return initial  # The form is never shown with a refused credential.


class ActivateTOTPForm(FocusesFirstError, AllauthActivateTOTPForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].label = "Code from the app"
        self.fields["code"].help_text = "Six digits, which change every 30 seconds."
        self.fields["code"].error_messages["required"] = "Enter the code that the app shows."
        self.fields["code"].widget.attrs = {"autocomplete": "one-time-code", "inputmode": "numeric"}

    def clean_code(self) -> str:
        code: str = super().clean_code()
        step = codes.matching_step(self.secret, code)
        if step is None:  # Its time has ended since allauth accepted it.
            raise get_adapter().validation_error("incorrect_code")
        self.step = step
        return code


def _require_own_origin(credential: Any) -> None:
    """Raise a form error unless the browser made the credential on a page of this very origin. The library accepts the
    subdomains of the site too, which other people may run."""
    client_data = CollectedClientData(websafe_decode(credential["response"]["clientDataJSON"]))
    request = context.request
    if client_data.origin != f"{request.scheme}://{request.get_host()}" or client_data.cross_origin:
        raise _not_accepted()


def _known_members(credential: dict[str, Any]) -> dict[str, Any]:
    """Return what is used of a valid credential. A client may send more, which would be read at each log-in."""
    response = {name: credential["response"][name] for name in ("clientDataJSON", "attestationObject")}
    named: dict[str, Any] = {name: credential[name] for name in ("id", "rawId", "type") if name in credential}
    properties = (credential.get("clientExtensionResults") or {}).get("credProps") or {}
    is_resident = isinstance(properties, dict) and properties.get("rk") is True
    return {**named, "response": response, "clientExtensionResults": {"credProps": {"rk": is_resident}}}


def _name_field(**kwargs: Any) -> forms.CharField:
    return forms.CharField(
        label="Name of the passkey",
        max_length=PASSKEY_NAME_LENGTH_MAX,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text="For example the device that has it: Ann’s phone.",
        error_messages={"required": "Enter a name."},
        **kwargs,
    )


class AddWebAuthnForm(FocusesFirstError, webauthn.AddWebAuthnForm):
    name = _name_field(required=False)
    credential = _CredentialField()
    passwordless = forms.BooleanField(
        label="Log in without the password",
        required=False,
        initial=True,
        help_text="The device then asks for your fingerprint, face or PIN.",
    )

    def clean_credential(self) -> Any:
        credential = self.cleaned_data["credential"]
        _refuse_malformed(lambda: _require_own_origin(credential))
        return credential

    def clean(self) -> dict[str, Any]:
        if Authenticator.objects.filter(user=self.user, type=Authenticator.Type.WEBAUTHN).count() >= PASSKEYS_MAX:
            raise forms.ValidationError(f"You have {PASSKEYS_MAX} passkeys. Remove one before you add another.")
        cleaned: dict[str, Any] = _refuse_malformed(super().clean)
        if isinstance(cleaned.get("credential"), dict):
            # Stored with the credential, so that the passkey never exists without it.
            cleaned["credential"] = _known_members(cleaned["credential"]) | {
                _PASSWORDLESS: bool(cleaned.get("passwordless"))
            }
        return cleaned


class EditWebAuthnForm(FocusesFirstError, webauthn.EditWebAuthnForm):
    name = _name_field()

    def save(self) -> Authenticator:
        saved: Authenticator = super().save()
        messages.success(context.request, "The passkey was renamed.")
        return saved


class _CredentialMixin(forms.Form):
    credential = _CredentialField()

    def clean_credential(self) -> Authenticator:
        credential = self.cleaned_data["credential"]
        _refuse_malformed(lambda: _require_own_origin(credential))
        found: Authenticator = _refuse_malformed(super().clean_credential)  # type: ignore[misc]
        return found


class AuthenticateWebAuthnForm(_CredentialMixin, webauthn.AuthenticateWebAuthnForm):
    pass


class LoginWebAuthnForm(_CredentialMixin, webauthn.LoginWebAuthnForm):
    def clean_credential(self) -> Authenticator:
        found = super().clean_credential()
        if not found.data["credential"].get(_PASSWORDLESS):
            raise forms.ValidationError("This passkey is a second factor only. Log in with your password first.")
        return found


class ReauthenticateWebAuthnForm(_CredentialMixin, webauthn.ReauthenticateWebAuthnForm):
    pass
