"""The owner of recent searches: the account of a session, else a browser with the cookie `recents`.

The cookie contains a random secret and is set only when a browser has its first search saved, or chooses that none is.
Of two first searches at the same moment, in two tabs, the browser keeps one cookie, and so one of the searches.
The database has an HMAC of the secret, so a stored owner is no credential.
"""

import secrets
from base64 import urlsafe_b64encode
from datetime import timedelta
from typing import NamedTuple

from django.contrib.auth import get_user
from django.core.signing import BadSignature, TimestampSigner
from django.http import HttpRequest

from apps.accounts import facade as accounts
from apps.kernel import secret_key
from apps.kernel.http import same_origin
from apps.kernel.http.request_types import AnyRequest, AnyResponse

COOKIE = "recents"
COOKIE_DAYS = 365
_ID_BYTES = 24
_signer = TimestampSigner(salt="recents")


class Owner(NamedTuple):
    """An account or browser."""

    name: str
    """`account:ID`, or `browser:` and an HMAC of its secret."""
    account_id: int | None = None

    @property
    def redis_key(self) -> str:
        return redis_key_of(self.name)


def redis_key_of(name: str) -> str:
    """Return the key of an owner's copy in Redis: an HMAC, from which neither account nor browser can be computed."""
    digest = secret_key.keyed_digest("recent searches in Redis", name)[:_ID_BYTES]
    return f"recents:{{{urlsafe_b64encode(digest).decode('ascii')}}}"


def account_owner(account_id: int) -> Owner:
    return Owner(f"account:{account_id}", account_id)


def browser_owner(request: AnyRequest) -> Owner | None:
    """Return the browser by its cookie; None without a valid one."""
    cookie = request.COOKIES.get(COOKIE)
    if not cookie:
        return None
    try:
        return _owner_of_secret(_signer.unsign(cookie, max_age=timedelta(days=COOKIE_DAYS)))
    except BadSignature:
        return None


def owner_of(request: HttpRequest) -> Owner | None:
    """Return the owner of a request to the site: the session's account, else the browser; None without either."""
    user = get_user(request)
    return account_owner(user.pk) if isinstance(user, accounts.User) else browser_owner(request)


def may_get_cookie(request: AnyRequest) -> bool:
    """Return whether the response may identify the browser: not if another site sent the request."""
    return same_origin.is_same_origin_request(request) is not False


def set_new_cookie(request: AnyRequest, response: AnyResponse, secret: str) -> None:
    """Set the cookie with this secret."""
    response.set_cookie(
        COOKIE,
        _signer.sign(secret),
        max_age=timedelta(days=COOKIE_DAYS),
        httponly=True,
        samesite="Lax",
        secure=request.is_secure(),
    )


def new_browser() -> tuple[Owner, str]:
    """Return a new browser, and the secret for its cookie."""
    secret = secrets.token_urlsafe(18)
    return _owner_of_secret(secret), secret


def renew_cookie(request: AnyRequest, response: AnyResponse) -> None:
    """Set the browser's valid cookie again, with its whole lifetime."""
    set_new_cookie(request, response, _signer.unsign(request.COOKIES[COOKIE]))


def _owner_of_secret(secret: str) -> Owner:
    digest = secret_key.keyed_digest("recent searches", secret)[:_ID_BYTES]
    return Owner(f"browser:{urlsafe_b64encode(digest).decode('ascii')}")
