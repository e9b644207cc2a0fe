"""Payment providers by name. Which one takes new payments is configuration; old payments keep theirs."""

from django.conf import settings

from apps.orders.errors import ProviderNotFound
from apps.orders.providers import sandbox
from apps.orders.providers.protocol import Provider

_providers: dict[str, Provider] = {sandbox.NAME: sandbox.Sandbox()}


def get_provider(name: str) -> Provider:
    """The provider of this name. Raises ProviderNotFound."""
    if name not in _providers:
        raise ProviderNotFound
    return _providers[name]


def chosen_provider() -> Provider:
    """The provider that takes new payments. Raises ProviderNotFound when the configuration names none of ours."""
    return get_provider(settings.PAYMENT_PROVIDER)
