"""The deployment's SECRET_KEY, and the check of all settings that a process needs before it serves, sells or signs.

All code that signs reads the key here, so that nothing is signed with a placeholder.
`ticketing/operations/deployment_rules.py` decides which other settings are unsafe. Checks and migrations need none of
them.
"""

import hmac
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured

MISSING_KEY_MESSAGE = (
    "Set SECRET_KEY: a long random text, the same for every process and every start of this deployment"
)


def require_key() -> str:
    """Return the configured SECRET_KEY. Raises ImproperlyConfigured if none is set."""
    if not settings.SECRET_KEY_IS_SET:
        raise ImproperlyConfigured(MISSING_KEY_MESSAGE)
    return settings.SECRET_KEY


def accepted_keys() -> tuple[str, ...]:
    """Return the keys that verify: SECRET_KEY, which alone signs, then SECRET_KEY_FALLBACKS. Raises
    ImproperlyConfigured if no SECRET_KEY is set."""
    return (require_key(), *settings.SECRET_KEY_FALLBACKS)


def keyed_digest(purpose: str, value: str) -> bytes:
    """Return the 32 bytes of an HMAC of the value, which without the key neither reveals the value nor can be computed
    from it. Equal values of one purpose have equal digests, so a digest can be stored, searched and unique."""
    # The oldest key: during a rotation the stored digests stay valid until the last fallback is removed.
    keys = settings.SECRET_KEY_FALLBACKS
    return hmac.digest(_digest_key(keys[-1] if keys else require_key(), purpose), value.encode(), "sha256")


@lru_cache(maxsize=16)
def _digest_key(key: str, purpose: str) -> bytes:
    return hmac.digest(key.encode(), b"fairgate digest " + purpose.encode(), "sha256")


def require_safe_settings() -> None:
    """Raise ImproperlyConfigured, with one line that says what to set, unless this process may serve."""
    require_key()
    for violation in settings.DEPLOYMENT_VIOLATIONS:
        raise ImproperlyConfigured(violation)


@register(Tags.security, deploy=True)
def check_key(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[CheckMessage]:
    """Report a missing SECRET_KEY as an error of `check --deploy`."""
    return [] if settings.SECRET_KEY_IS_SET else [Error(MISSING_KEY_MESSAGE, id="kernel.E001")]


@register(Tags.security, deploy=True)
def check_deployment(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[CheckMessage]:
    """Report every unsafe setting as an error of `check --deploy`."""
    return [Error(violation, id="kernel.E002") for violation in settings.DEPLOYMENT_VIOLATIONS]
