"""Access and refresh tokens of accounts (JWT). A token has the account's version at its issue and ends with it."""

from typing import Any, Self

from rest_framework_simplejwt import tokens
from rest_framework_simplejwt.exceptions import TokenError
from rest_framework_simplejwt.settings import api_settings

from apps.accounts.models import User

VERSION_CLAIM = "ver"
ACCOUNT_ID_MAX = 2**63 - 1


class _AccountToken(tokens.Token):
    @classmethod
    def for_user(cls, user: User) -> Self:  # type: ignore[override]
        token = super().for_user(user)
        token[VERSION_CLAIM] = user.token_version
        return token

    @property
    def account_id(self) -> int:
        """The account's id. Raises TokenError if the claim is not an id."""
        value = str(self.payload.get(api_settings.USER_ID_CLAIM))
        if not (value.isascii() and value.isdigit() and 0 < int(value[:20]) <= ACCOUNT_ID_MAX):
            raise TokenError("The token has no account.")
        return int(value)

    @property
    def version(self) -> Any:
        """The account's version at the token's issue; of another type in a token that is not ours."""
        return self.payload.get(VERSION_CLAIM)

    def is_current(self, account: User) -> bool:
        """Return whether the token is of this account, and of its present version."""
        return account.pk == self.account_id and self.version == account.token_version

    def account(self) -> User | None:
        """Read the token's account; None unless it is active and the token of its present version."""
        account = User.objects.filter(pk=self.account_id, is_active=True).first()
        return account if account is not None and self.is_current(account) else None


class AccessToken(_AccountToken, tokens.AccessToken):
    pass


class RefreshToken(_AccountToken, tokens.RefreshToken):  # type: ignore[misc]
    access_token_class = AccessToken
