"""The tokens of links that reset a password."""

from django.contrib.auth.tokens import PasswordResetTokenGenerator

from apps.accounts.models import User


class ResetTokenGenerator(PasswordResetTokenGenerator):
    """A link ends with the password or the address for which it was made, and after PASSWORD_RESET_TIMEOUT; while the
    account is inactive, it does not work.

    Log-ins and addresses that are still to be confirmed do not end it, as they do with Django and allauth: a thief
    of the password causes these, and could end each link before the owner opens it.
    """

    def check_token(self, user: User | None, token: str | None) -> bool:
        return user is not None and user.is_active and super().check_token(user, token)

    def _make_hash_value(self, user: User, timestamp: int) -> str:
        return f"{user.pk} {user.password} {timestamp} {user.email}"
