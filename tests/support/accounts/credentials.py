"""Credentials of the accounts in tests."""

import pytest
from allauth.mfa.totp.internal import auth as totp

from apps.accounts.models import User

PASSWORD = "correct horse battery staple"
LOG_IN = "/accounts/log-in"


class AuthenticatorApp:
    """The user's authenticator app. Each code is that of a later time step than the one before."""

    def __init__(self, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
        self.secret = totp.generate_totp_secret()
        self.step = 1_000_000
        totp.TOTP.activate(user, self.secret)
        monkeypatch.setattr(totp, "yield_hotp_counters_from_time", lambda: iter((self.step - 1, self.step)))

    def code(self) -> str:
        """Return the code of the present time step."""
        return totp.format_hotp_value(totp.hotp_value(self.secret, self.step))

    def next_code(self) -> str:
        """Wait for the next time step; return its code."""
        self.step += 1
        return self.code()
