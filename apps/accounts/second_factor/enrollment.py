"""Confirmed addresses, and who may add a second factor: a user whose email address is confirmed, and staff.

Otherwise a stranger could sign up with another person's address, and lock the owner out for good with a second factor.
Staff accounts are created by an administrator.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.account.models import EmailAddress
from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect

from apps.accounts.models import User

View = Callable[..., HttpResponseBase]


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
