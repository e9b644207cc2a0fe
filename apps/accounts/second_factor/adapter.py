"""allauth's adapter for two-factor authentication: encrypts secrets in the database."""

from base64 import urlsafe_b64encode

from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.utils.encoding import force_bytes

from apps.kernel import secret_key
from apps.kernel.http import problems


class SecretUnreadable(problems.Problem):
    type, status = "second-factor-unreadable", 409
    title = "Your second factor cannot be checked, because the site's secret key has changed. Contact its operator."


class MFAAdapter(DefaultMFAAdapter):
    error_messages = {
        **DefaultMFAAdapter.error_messages,
        "incorrect_code": "The code is incorrect, or it was used before.",
    }

    def generate_authenticator_name(self, user: AbstractBaseUser, type: str) -> str:  # noqa: A002 - allauth's name
        number = Authenticator.objects.filter(user=user, type=type).count() + 1
        return "Passkey" if number == 1 else f"Passkey {number}"

    def encrypt(self, text: str) -> str:
        return _fernet().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Return the secret. Raises SecretUnreadable if neither SECRET_KEY nor a fallback has encrypted it."""
        try:
            return _fernet().decrypt(encrypted_text.encode()).decode()
        except InvalidToken as error:
            raise SecretUnreadable from error


def _fernet() -> MultiFernet:
    keys = (secret_key.require_key(), *settings.SECRET_KEY_FALLBACKS)
    return MultiFernet([Fernet(_derive(key)) for key in keys])


def _derive(key: str | bytes) -> bytes:
    kdf = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"fairgate second factor")
    return urlsafe_b64encode(kdf.derive(force_bytes(key)))
