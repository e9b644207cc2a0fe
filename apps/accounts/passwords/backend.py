"""The authentication backend: every check of a password goes through it, with its limits."""

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.http import HttpRequest

from apps.accounts.models import User, account_name
from apps.accounts.passwords import attempts

PASSWORD_LENGTH_MAX = 1_000
PATH = f"{__name__}.PasswordBackend"


class PasswordBackend(ModelBackend):
    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """Return the active account with this name and password, else None. Raises RateLimited, and Busy if too many
        passwords are being hashed. Without a request (in a command) nothing is limited."""
        name = account_name(username or "")
        if not name or not password:
            return None
        if request is not None:
            attempts.require_attempts_left(request, name)
        user = None
        if len(password) <= PASSWORD_LENGTH_MAX:
            user = super().authenticate(request, username=name, password=password, **kwargs)
        if user is None and request is not None:
            attempts.record_failure(request, name)
        assert user is None or isinstance(user, User)
        return user
