"""Pages of accounts: sign-up, log-in and log-out, the account's page, and the change of its email address."""

from typing import Any

from allauth.account import views as allauth_views
from allauth.account.decorators import reauthentication_required
from allauth.account.internal.flows.signup import prevent_enumeration
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_required
from django.forms import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST
from django.views.generic import FormView, TemplateView

from apps.accounts import security_log
from apps.accounts.confirmed_addresses import is_confirmation_required
from apps.accounts.models import User
from apps.accounts.pages import confirmation
from apps.accounts.pages.adapter import delete_signed_in_cookie, set_signed_in_cookie
from apps.accounts.pages.forms import ChangeEmailForm
from apps.accounts.second_factor import codes
from apps.accounts.second_factor.enrollment import has_confirmed_address
from apps.accounts.sessions import account_sessions
from apps.kernel.http import problems


class LogIn(allauth_views.LoginView):
    """Log the user in, after a one-time code or a passkey if the account has one."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = super().dispatch(request, *args, **kwargs)
        if request.user.is_authenticated:
            # Set also for users who logged in before this cookie existed.
            set_signed_in_cookie(request, response)
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"next": self.get_next_url()}


class SignUp(allauth_views.SignupView):
    """Create the account and log the user in; if addresses must be confirmed, after the confirmation."""

    def form_valid(self, form: Any) -> HttpResponse:
        try:
            response = super().form_valid(form)
        except ValidationError as error:  # A concurrent sign-up has taken the address.
            if is_confirmation_required():
                return prevent_enumeration(self.request, email=form.cleaned_data["email"])
            form.add_error("email", error)
            return self.form_invalid(form)
        if self.user is not None:
            confirmation.remember_sign_up(self.request, self.user)
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"next": self.get_next_url()}


class LogOut(allauth_views.LogoutView):
    """Log the user out in this browser. GET only asks: a link on another page must not log a person out."""

    http_method_names = ["get", "head", "post", "options"]

    def post(self, *args: Any, **kwargs: Any) -> HttpResponse:
        is_signed_in = self.request.user.is_authenticated
        response = super().post(*args, **kwargs)
        if not is_signed_in:  # allauth sends no signal then, but a guest's cookies are deleted, too.
            logout(self.request)
        delete_signed_in_cookie(response)
        return response


@method_decorator(login_required, name="dispatch")
class AccountPage(TemplateView):
    """The user's email address, password, second factors, devices and latest log-ins."""

    template_name = "accounts/account.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        user, types = self.request.user, Authenticator.Type
        assert isinstance(user, User)
        owned = list(Authenticator.objects.filter(user=user).order_by("pk"))
        return super().get_context_data(**kwargs) | {
            "is_confirmed": has_confirmed_address(user),
            "pending_email": EmailAddress.objects.filter(user=user, verified=False).exclude(email=user.email).first(),
            "has_app": any(one.type == types.TOTP for one in owned),
            "passkeys": [one.wrap() for one in owned if one.type == types.WEBAUTHN],
            "has_recovery_codes": any(one.type == types.RECOVERY_CODES for one in owned),
            "has_second_factor": codes.has_second_factor(user),
            "sessions": [
                {"session": each, "is_this": account_sessions.is_of_request(each, self.request)}
                for each in account_sessions.list_sessions(user)
            ],
            "activity": security_log.list_own_activity(user),
        }


@method_decorator([login_required, reauthentication_required], name="dispatch")
class ChangeEmail(FormView):
    """Send a link to the new address; the account has it once the link is opened."""

    template_name = "accounts/change_email.html"
    form_class = ChangeEmailForm

    def get_form_kwargs(self) -> dict[str, Any]:
        return super().get_form_kwargs() | {"user": self.request.user}

    def form_valid(self, form: ChangeEmailForm) -> HttpResponse:
        address = form.save()
        address.send_confirmation(self.request)
        messages.info(self.request, f"We’re sending an email to {address.email}. Open its link to confirm the address.")
        return redirect("account")


@require_POST
@login_required
def log_out_everywhere(request: HttpRequest) -> HttpResponse:
    """End all other sessions and all tokens of the account; this browser stays logged in."""
    assert isinstance(request.user, User)
    if account_sessions.end_others(request, request.user):
        messages.success(request, "All other devices were logged out.")
    else:
        messages.error(
            request,
            "This account has been logged out everywhere several times within an hour. Wait an hour, or log out and "
            "choose “Forgot your password?”.",
        )
    return redirect("account")


@require_POST
@login_required
def log_out_device(request: HttpRequest, session_id: int) -> HttpResponse:
    """End one session of the account, and its tokens; the other sessions stay logged in."""
    assert isinstance(request.user, User)
    if account_sessions.end_session(request, request.user, session_id):
        security_log.record(request, security_log.Kind.DEVICE_LOGGED_OUT, request.user)
        messages.success(request, "The device was logged out.")
    else:
        messages.info(request, "That device was logged out already.")
    return redirect("account")


def form_is_stale(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Respond to a form with an outdated CSRF token: its page was opened before a log-in, for example in another tab.

    If the user is signed in by now, redirect as after the log-in or sign-up. Otherwise link to the page.
    """
    if problems.is_api(request):
        return problems.respond(problems.CrossOrigin())
    match = request.resolver_match
    if match is not None and match.url_name in ("log_in", "sign_up") and request.user.is_authenticated:
        target = request.POST.get("next", "")
        is_safe = url_has_allowed_host_and_scheme(target, {request.get_host()}, require_https=request.is_secure())
        return HttpResponseRedirect(target if is_safe else reverse("events:catalog"))
    page = request.headers.get("Referer", "")
    is_ours = url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure())
    context = {
        "title": "This page has expired",
        "detail": "Your input was not saved. Refresh the page and try again. Cookies must be enabled.",
        "action_url": page if is_ours else reverse("events:catalog"),
        "action_label": "Refresh" if is_ours else "See all events",
    }
    return render(request, "problem.html", context, status=403)
