"""Payment providers by name. Which one takes new payments is configuration; old payments keep theirs."""

from collections.abc import Callable
from functools import cache

from django.conf import settings

from apps.orders.errors import ProviderNotFound
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.protocol import Provider

STRIPE = "stripe"


def get_provider(name: str) -> Provider:
    """The provider of this name, if it has what it needs to work. Raises ProviderNotFound."""
    if not is_set_up(name):
        raise ProviderNotFound
    return _makers[name]()


def is_set_up(name: str) -> bool:
    """Whether there is such a provider, with what it needs to work."""
    return name in _makers and (name != STRIPE or bool(settings.STRIPE_SECRET_KEY))


def chosen_provider() -> Provider:
    """The provider that takes new payments. Raises ProviderNotFound when the configuration names none of ours."""
    return get_provider(settings.PAYMENT_PROVIDER)


@cache
def _sandbox() -> Provider:
    return sandbox.Sandbox()


@cache
def _stripe() -> Provider:
    # Its SDK takes seconds to import and many megabytes: only where somebody pays by it.
    from apps.orders.payments.providers.stripe import Stripe

    return Stripe()


_makers: dict[str, Callable[[], Provider]] = {sandbox.NAME: _sandbox, STRIPE: _stripe}
NAMES = tuple(_makers)
