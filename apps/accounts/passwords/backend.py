"""The authentication backend: every check of a password goes through it, with its limits.

While addresses must be confirmed, an account with an unconfirmed address is refused like a wrong password. Otherwise
its log-in would reveal that it is new: a stranger could sign up with another person's address and learn from a log-in
whether the address had an account before.
"""

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.http import HttpRequest

from apps.accounts.confirmed_addresses import is_name_unconfirmed
from apps.accounts.models import User, account_name
from apps.accounts.passwords import attempts

PASSWORD_LENGTH_MAX = 1_000
PATH = f"{__name__}.PasswordBackend"


class PasswordBackend(ModelBackend):
    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        *,
        is_logged_in: bool = False,
        **kwargs: Any,
    ) -> User | None:
        """Return the active account with this name and password, else None, also if its address must be confirmed
        first, unless it is logged in already. Raises RateLimited, and Busy if too many passwords are being hashed.
        Without a request (in a command) nothing is limited."""
        name = account_name(username or "")
        if not name or not password:
            return None
        if request is not None:
            attempts.require_attempts_left(request, name)
        # Read before the password is checked, so that every refusal takes the same statements.
        is_refused = not is_logged_in and is_name_unconfirmed(name)
        user = None
        if len(password) <= PASSWORD_LENGTH_MAX:
            user = super().authenticate(request, username=name, password=password, **kwargs)
        if is_refused:
            user = None
        if user is None and request is not None:
            attempts.record_failure(request, name)
        assert user is None or isinstance(user, User)
        return user
