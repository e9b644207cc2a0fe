"""Accounts: sign-up, log-in, log-out, and tokens for API clients. An account's name is its email address."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth import authenticate, get_user_model, login
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import password_validators_help_text_html, validate_password
from django.contrib.auth.views import LoginView, LogoutView, RedirectURLMixin
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import path, reverse
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_safe
from django.views.generic import FormView
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework_simplejwt.exceptions import ExpiredTokenError, TokenError
from rest_framework_simplejwt.settings import api_settings as jwt_settings
from rest_framework_simplejwt.tokens import AccessToken, RefreshToken

from apps.kernel import rate_limits
from apps.kernel.http import client_address, problems
from apps.kernel.http.json_body import get_json_object, refuse_unknown_fields
from apps.kernel.http.openapi import NO_STORE_HEADERS
from apps.kernel.tokens.jwt import LENGTH_MAX as TOKEN_LENGTH_MAX
from apps.orders import facade as orders
from apps.queue import facade as queue

EMAIL_LENGTH_MAX = 150  # Django's limit on names.
PASSWORD_LENGTH_MAX = 1_000
SIGNED_IN_COOKIE = "signed_in"
"""Pages are the same for every visitor. Only with this cookie do their scripts request the user's details. The cookie
neither identifies the user nor grants anything."""


_NAME_TAKEN = "An account with this email address already exists. Log in instead."


class CredentialsWrong(problems.Problem):
    type, status, title = "credentials-wrong", 401, "The email address or password is incorrect."


def account_name(typed: str) -> str:
    """Return the name under which an account is stored: an email address in lower case, any other name unchanged."""
    name = typed.strip()
    return name.lower() if "@" in name else name


def limit_password_attempts(request: HttpRequest, name: str) -> None:
    """Limit password attempts for this account name from this address. Raises problems.RateLimited. Each
    address has its own limit, so that attempts from elsewhere cannot lock out the account's owner."""
    address = client_address.address_from_environ(request.META)
    wait = rate_limits.check_request("password", address, f"{name[-40:]} {rate_limits.subject(address)}")
    if wait is not None:
        raise problems.RateLimited(wait)


class LogInForm(AuthenticationForm):
    password = forms.CharField(
        label="Password",
        strip=False,
        max_length=PASSWORD_LENGTH_MAX,  # The time for hashing grows with the length.
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    error_messages = {
        **AuthenticationForm.error_messages,
        "invalid_login": "The email address or password is incorrect. Passwords are case-sensitive.",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "Email address"
        self.fields["username"].widget.attrs |= {"autocomplete": "username", "inputmode": "email"}

    def clean_username(self) -> str:
        return account_name(self.cleaned_data["username"])

    def clean(self) -> dict[str, Any]:
        # Counted before the password is checked, because the check is expensive.
        if self.request is not None and "username" in self.cleaned_data:
            limit_password_attempts(self.request, self.cleaned_data["username"])
        return super().clean()


class SignUpForm(forms.Form):
    username = forms.EmailField(
        label="Email address",
        max_length=EMAIL_LENGTH_MAX,
        widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True}),
    )
    password = forms.CharField(
        label="Password",
        strip=False,
        max_length=PASSWORD_LENGTH_MAX,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=password_validators_help_text_html,
    )

    def clean_username(self) -> str:
        name = account_name(self.cleaned_data["username"])
        if get_user_model().objects.filter(username=name).exists():
            raise forms.ValidationError(_NAME_TAKEN)
        return name

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if "username" in cleaned and "password" in cleaned:
            try:
                validate_password(cleaned["password"], User(username=cleaned["username"], email=cleaned["username"]))
            except forms.ValidationError as error:
                self.add_error("password", error)
        return cleaned


def _set_signed_in_cookie(request: HttpRequest, response: HttpResponseBase) -> None:
    response.set_cookie(
        SIGNED_IN_COOKIE, "1", max_age=settings.SESSION_COOKIE_AGE, samesite="Lax", secure=request.is_secure()
    )


def _delete_signed_in_cookie(response: HttpResponseBase) -> None:
    response.delete_cookie(SIGNED_IN_COOKIE, samesite="Lax")


class LogIn(LoginView):
    """Log the user in, and move the browser's guest orders and queue entry to the account."""

    template_name = "registration/log_in.html"
    authentication_form = LogInForm
    redirect_authenticated_user = True

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = super().dispatch(request, *args, **kwargs)
        if request.user.is_authenticated:
            # Set also for users who logged in through the admin, or before this cookie existed.
            _set_signed_in_cookie(request, response)
        return response

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        # Done before the session starts: if this fails, the form can be sent again.
        orders.attach_orders(queue.visitor_id_of(self.request), form.get_user().pk)
        response = super().form_valid(form)
        # Done afterwards, because an anonymous browser does not see a queue entry that already belongs to the account.
        queue.merge_guest_entries(queue.visitor_id_of(self.request), form.get_user().pk)
        return response


@method_decorator([sensitive_post_parameters("password"), never_cache], name="dispatch")
class SignUp(RedirectURLMixin, FormView):
    """Create the account, log the user in, and move the browser's guest orders and queue entry to the account."""

    template_name = "registration/sign_up.html"
    form_class = SignUpForm
    next_page = "events:catalog"

    def form_valid(self, form: SignUpForm) -> HttpResponse:
        name, password = form.cleaned_data["username"], form.cleaned_data["password"]
        try:
            with transaction.atomic():
                user = get_user_model().objects.create_user(username=name, email=name, password=password)
        except IntegrityError:
            # A concurrent sign-up has taken the name.
            form.add_error("username", _NAME_TAKEN)
            return self.form_invalid(form)
        orders.attach_orders(queue.visitor_id_of(self.request), user.pk)
        login(self.request, user, backend="django.contrib.auth.backends.ModelBackend")
        queue.merge_guest_entries(queue.visitor_id_of(self.request), user.pk)
        response = super().form_valid(form)
        _set_signed_in_cookie(self.request, response)
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        # LoginView adds `next` too. `get_redirect_url` returns only URLs of this site.
        return super().get_context_data(**kwargs) | {"next": self.get_redirect_url()}


class LogOut(LogoutView):
    """Log the user out in this browser."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = super().post(request, *args, **kwargs)
        _delete_signed_in_cookie(response)
        return response


@require_safe
def current_user(request: HttpRequest) -> HttpResponse:
    """Return the part of shared pages that depends on the user: the header's account items and pending messages."""
    if request.user.is_authenticated:
        response = render(request, "who.html")
    else:
        response = HttpResponse(status=204)
        _delete_signed_in_cookie(response)
    return response


def form_is_stale(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Respond to a form with an outdated CSRF token: its page was opened before a log-in, for example in another tab.

    If the user is signed in by now, redirect as after the log-in or sign-up. Otherwise link to the page.
    """
    if problems.is_api(request):
        return problems.respond(problems.CrossOrigin())
    match = request.resolver_match
    if match is not None and match.url_name in ("log_in", "sign_up") and request.user.is_authenticated:
        view = LogIn()
        view.setup(request)
        return HttpResponseRedirect(view.get_success_url())
    page = request.headers.get("Referer", "")
    is_ours = url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure())
    context = {
        "title": "This page has expired",
        "detail": "Your input was not saved. Reload the page and try again. Cookies must be enabled.",
        "action_url": page if is_ours else reverse("events:catalog"),
        "action_label": "Reload the page" if is_ours else "See all events",
    }
    return render(request, "problem.html", context, status=403)


class Credentials(serializers.Serializer):
    username = serializers.CharField(
        max_length=EMAIL_LENGTH_MAX, trim_whitespace=False, help_text="The account's email address."
    )
    password = serializers.CharField(max_length=PASSWORD_LENGTH_MAX, trim_whitespace=False)


class Refresh(serializers.Serializer):
    refresh = serializers.CharField(max_length=TOKEN_LENGTH_MAX, trim_whitespace=False)


class Access(serializers.Serializer):
    access = serializers.CharField()


class TokenPair(Access):
    refresh = serializers.CharField()


def _read_body(form: type[serializers.Serializer], request: Request) -> dict[str, Any]:
    """Return the body's values. Raises Invalid, also for a field that the form does not have."""
    body = get_json_object(request)
    given = form(data=body)
    refuse_unknown_fields(body, given.fields)
    given.is_valid(raise_exception=True)
    return dict(given.validated_data)


class Tokens(APIView):
    @extend_schema(
        operation_id="obtain_tokens",
        summary="Tokens for an email address and a password",
        tags=["accounts"],
        auth=[],
        request=Credentials,
        responses={200: TokenPair, 401: OpenApiResponse(description="`credentials-wrong`")},
    )
    def post(self, request: Request) -> Response:
        credentials = _read_body(Credentials, request)
        name = account_name(credentials["username"])
        limit_password_attempts(request._request, name)
        user = authenticate(request._request, username=name, password=credentials["password"])
        if user is None:
            raise CredentialsWrong
        refresh = RefreshToken.for_user(user)
        return Response({"access": str(refresh.access_token), "refresh": str(refresh)}, headers=NO_STORE_HEADERS)


class TokensRefreshed(APIView):
    @extend_schema(
        operation_id="refresh_token",
        summary="A new access token for a refresh token",
        tags=["accounts"],
        auth=[],
        request=Refresh,
        responses={200: Access, 401: OpenApiResponse(description="`token-invalid`, `token-expired`")},
    )
    def post(self, request: Request) -> Response:
        given = _read_body(Refresh, request)
        try:
            refresh = RefreshToken(given["refresh"])
        except ExpiredTokenError as error:
            raise problems.TokenExpired from error
        except (TokenError, RecursionError) as error:
            raise problems.TokenInvalid from error
        user = get_user_model().objects.filter(pk=refresh.get(jwt_settings.USER_ID_CLAIM), is_active=True).first()
        if user is None:
            raise problems.TokenInvalid("The account of this token no longer exists or is inactive.")
        return Response({"access": str(AccessToken.for_user(user))}, headers=NO_STORE_HEADERS)


page_urls = [
    path("accounts/sign-up", SignUp.as_view(), name="sign_up"),
    path("accounts/log-in", LogIn.as_view(), name="log_in"),
    path("accounts/log-out", LogOut.as_view(), name="log_out"),
    path("accounts/who", current_user, name="who"),
]

api_urls = [
    path("auth/token", Tokens.as_view(), name="token"),
    path("auth/token/refresh", TokensRefreshed.as_view(), name="token_refresh"),
]
