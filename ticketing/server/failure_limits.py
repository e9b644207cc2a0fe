"""Limits of requests of which only those that fail are limited: static files that do not exist, and webhooks without a
valid signature. Both are refused in `web`, before they take a thread of the site.
"""

from collections.abc import Callable, Mapping

from apps.kernel import rate_limits
from apps.kernel.fastpath.request import Scope
from apps.kernel.http import client_address
from apps.kernel.http.problems import RateLimited

STATIC_FOLDER = "/static/"
STATIC_FILES_MAX = 4_096
WEBHOOKS_FOLDER = "/api/webhooks/"
_SERVED = frozenset((200, 206, 304))

IsSigned = Callable[[str, bytes, Mapping[str, str]], bool]
"""Returns whether a provider has signed this webhook, given its path, body and headers (names in lower case)."""


class StaticFiles:
    """The static files that the site has served to this process. Requests for them are not limited. A request for
    another file counts as one for a page, so the first one for an existing file does, too."""

    def __init__(self) -> None:
        self._served: set[str] = set()

    def has_served(self, scope: Scope) -> bool:
        return scope["path"] in self._served and scope["method"] in ("GET", "HEAD")

    def note_response(self, scope: Scope, status: int) -> None:
        path: str = scope["path"]
        if status in _SERVED and path.startswith(STATIC_FOLDER) and len(self._served) < STATIC_FILES_MAX:
            self._served.add(path)


class Webhooks:
    """Limits the refused webhooks of each address. Beyond the limit only webhooks with a valid signature are forwarded:
    a provider's webhook is never refused, even if an attacker shares its address."""

    def __init__(self, is_signed: IsSigned | None) -> None:
        self._is_signed = is_signed

    def require_allowed(self, scope: Scope, content: bytes) -> None:
        """Raise RateLimited for a webhook without a valid signature from an address with too many of them."""
        address = self._address_of(scope)
        wait = rate_limits.attempt_wait("webhook", address, "") if address else None
        if wait is not None:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            if self._is_signed is None or not self._is_signed(scope["path"], content, headers):
                raise RateLimited(wait)

    def note_response(self, scope: Scope, status: int) -> None:
        """Count a webhook that the site has refused."""
        if 400 <= status < 500 and (address := self._address_of(scope)):
            rate_limits.record_attempt("webhook", address, "")

    def _address_of(self, scope: Scope) -> str:
        """Return the address of a webhook's sender; empty for another request, and for an exempt address."""
        if scope["method"] != "POST" or not scope["path"].startswith(WEBHOOKS_FOLDER):
            return ""
        address = client_address.address_from_scope(scope)
        return address if rate_limits.subject(address) else ""
