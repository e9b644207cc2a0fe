"""Accounts: signing up, logging in and out, and tokens for API clients. An account's name is its e-mail address."""

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
from apps.kernel.http.json_body import get_json_object
from apps.kernel.http.openapi import NO_STORE_HEADERS
from apps.kernel.tokens.jwt import LENGTH_MAX as TOKEN_LENGTH_MAX
from apps.orders import facade as orders
from apps.queue import facade as queue

EMAIL_LENGTH_MAX = 150  # Django's limit on names.
PASSWORD_LENGTH_MAX = 1_000
SIGNED_IN_COOKIE = "signed_in"
"""A hint for the script of pages that are the same for everybody: that it is worth asking who is logged in. It says not
who, it proves nothing and opens nothing."""


class CredentialsWrong(problems.Problem):
    type, status, title = "credentials-wrong", 401, "There is no account with this name and password."


def account_name(typed: str) -> str:
    """The name an account is stored under: an e-mail address in lower case, any other name as it is."""
    name = typed.strip()
    return name.lower() if "@" in name else name


def limit_password_attempts(request: HttpRequest, name: str) -> None:
    """Raises problems.RateLimited for one who tries password after password for this name. Only from that address:
    nobody can keep an account's owner out by trying."""
    address = client_address.address_from_environ(request.META)
    wait = rate_limits.check_request("password", address, f"{name[-40:]} {rate_limits.subject(address)}")
    if wait is not None:
        raise problems.RateLimited(wait)


class LogInForm(AuthenticationForm):
    password = forms.CharField(
        label="Password",
        strip=False,
        max_length=PASSWORD_LENGTH_MAX,  # Hashing takes longer the longer it is.
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    error_messages = {
        **AuthenticationForm.error_messages,
        "invalid_login": "There is no account with this address and password. Mind capital letters in the password.",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "E-mail address"
        self.fields["username"].widget.attrs |= {"autocomplete": "username", "inputmode": "email"}

    def clean_username(self) -> str:
        return account_name(self.cleaned_data["username"])

    def clean(self) -> dict[str, Any]:
        # Before the password is looked at, which is the dear part.
        if self.request is not None and "username" in self.cleaned_data:
            limit_password_attempts(self.request, self.cleaned_data["username"])
        return super().clean()


class SignUpForm(forms.Form):
    username = forms.EmailField(
        label="E-mail address",
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
            raise forms.ValidationError("There is an account with this address already: log in instead.")
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
    """Its owner is logged in, and what this browser bought as a guest is the account's, and so is its place in line."""

    template_name = "registration/log_in.html"
    authentication_form = LogInForm
    redirect_authenticated_user = True

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = super().dispatch(request, *args, **kwargs)
        if request.user.is_authenticated:
            # Also who was logged in already, by the staff's door or since before there was a hint.
            _set_signed_in_cookie(request, response)
        return response

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        # Before the session begins: where this fails, the form can be sent again.
        orders.attach_orders(queue.visitor_id_of(self.request), form.get_user().pk)
        response = super().form_valid(form)
        # After it: a place that is the account's already is not seen by a browser that is nobody yet.
        queue.merge_guest_entries(queue.visitor_id_of(self.request), form.get_user().pk)
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        # Only an address of our own is ever offered as the way on.
        return super().get_context_data(**kwargs) | {"next": self.get_redirect_url()}


@method_decorator([sensitive_post_parameters("password"), never_cache], name="dispatch")
class SignUp(RedirectURLMixin, FormView):
    """The account exists, its owner is logged in, and what this browser bought as a guest is the account's, and so is
    its place in line."""

    template_name = "registration/sign_up.html"
    form_class = SignUpForm
    next_page = "events:catalogue"

    def form_valid(self, form: SignUpForm) -> HttpResponse:
        name, password = form.cleaned_data["username"], form.cleaned_data["password"]
        try:
            with transaction.atomic():
                user = get_user_model().objects.create_user(username=name, email=name, password=password)
        except IntegrityError:
            # Two sign-ups at once: the name is unique, and the other one was first.
            form.add_error("username", "There is an account with this address already: log in instead.")
            return self.form_invalid(form)
        orders.attach_orders(queue.visitor_id_of(self.request), user.pk)
        login(self.request, user, backend="django.contrib.auth.backends.ModelBackend")
        queue.merge_guest_entries(queue.visitor_id_of(self.request), user.pk)
        response = super().form_valid(form)
        _set_signed_in_cookie(self.request, response)
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"next": self.get_redirect_url()}


class LogOut(LogoutView):
    """Nobody is logged in at this browser."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = super().post(request, *args, **kwargs)
        _delete_signed_in_cookie(response)
        return response


@require_safe
def current_user(request: HttpRequest) -> HttpResponse:
    """What a page that is the same for everybody lacks: the head's items and the messages of whoever is logged in."""
    if request.user.is_authenticated:
        response = render(request, "who.html")
    else:
        response = HttpResponse(status=204)
        _delete_signed_in_cookie(response)
    response.headers["Cache-Control"] = NO_STORE_HEADERS["Cache-Control"]
    return response


def form_is_stale(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Django's answer to a form whose token does not fit: its page was open since before a log-in, say in another tab.

    Who is logged in has what a log-in or sign-up wanted and goes on; anybody else is led to the page again.
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
        "title": "This page was open too long",
        "detail": "What you sent did not arrive. Open the page again and send it once more; it needs cookies to work.",
        "action_url": page if is_ours else reverse("events:catalogue"),
        "action_label": "Open it again" if is_ours else "See all events",
    }
    response = render(request, "problem.html", context, status=403)
    response.headers["Cache-Control"] = NO_STORE_HEADERS["Cache-Control"]
    return response


class Credentials(serializers.Serializer):
    username = serializers.CharField(max_length=EMAIL_LENGTH_MAX, help_text="The account's e-mail address.")
    password = serializers.CharField(max_length=PASSWORD_LENGTH_MAX, trim_whitespace=False)


class Refresh(serializers.Serializer):
    refresh = serializers.CharField(max_length=TOKEN_LENGTH_MAX)


class TokenPair(serializers.Serializer):
    access = serializers.CharField()
    refresh = serializers.CharField()


class Access(serializers.Serializer):
    access = serializers.CharField()


class Tokens(APIView):
    @extend_schema(
        operation_id="obtain_tokens",
        summary="Tokens for a name and a password",
        tags=["accounts"],
        auth=[],
        request=Credentials,
        responses={200: TokenPair, 401: OpenApiResponse(description="`credentials-wrong`")},
    )
    def post(self, request: Request) -> Response:
        given = Credentials(data=get_json_object(request))
        given.is_valid(raise_exception=True)
        name = account_name(given.validated_data["username"])
        limit_password_attempts(request._request, name)
        user = authenticate(
            request._request,
            username=name,
            password=given.validated_data["password"],
        )
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
        given = Refresh(data=get_json_object(request))
        given.is_valid(raise_exception=True)
        try:
            refresh = RefreshToken(given.validated_data["refresh"])
        except ExpiredTokenError as error:
            raise problems.TokenExpired from error
        except (TokenError, RecursionError) as error:
            raise problems.TokenInvalid from error
        user = get_user_model().objects.filter(pk=refresh.get(jwt_settings.USER_ID_CLAIM), is_active=True).first()
        if user is None:
            raise problems.TokenInvalid("The account of this token is gone.")
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
