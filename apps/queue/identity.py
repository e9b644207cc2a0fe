"""Whom a request speaks for: an account, a browser, or the queue entry a token names."""

import re
import secrets
import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.middleware import get_user
from django.core.signing import BadSignature, TimestampSigner
from django.http import HttpRequest, HttpResponse
from rest_framework.exceptions import AuthenticationFailed
from rest_framework_simplejwt.authentication import JWTAuthentication
from rest_framework_simplejwt.exceptions import ExpiredTokenError, TokenError
from rest_framework_simplejwt.tokens import AccessToken

from ticketing.kernel import problems, tokens

VISITOR_COOKIE = "visitor"
VISITOR_COOKIE_DAYS = 365
QUEUE_TOKEN_DAYS = 7
ADMISSION_TOKEN_HOURS = 24  # The admission itself is judged by the entry; the token speaks for its owner till later.
_VISITOR_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")
_signer = TimestampSigner(salt="visitor")


@dataclass(frozen=True, slots=True)
class Caller:
    """Everything a request proves about its sender; all empty: nothing."""

    account_id: int | None = None
    visitor_id: str = ""
    entry_id: uuid.UUID | None = None
    event_slug: str = ""
    """The event the token names; empty without one."""
    in_line: bool = False
    """Named by what is kept while waiting (a queue token): asking where it stands need not ask the ledger."""
    number: int | None = None
    """The place's number as that says; None: of the lobby."""

    @property
    def is_known(self) -> bool:
        return self.account_id is not None or bool(self.visitor_id) or self.entry_id is not None


def new_visitor_id() -> str:
    return secrets.token_urlsafe(18)


def check_visitor_id(value: object) -> str:
    """The id as sent by a client. Raises Invalid."""
    if not isinstance(value, str) or not _VISITOR_ID.fullmatch(value):
        raise problems.Invalid({"visitor_id": "8 to 64 letters, digits, - or _"})
    return value


def visitor_of(request: HttpRequest) -> str:
    """The browser's id from its signed cookie; empty without a valid one."""
    try:
        return _signer.unsign(request.COOKIES.get(VISITOR_COOKIE, ""), max_age=timedelta(days=VISITOR_COOKIE_DAYS))
    except BadSignature:
        return ""


def set_visitor_cookie(request: HttpRequest, response: HttpResponse, visitor_id: str) -> None:
    """The browser keeps this id from now on."""
    response.set_cookie(
        VISITOR_COOKIE,
        _signer.sign(visitor_id),
        max_age=timedelta(days=VISITOR_COOKIE_DAYS),
        httponly=True,
        samesite="Lax",
        secure=request.is_secure(),
    )


def caller_of(request: HttpRequest, event_slug: str | None = None) -> Caller:
    """Whom the request speaks for: the bearer token if there is one, else session and visitor cookie.

    Raises TokenInvalid, TokenExpired, and TokenWrongEvent when a token names another event than `event_slug`.
    """
    header = request.headers.get("Authorization")
    if header is not None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise problems.TokenInvalid("Send Authorization: Bearer and a token.")
        return _caller_of_token(request, token.strip(), event_slug)
    # A DRF view puts its own idea of a user on the request, so the session itself is asked.
    session_request = getattr(request, "_request", request)
    user = get_user(session_request)
    return Caller(account_id=user.pk if user.is_authenticated else None, visitor_id=visitor_of(request))


def _caller_of_token(request: HttpRequest, token: str, event_slug: str | None) -> Caller:
    if tokens.peek_type(token) == "access":
        try:
            # The class takes the text itself, whatever its annotation says.
            user = JWTAuthentication().get_user(AccessToken(token))  # type: ignore[arg-type]
        except ExpiredTokenError as error:
            raise problems.TokenExpired from error
        except (TokenError, AuthenticationFailed) as error:
            raise problems.TokenInvalid from error
        return Caller(account_id=user.pk)
    claims = tokens.read(token, frozenset({"queue", "admission"}), audience=event_slug)
    try:
        entry_id = uuid.UUID(claims.subject)
    except ValueError as error:
        raise problems.TokenInvalid from error
    if claims.typ != "queue":
        return Caller(entry_id=entry_id, event_slug=claims.audience)
    number = claims.values.get("num")
    return Caller(
        entry_id=entry_id,
        event_slug=claims.audience,
        in_line=True,
        number=number if isinstance(number, int) and number > 0 else None,
    )


def issue_queue_token(entry_id: uuid.UUID, event_slug: str, number: int | None) -> str:
    return tokens.issue("queue", str(entry_id), timedelta(days=QUEUE_TOKEN_DAYS), event_slug, num=number)


def issue_admission_token(entry_id: uuid.UUID, event_slug: str, number: int | None) -> str:
    return tokens.issue("admission", str(entry_id), timedelta(hours=ADMISSION_TOKEN_HOURS), event_slug, num=number)
