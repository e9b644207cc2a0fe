"""Limits of failed attempts to guess a password or a one-time code: per account and address, per address, per account.

Only failures count, so that hundreds of buyers behind one address can log in. The limit per account counts failures
from all addresses. The failures of one network may use a fifth of it, and further ones are refused there, so that an
attacker at one network does not lock out the account's owner elsewhere. The limit per account does not apply to a
browser or from a network in which this account has logged in before; the fifth of a network and the limit per address
do not apply to such a browser, so that others behind the same address cannot lock it out. All processes share the
counts (`apps.kernel.rate_limits`).
"""

from datetime import timedelta
from hashlib import blake2b

from django.core.signing import BadSignature, TimestampSigner
from django.http import HttpRequest, HttpResponseBase

from apps.accounts import security_log
from apps.accounts.models import User
from apps.kernel import rate_limits
from apps.kernel.http import client_address, problems

KNOWN_BROWSER_COOKIE = "known_browser"
_KNOWN_BROWSER_DAYS = 180
_signer = TimestampSigner(salt="known browser")


def require_attempts_left(request: HttpRequest, name: str) -> None:
    """Raise RateLimited if no failed attempt is left for this account name from this address."""
    wait = rate_limits.attempt_wait("password", *_subjects(request, name))
    if wait is None and not _is_known_browser(request, name):
        # A network in which the account has logged in is no exception: the answers would tell known names apart.
        wait = rate_limits.attempt_wait("account-network", "", _name_and_network(request, name))
        if wait is None:
            wait = rate_limits.attempt_wait("account", "", _digest(name))
            if wait is not None and security_log.has_logged_in_from(request, name):
                wait = None
    if wait is not None:
        raise problems.RateLimited(wait)


def record_failure(request: HttpRequest, name: str) -> None:
    """Count a wrong password or code."""
    rate_limits.record_attempt("password", *_subjects(request, name))
    if not _is_known_browser(request, name) and rate_limits.record_attempt(
        "account-network", "", _name_and_network(request, name)
    ):
        rate_limits.record_attempt("account", "", _digest(name))


def set_known_browser_cookie(request: HttpRequest, response: HttpResponseBase, user: User) -> None:
    """Mark the browser as one in which the account has logged in. The cookie grants no access."""
    response.set_cookie(
        KNOWN_BROWSER_COOKIE,
        _signer.sign(_digest(user.username)),
        max_age=timedelta(days=_KNOWN_BROWSER_DAYS),
        path="/accounts/",
        httponly=True,
        samesite="Lax",
        secure=request.is_secure(),
    )


def _is_known_browser(request: HttpRequest, name: str) -> bool:
    try:
        known = _signer.unsign(
            request.COOKIES.get(KNOWN_BROWSER_COOKIE, ""), max_age=timedelta(days=_KNOWN_BROWSER_DAYS)
        )
    except BadSignature:
        return False
    return known == _digest(name)


def _subjects(request: HttpRequest, name: str) -> tuple[str, str]:
    """Return the address, which has a limit for all names, and the name with its network, which has another. A known
    browser has the second one only, for its whole IPv6 /48 and apart from those of other browsers."""
    address = client_address.address_from_environ(request.META)
    network = rate_limits.network_of(address)
    if _is_known_browser(request, name):
        return "", f"known {_digest(name)} {rate_limits.site_of(network) or network}"
    return address, f"{_digest(name)} {network}"


def _name_and_network(request: HttpRequest, name: str) -> str:
    """Return the name with the IPv4 address or the IPv6 /48; an empty string, which has no limit, if it is unknown."""
    network = rate_limits.network_of(client_address.address_from_environ(request.META))
    return network and f"{_digest(name)} {rate_limits.site_of(network) or network}"


def _digest(name: str) -> str:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=9).hexdigest()
