"""Authentication: a request's caller is an account, a browser, or the queue entry that a token names.

A waiting browser also has a place cookie, so that its polls need no lookup. The cookie is accepted only to show the
wait: to join, claim, leave, hold and pay, the account or browser is authenticated.

A browser is identified by its visitor secret: a random text in its signed cookie, or sent as `visitor_id` with a join.
The server stores only the visitor id, an HMAC of the secret. A stored id is therefore not a credential: it identifies a
browser, but gives access to nothing.
"""

import hashlib
import re
import secrets
import uuid
from base64 import urlsafe_b64encode
from datetime import datetime, timedelta
from hmac import compare_digest
from typing import NamedTuple

from django.conf import settings
from django.contrib.auth.middleware import get_user
from django.core.signing import BadSignature, TimestampSigner
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from rest_framework_simplejwt.exceptions import ExpiredTokenError, TokenError

from apps.accounts import facade as accounts
from apps.kernel import clock, secret_key
from apps.kernel.http import problems, same_origin
from apps.kernel.http.request_types import AnyRequest, AnyResponse
from apps.kernel.tokens import jwt
from apps.queue.models import QueueEntry

PLACE_COOKIE = "place"
"""The same name for all events. Each event has its own cookie path, so a request has at most one."""
PLACE_COOKIES_MAX = 50
"""Place cookies that one response deletes. The others are refused, since the session that they name has ended."""
VISITOR_COOKIE = "visitor"
VISITOR_COOKIE_DAYS = 365
QUEUE_TOKEN_DAYS = 7
ADMISSION_TOKEN_HOURS = 24  # Longer than an admission: the deadline is in the entry, the token identifies it.
VISITOR_ID_BYTES = 24
_VISITOR_SECRET = re.compile(r"[A-Za-z0-9_-]{8,64}")
QUEUE_TOKEN_TYPES = frozenset({"queue", "admission"})
_signer = TimestampSigner(salt="visitor")


class Caller(NamedTuple):
    """The identity that a request proves. Without one, all fields are empty."""

    account_id: int | None = None
    visitor_id: str = ""
    """Derived from the browser's secret; see `visitor_id_of_secret`."""
    entry_id: uuid.UUID | None = None
    event_slug: str = ""
    """The token's event; empty without a token."""
    in_line: bool = False
    """Identified by a queue token or a place cookie: while the entry waits, its polls need no database."""
    number: int | None = None
    """The number in the token or cookie; None in the lobby, and always None without `in_line`."""
    account_version: accounts.AccountVersion | None = None
    """The version of the account that the session, account token or admission token belongs to."""
    account_since: datetime | None = None
    """When the account was created."""

    @property
    def is_known(self) -> bool:
        return self.account_id is not None or bool(self.visitor_id) or self.entry_id is not None

    @property
    def proven_account_id(self) -> int | None:
        """The account of the session or account token, or the one that the admission token was issued to."""
        return self.account_version.account_id if self.account_version is not None else self.account_id

    def may_use_account(self, account_id: int | None) -> bool:
        """Return whether the caller may use an entry or order of this account; None: of a guest.

        A token that a guest got names the entry of an account once a log-in has merged the entry. It has no account
        version and ends with no password change, so it gives access to nothing of the account.
        """
        return account_id is None or account_id == self.proven_account_id


def new_visitor_secret() -> str:
    return secrets.token_urlsafe(18)


def check_visitor_secret(value: object) -> str:
    """Return the visitor secret that a client sent as `visitor_id`. It must be random: it gives access to the entry.
    Raises Invalid."""
    if not isinstance(value, str) or not _VISITOR_SECRET.fullmatch(value):
        raise problems.Invalid({"visitor_id": "8 to 64 letters, digits, - or _"})
    return value


def visitor_id_of_secret(secret: str) -> str:
    """Return the visitor id of the browser with this secret: 32 characters of base64."""
    return urlsafe_b64encode(secret_key.keyed_digest("visitor", secret)[:VISITOR_ID_BYTES]).decode("ascii")


def visitor_id_of(request: AnyRequest) -> str:
    """Return the visitor id of the browser, from its signed cookie; empty without a valid one."""
    cookie = request.COOKIES.get(VISITOR_COOKIE)
    if not cookie:
        return ""
    try:
        return visitor_id_of_secret(_signer.unsign(cookie, max_age=timedelta(days=VISITOR_COOKIE_DAYS)))
    except BadSignature:
        return ""


def sends_visitor_cookie(request: AnyRequest) -> bool:
    """Return whether the request has a visitor cookie, valid or not: only browsers do."""
    return VISITOR_COOKIE in request.COOKIES


def set_visitor_cookie(request: AnyRequest, response: AnyResponse, secret: str) -> None:
    """Set the cookie with the browser's secret."""
    response.set_cookie(
        VISITOR_COOKIE,
        _signer.sign(secret),
        max_age=timedelta(days=VISITOR_COOKIE_DAYS),
        httponly=True,
        samesite="Lax",
        secure=request.is_secure(),
    )


def authenticate(request: HttpRequest, event_slug: str | None = None) -> Caller:
    """Return the caller: by the bearer token if there is one, else by session and visitor cookie.

    Raises TokenInvalid, TokenExpired, and TokenWrongEvent when a token names another event than `event_slug`.
    """
    header = request.headers.get("Authorization")
    if header is not None:
        return _authenticate_token(_parse_bearer(header), event_slug)
    # A DRF view sets a user of its own on the request, so the session itself is read.
    session_request = getattr(request, "_request", request)
    user = get_user(session_request)
    visitor_id = visitor_id_of(request)
    if not isinstance(user, accounts.User):
        return Caller(visitor_id=visitor_id)
    version = accounts.AccountVersion(user.pk, user.token_version)
    return Caller(account_id=user.pk, visitor_id=visitor_id, account_version=version, account_since=user.date_joined)


def authenticate_from_token(request: AnyRequest, event_slug: str | None = None) -> Caller | None:
    """Return the caller if no lookup is needed: for a queue token, a guest's browser or an unidentified caller. Return
    None for a session or an account token. Raises the errors of `authenticate`."""
    header = request.headers.get("Authorization")
    if header is None:
        return None if settings.SESSION_COOKIE_NAME in request.COOKIES else Caller(visitor_id=visitor_id_of(request))
    token = _parse_bearer(header)
    if not jwt.has_key_id(token) and jwt.peek_type(token) == "access":
        return None
    return _authenticate_queue_token(token, event_slug)


def account_token_of(request: AnyRequest) -> str | None:
    """Return the request's account token; None if it has a session instead. Raises TokenInvalid."""
    header = request.headers.get("Authorization")
    return None if header is None else _parse_bearer(header)


def _parse_bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise problems.TokenInvalid("Send Authorization: Bearer and a token.")
    return token.strip()


def _authenticate_token(token: str, event_slug: str | None) -> Caller:
    if jwt.peek_type(token) == "access":
        try:
            # The class accepts the text itself, contrary to its annotation.
            user = accounts.AccessToken(token).account()  # type: ignore[arg-type]
        except ExpiredTokenError as error:
            raise problems.TokenExpired from error
        except TokenError as error:
            raise problems.TokenInvalid from error
        if user is None:
            raise problems.TokenInvalid
        version = accounts.AccountVersion(user.pk, user.token_version)
        return Caller(account_id=user.pk, account_version=version, account_since=user.date_joined)
    caller = _authenticate_queue_token(token, event_slug)
    if caller.account_version is not None and not accounts.is_current(caller.account_version):
        raise problems.TokenInvalid
    return caller


def _authenticate_queue_token(token: str, event_slug: str | None) -> Caller:
    claims = jwt.verify(token, QUEUE_TOKEN_TYPES, audience=event_slug)
    try:
        entry_id = uuid.UUID(claims.subject)
    except ValueError as error:
        raise problems.TokenInvalid from error
    if claims.typ != "queue":
        version = _version_of(claims)
        if version is not None and accounts.is_revoked(version):
            raise problems.TokenInvalid
        return Caller(entry_id=entry_id, event_slug=claims.audience, account_version=version)
    return Caller(entry_id=entry_id, event_slug=claims.audience, in_line=True, number=number_of(claims))


def issue_queue_token(entry_id: uuid.UUID, event_slug: str, number: int | None) -> str:
    return jwt.issue("queue", str(entry_id), timedelta(days=QUEUE_TOKEN_DAYS), event_slug, num=number)


def issue_admission_token(
    entry_id: uuid.UUID, event_slug: str, number: int | None, version: accounts.AccountVersion | None
) -> str:
    """Return a token for the entry; for the entry of an account, one that ends with the account's version."""
    claims = {} if version is None else {"acc": version.account_id, "ver": version.version}
    lifetime = timedelta(hours=ADMISSION_TOKEN_HOURS)
    return jwt.issue("admission", str(entry_id), lifetime, event_slug, num=number, **claims)


def _version_of(claims: jwt.Claims) -> accounts.AccountVersion | None:
    account_id = claims.values.get("acc")
    return None if account_id is None else accounts.AccountVersion(account_id, claims.values["ver"])


def caller_from_place_cookie(request: AnyRequest, event_slug: str) -> Caller | None:
    """Return the entry that this browser's place cookie names in this event's queue, without a lookup. None without a
    cookie, or if another user uses the browser now. Use it only to show the wait; before a claim, a leave or a hold,
    call `authenticate`."""
    claims = None if "Authorization" in request.headers else _place_claims(request, event_slug)
    if claims is None:
        return None
    try:
        entry_id = uuid.UUID(claims.subject)
    except ValueError:
        return None
    return Caller(entry_id=entry_id, event_slug=event_slug, in_line=True, number=number_of(claims))


def set_place_cookie(
    request: AnyRequest, response: AnyResponse, event_slug: str, entry_id: uuid.UUID, number: int | None
) -> None:
    """Set the place cookie if the client is a browser: it sent no token, and has our cookies or sent the request from
    one of our pages. A cookie that the browser already has is not sent again."""
    if "Authorization" in request.headers or not _is_browser(request):
        return
    known = caller_from_place_cookie(request, event_slug)
    if (
        known is not None
        and (known.entry_id, known.number) == (entry_id, number)
        and not _is_renewal_due(request, event_slug)
    ):
        return
    lifetime = timedelta(days=QUEUE_TOKEN_DAYS)
    response.set_cookie(
        PLACE_COOKIE,
        jwt.issue("place", str(entry_id), lifetime, event_slug, num=number, who=_browser_digest(request, response)),
        max_age=lifetime,
        path=_place_path(event_slug),
        httponly=True,
        samesite="Lax",
        secure=request.is_secure(),
    )


def delete_place_cookie(request: AnyRequest, response: AnyResponse, event_slug: str) -> None:
    """Delete the place cookie of this event."""
    if PLACE_COOKIE in request.COOKIES:
        response.delete_cookie(PLACE_COOKIE, path=_place_path(event_slug), samesite="Lax")


def delete_place_cookies(response: HttpResponseBase, account_id: int) -> None:
    """Delete the place cookies of the account's live queue entries. The request does not have them, because each
    belongs to the path of its event."""
    entries = QueueEntry.objects.filter(account=account_id, status__in=QueueEntry.LIVE)
    for slug in entries.values_list("event__slug", flat=True)[:PLACE_COOKIES_MAX]:
        response.delete_cookie(PLACE_COOKIE, path=_place_path(slug), samesite="Lax")


def ensure_visitor_cookie(request: AnyRequest, response: AnyResponse, secret: str) -> None:
    """Set the visitor cookie to the secret that the page's script sent, unless the browser has one. The cookie
    identifies the visitor without the script, too. Ignores requests from other sites: these must not set an
    identity."""
    if (
        same_origin.is_same_origin_request(request)
        and "Authorization" not in request.headers
        and not visitor_id_of(request)
    ):
        set_visitor_cookie(request, response, secret)


def _is_browser(request: AnyRequest) -> bool:
    ours = settings.SESSION_COOKIE_NAME in request.COOKIES or VISITOR_COOKIE in request.COOKIES
    return ours or bool(same_origin.is_same_origin_request(request))


def _place_path(event_slug: str) -> str:
    return reverse("queue_api_queue", args=[event_slug])


def _place_claims(request: AnyRequest, event_slug: str) -> jwt.Claims | None:
    cookie = request.COOKIES.get(PLACE_COOKIE)
    if not cookie:
        return None
    try:
        claims = jwt.verify(cookie, frozenset({"place"}), event_slug)
    except problems.Problem:
        return None
    who = claims.values.get("who")
    return claims if isinstance(who, str) and compare_digest(who, _browser_digest(request)) else None


def _is_renewal_due(request: AnyRequest, event_slug: str) -> bool:
    claims = _place_claims(request, event_slug)
    days_left = 0.0 if claims is None else (claims.values["exp"] - clock.process_now().timestamp()) / 86_400
    return days_left < QUEUE_TOKEN_DAYS / 2


def _browser_digest(request: AnyRequest, response: "AnyResponse | None" = None) -> str:
    """Return a digest of the browser's session and visitor cookies, as they are after this response. Logging in or out
    changes the session cookie, so a place cookie set before is no longer accepted."""
    text = "place"
    for name in (settings.SESSION_COOKIE_NAME, VISITOR_COOKIE):
        given = response.cookies[name].value if response is not None and name in response.cookies else None
        text += "\n" + (request.COOKIES.get(name, "") if given is None else given)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def number_of(claims: jwt.Claims) -> int | None:
    """Return the number in a token or cookie; None in the lobby."""
    number = claims.values.get("num")
    return number if type(number) is int and number > 0 else None
