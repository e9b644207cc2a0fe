"""Records the use of sessions, for the list of an account's devices."""

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from apps.accounts.models import User
from apps.accounts.sessions import account_sessions
from apps.kernel import clock
from apps.kernel.fastpath import cache

INTERVAL_SECONDS = 300
"""A process records a session at most once in this time, so that pages cost no further statement."""
SESSIONS_MAX = 10_000


class _Recorded:
    """When this process last recorded which session of which version, in seconds."""

    def __init__(self) -> None:
        self.at: dict[tuple[str, int], float] = {}

    def clear(self) -> None:
        self.at.clear()

    def is_due(self, key: tuple[str, int]) -> bool:
        """Return whether the session has to be recorded now, and count it as recorded."""
        now = clock.process_seconds()
        if now - self.at.get(key, -INTERVAL_SECONDS) < INTERVAL_SECONDS:
            return False
        if len(self.at) >= SESSIONS_MAX:
            self.clear()
        self.at[key] = now
        return True


_recorded = cache.register(_Recorded())


class SessionRecorder(MiddlewareMixin):
    """Comes after the authentication. Pages that are the same for every visitor read no session and record none."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        # A page for every visitor has not read the session, and must not depend on it.
        user = request.user if request.session.accessed else None
        key = request.session.session_key
        if not isinstance(user, User):
            return response
        if key is not None and _recorded.is_due((key, user.token_version)):
            account_sessions.record(request, user)
        return response
