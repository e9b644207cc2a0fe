"""Tokens of accounts for API clients."""

from typing import Any

from django.contrib.auth import authenticate
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework_simplejwt.exceptions import ExpiredTokenError, TokenError

from apps.accounts import security_log
from apps.accounts.confirmed_addresses import is_confirmation_required
from apps.accounts.models import NAME_LENGTH_MAX, User
from apps.accounts.passwords.backend import PASSWORD_LENGTH_MAX
from apps.accounts.second_factor import codes
from apps.accounts.tokens.account_tokens import AccessToken, RefreshToken
from apps.kernel.http import client_address, problems
from apps.kernel.http.json_body import get_json_object, refuse_unknown_fields
from apps.kernel.http.openapi import NO_STORE_HEADERS
from apps.kernel.proof_of_work.challenges import PAYLOAD_LENGTH_MAX
from apps.kernel.proof_of_work.purposes import LOG_IN
from apps.kernel.tokens.jwt import LENGTH_MAX as TOKEN_LENGTH_MAX


class CredentialsWrong(problems.Problem):
    type, status, title = "credentials-wrong", 401, "The email address or password is incorrect."


class CodeRequired(problems.Problem):
    type, status = "code-required", 401
    title = "This account has two-factor authentication: send a code of its authenticator app, or a recovery code."


class CodeWrong(problems.Problem):
    type, status, title = "code-wrong", 401, "The code is incorrect, or it was used before."


class SecondFactorRequired(problems.Problem):
    type, status = "second-factor-required", 403
    title = "Staff accounts need two-factor authentication. Set it up on your account's page."


_UNCONFIRMED = "An account that has not confirmed its address yet is refused, too: open the link in our mail first."


class Credentials(serializers.Serializer):
    username = serializers.CharField(
        max_length=NAME_LENGTH_MAX, trim_whitespace=False, help_text="The account's email address."
    )
    password = serializers.CharField(max_length=PASSWORD_LENGTH_MAX, trim_whitespace=False)
    otp = serializers.CharField(
        max_length=codes.LENGTH_MAX,
        required=False,
        help_text="A code of the authenticator app, or a recovery code, if the account has two-factor authentication.",
    )
    proof = serializers.CharField(
        required=False, max_length=PAYLOAD_LENGTH_MAX, help_text="The solution of a `work-required` refusal."
    )


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
        responses={
            200: TokenPair,
            401: OpenApiResponse(description="`credentials-wrong`, `code-required`, `code-wrong`"),
            403: OpenApiResponse(description="`second-factor-required`"),
            428: OpenApiResponse(description="`work-required`: solve `challenge`, then send the `proof` as well"),
        },
    )
    def post(self, request: Request) -> Response:
        credentials = _read_body(Credentials, request)
        site_request = request._request
        LOG_IN.check(client_address.address_from_environ(site_request.META), proof=credentials.get("proof", ""))
        user = authenticate(site_request, username=credentials["username"], password=credentials["password"])
        if user is None:
            raise CredentialsWrong(_UNCONFIRMED if is_confirmation_required() else "")
        assert isinstance(user, User)
        if codes.has_second_factor(user):
            if not (otp := credentials.get("otp")):
                raise CodeRequired
            if codes.verify_code(site_request, user, otp) is None:
                raise CodeWrong
        elif user.is_staff and codes.lacks_required_factor(user):
            raise SecondFactorRequired
        security_log.record(site_request, security_log.Kind.TOKENS_ISSUED, user)
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
            account = refresh.account()
        except ExpiredTokenError as error:
            raise problems.TokenExpired from error
        except (TokenError, RecursionError) as error:
            raise problems.TokenInvalid from error
        if account is None:
            raise problems.TokenInvalid("The account is inactive, or it was logged out everywhere. Log in again.")
        return Response({"access": str(AccessToken.for_user(account))}, headers=NO_STORE_HEADERS)
