"""The key of this house. What serves or signs asks for it here, so that nothing is ever signed with a stand-in."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured

MISSING_KEY_MESSAGE = "Set SECRET_KEY: a long random text, the same for every process and every start of this house"


def require_key() -> str:
    """The SECRET_KEY that whoever runs the house has set. Raises ImproperlyConfigured when nobody has."""
    if not settings.SECRET_KEY_IS_SET:
        raise ImproperlyConfigured(MISSING_KEY_MESSAGE)
    return settings.SECRET_KEY


@register(Tags.security, deploy=True)
def check_key(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[CheckMessage]:
    """`check --deploy`: a house without a key of its own is an error."""
    return [] if settings.SECRET_KEY_IS_SET else [Error(MISSING_KEY_MESSAGE, id="kernel.E001")]
