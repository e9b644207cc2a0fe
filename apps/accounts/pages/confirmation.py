"""The page of a link that confirms an email address, which shows which account asks for it.

An opened link proves only that the mailbox's owner opened it, not that the account belongs to this person. A stranger
can ask for another person's address, and would receive that person's orders with one careless click. So the account
itself takes part: by a session that is logged in as it or has just signed up, or, for a sign-up, by its password.
Without an account, its owner can only end the request.
"""

from typing import Any

from allauth.account import views as allauth_views
from allauth.account.internal.flows.login import perform_password_login
from allauth.account.models import EmailAddress, Login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from apps.accounts import pending_address
from apps.accounts.models import User
from apps.accounts.pages.forms import ReauthenticateForm

_SIGNED_UP = "signed_up_account"


class ConfirmAddress(allauth_views.ConfirmEmailView):
    """Confirm the address for the account that asked for it, or end the request."""

    http_method_names = ["get", "head", "post", "options"]

    def get(self, *args: Any, **kwargs: Any) -> HttpResponse:
        # Unlike allauth's, this logs no other account out: any mail could do it with a link.
        try:
            self.object = self.get_object()
        except Http404:
            self.object = None
            return self.render_to_response(self.get_context_data())
        return self._show()

    def post(self, *args: Any, **kwargs: Any) -> HttpResponse:
        self.object = self.get_object()
        address = self.object.email_address
        if "decline" in self.request.POST:
            pending_address.decline(address)
            return render(self.request, "accounts/address_declined.html", {"email": address.email})
        if _is_session_of(self.request, address.user):
            return super().post(*args, **kwargs)
        if not _asks_for_password(self.request, address):
            return self._show()
        form = ReauthenticateForm(self.request.POST, user=address.user)
        if not form.is_valid():
            return self._show(form)
        response = super().post(*args, **kwargs)
        if not EmailAddress.objects.filter(pk=address.pk, verified=True).exists():
            return response
        credentials = {"username": address.user.username}
        return perform_password_login(self.request, credentials, Login(user=address.user))

    def _show(self, form: ReauthenticateForm | None = None) -> HttpResponse:
        address = self.object.email_address
        if form is None and _asks_for_password(self.request, address):
            form = ReauthenticateForm(user=address.user)
        context = self.get_context_data() | {
            "account": pending_address.masked_name(address.user),
            "requested_at": pending_address.requested_at(self.kwargs["key"]),
            "is_change": address.email != address.user.email,
            "is_own_session": _is_session_of(self.request, address.user),
            "form": form,
            "log_in_url": reverse("log_in"),
            "path": self.request.path,
        }
        return self.render_to_response(context)


def remember_sign_up(request: HttpRequest, user: User) -> None:
    """Let this browser confirm the address of the account that it has just created, without another log-in."""
    request.session[_SIGNED_UP] = user.pk


def _is_session_of(request: HttpRequest, user: User) -> bool:
    """Return whether this browser is logged in as the account, or has signed up for it and not logged in since."""
    if request.user.is_authenticated:
        return request.user.pk == user.pk
    return request.session.get(_SIGNED_UP) == user.pk


def _asks_for_password(request: HttpRequest, address: EmailAddress) -> bool:
    """Return whether the account's password confirms the address here: that of a sign-up, which may be unable to log in
    before. A change of address is confirmed by a log-in, with its second factor."""
    return not request.user.is_authenticated and address.email == address.user.email
