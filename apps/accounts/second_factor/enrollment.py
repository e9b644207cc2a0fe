"""The addition of a second factor, by a user whose email address is confirmed, or by staff.

Otherwise a stranger could sign up with another person's address, and lock the owner out for good with a second factor.
Staff accounts are created by an administrator.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.totp.internal import flows
from allauth.mfa.totp.views import ActivateTOTPView
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.views.generic import FormView

from apps.accounts.models import User

View = Callable[..., HttpResponseBase]


class ActivateApp(ActivateTOTPView):
    """Add the authenticator app. The code that proves it is used up: a log-in accepts only later ones."""

    def form_valid(self, form: Any) -> HttpResponse:
        with transaction.atomic():
            app, recovery_codes = flows.activate_totp(self.request, form)
            app.data["last_step"] = form.step
            app.save(update_fields=["data"])
        self.did_generate_recovery_codes = bool(recovery_codes)
        return FormView.form_valid(self, form)


def confirmed_address_required(view: View) -> View:
    """Redirect a customer with an unconfirmed address to the account's page, with a message."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        user = request.user
        if isinstance(user, User) and not user.is_staff and not has_confirmed_address(user):
            messages.error(request, "Confirm your email address first: open the link in our email.")
            return redirect("account")
        return view(request, *args, **kwargs)

    return checked


def has_confirmed_address(user: User) -> bool:
    return EmailAddress.objects.filter(user=user, email=user.email, verified=True).exists()
