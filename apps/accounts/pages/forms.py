"""allauth's forms for log-in, sign-up and passwords, with our labels, limits and field names."""

from datetime import timedelta
from typing import Any

from allauth.account import forms as allauth_forms
from allauth.account.adapter import get_adapter
from allauth.account.models import EmailAddress, Login
from django import forms
from django.contrib.auth.hashers import make_password
from django.http import HttpRequest

from apps.accounts import security_log
from apps.accounts.confirmed_addresses import is_confirmation_required
from apps.accounts.first_error import FocusesFirstError
from apps.accounts.models import NAME_LENGTH_MAX, SecurityEvent, User, account_name
from apps.accounts.passwords.backend import PASSWORD_LENGTH_MAX
from apps.kernel.mail.addresses import AddressField
from apps.kernel.proof_of_work.forms import WorkForm

_ADDRESS_MESSAGES = {
    "required": "Enter your email address.",
    "invalid": "Enter a valid email address.",
    "max_length": "Enter a valid email address.",
}
CHANGES_PER_HOUR_MAX = 5
"""Of one account's password, by its page."""
_NEW_HELP = "At least 8 characters, and no common password. Passwords are case-sensitive."


def _password_field(label: str, autocomplete: str, **kwargs: Any) -> forms.CharField:
    widget = forms.PasswordInput(attrs={"autocomplete": autocomplete})
    messages = {"required": f"Enter your {label.lower()}."}
    return forms.CharField(
        label=label, strip=False, max_length=PASSWORD_LENGTH_MAX, widget=widget, error_messages=messages, **kwargs
    )


class _FieldNames:
    """Gives fields the names that our pages and API clients have always used."""

    html_names: dict[str, str] = {}

    def add_prefix(self, field_name: str) -> str:
        return self.html_names.get(field_name, field_name)


class LogInForm(FocusesFirstError, WorkForm, _FieldNames, allauth_forms.LoginForm):
    html_names = {"login": "username"}
    field_of_refusal = "password"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["login"] = forms.CharField(
            label="Email or username",
            max_length=NAME_LENGTH_MAX,
            error_messages={"required": "Enter your email address or username."},
            widget=forms.TextInput(
                attrs={"autocomplete": "username webauthn", "inputmode": "email", "autofocus": True}
            ),
        )
        self.fields["password"] = _password_field("Password", "current-password")
        self.order_fields(["login", "password"])

    def clean(self) -> Any:
        self.require_work()
        return super().clean()

    def clean_login(self) -> str:
        return account_name(self.cleaned_data["login"])

    def user_credentials(self) -> dict[str, Any]:
        return {"username": self.cleaned_data["login"], "password": self.cleaned_data["password"]}

    def _clean_with_password(self, credentials: dict[str, Any]) -> dict[str, Any]:
        # One check of the password, by name. allauth would also look for the address among those of other accounts.
        user = get_adapter(self.request).authenticate(self.request, **credentials)
        if user is None:
            code = "mismatch_or_unconfirmed" if is_confirmation_required() else "email_password_mismatch"
            raise get_adapter().validation_error(code)
        self.user, self._login = user, Login(user=user)
        return dict(self.cleaned_data)


class SignUpForm(FocusesFirstError, _FieldNames, allauth_forms.SignupForm):
    html_names = {"email": "username", "password1": "password"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["email"] = AddressField(
            label="Email address",
            max_length=NAME_LENGTH_MAX,
            help_text="We’ll email you a link to confirm it.",
            error_messages=_ADDRESS_MESSAGES,
            widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True}),
        )
        self.fields["password1"].label = "Password"
        self.fields["password1"].help_text = _NEW_HELP
        self.fields["password1"].error_messages["required"] = "Enter a password."
        self.fields["password1"].widget.attrs = {"autocomplete": "new-password"}

    def validate_unique_email(self, value: str) -> str:
        """Return the address. If it has an account, raise an error; but if addresses must be confirmed, act as for a
        new one and mail the owner, so that the response does not reveal the account."""
        if User.objects.filter(email=value).exists():
            if not is_confirmation_required():
                raise get_adapter().validation_error("email_taken")
            self.account_already_exists = True
        return value

    def try_save(self, request: HttpRequest) -> Any:
        if self.account_already_exists:
            make_password(self.cleaned_data["password1"])  # The response takes as long as for a new account.
        return super().try_save(request)


class ChangePasswordForm(FocusesFirstError, allauth_forms.ChangePasswordForm):
    user: User

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["oldpassword"] = _password_field("Current password", "current-password")
        _relabel(self)
        self.order_fields(["oldpassword", "password1", "password2"])

    def clean_oldpassword(self) -> str:
        # Through the authentication backend, which limits attempts.
        password = str(self.cleaned_data["oldpassword"])
        if not get_adapter().reauthenticate(self.user, password):
            raise get_adapter().validation_error("enter_current_password")
        return password

    def clean(self) -> dict[str, Any] | None:
        # Each change ends the links that reset the password: a thief who is logged in must not end all of them.
        changes = security_log.count_recent(self.user, SecurityEvent.Kind.PASSWORD_CHANGED, timedelta(hours=1))
        if changes >= CHANGES_PER_HOUR_MAX:
            raise forms.ValidationError(
                "This password has been changed several times within an hour. Wait an hour, or log out and choose "
                "“Forgot your password?”."
            )
        return super().clean()


class SetPasswordForm(FocusesFirstError, allauth_forms.SetPasswordForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _relabel(self)


class ResetPasswordKeyForm(FocusesFirstError, allauth_forms.ResetPasswordKeyForm):
    user: User

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _relabel(self)

    def save(self) -> None:
        self.user.reset_password(self.cleaned_data["password1"])


class ReauthenticateForm(FocusesFirstError, allauth_forms.ReauthenticateForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["password"] = _password_field("Password", "current-password")


class ResetPasswordForm(FocusesFirstError, allauth_forms.ResetPasswordForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["email"] = _email_field("Email address")

    def clean_email(self) -> str:
        email = str(self.cleaned_data["email"]).lower()
        # Not by addresses that an account has yet to confirm: these may be another person's.
        self.users = list(User.objects.filter(email=email, is_active=True))
        return email


class ChangeEmailForm(FocusesFirstError, forms.Form):
    email = AddressField()

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user
        self.fields["email"] = _email_field("New email address")

    def clean_email(self) -> str:
        email = str(self.cleaned_data["email"]).lower()
        if email == self.user.email and EmailAddress.objects.filter(user=self.user, email=email, verified=True):
            raise forms.ValidationError("This is your current email address, and it is confirmed.")
        return email

    def save(self) -> EmailAddress:
        """Store the address as the one to confirm, instead of an earlier one, and return it."""
        email = self.cleaned_data["email"]
        pending = EmailAddress.objects.filter(user=self.user, verified=False)
        pending.exclude(email__in=(self.user.email, email)).delete()
        address, _ = EmailAddress.objects.get_or_create(user=self.user, email=email)
        return address


def _email_field(label: str) -> AddressField:
    return AddressField(
        label=label,
        max_length=NAME_LENGTH_MAX,
        error_messages=_ADDRESS_MESSAGES,
        widget=forms.EmailInput(attrs={"autocomplete": "email"}),
    )


def _relabel(form: forms.Form) -> None:
    """Use our labels for the two fields of a new password, without placeholders."""
    for name, label in (("password1", "New password"), ("password2", "New password again")):
        form.fields[name].label = label
        form.fields[name].help_text = _NEW_HELP if name == "password1" else ""
        form.fields[name].error_messages["required"] = f"Enter the {label[0].lower()}{label[1:]}."
        form.fields[name].widget.attrs = {"autocomplete": "new-password"}
