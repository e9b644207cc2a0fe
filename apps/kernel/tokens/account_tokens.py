"""Verification of account tokens (djangorestframework-simplejwt) under SECRET_KEY_FALLBACKS."""

from typing import Any

from django.conf import settings
from rest_framework_simplejwt import state
from rest_framework_simplejwt.backends import TokenBackend
from rest_framework_simplejwt.exceptions import TokenBackendError, TokenBackendExpiredToken


class FallbackBackend(TokenBackend):
    """Signs with the library's signing key, SECRET_KEY; also accepts what SECRET_KEY_FALLBACKS have signed."""

    def decode(self, token: Any, verify: bool = True) -> dict[str, Any]:
        """Return the token's claims. Raises TokenBackendError."""
        try:
            return super().decode(token, verify)
        except TokenBackendExpiredToken:
            raise
        except TokenBackendError as error:
            for key in settings.SECRET_KEY_FALLBACKS:
                try:
                    return TokenBackend(self.algorithm, key).decode(token, verify)
                except TokenBackendExpiredToken:
                    raise
                except TokenBackendError:
                    continue
            raise error from None


def accept_fallbacks() -> None:
    """Make every account token accept SECRET_KEY_FALLBACKS. The library has no setting for its backend."""
    state.token_backend = FallbackBackend(state.token_backend.algorithm, state.token_backend.signing_key)
