"""The deployment's SECRET_KEY. All code that signs reads it here, so that nothing is signed with a placeholder."""

from collections.abc import Sequence
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


@register(Tags.security, deploy=True)
def check_key(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[CheckMessage]:
    """Report a missing SECRET_KEY as an error of `check --deploy`."""
    return [] if settings.SECRET_KEY_IS_SET else [Error(MISSING_KEY_MESSAGE, id="kernel.E001")]
