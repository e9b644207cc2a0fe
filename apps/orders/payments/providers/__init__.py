"""Payment providers by name. PAYMENT_PROVIDER chooses the one for new payments; old payments keep theirs."""

from collections.abc import Callable

from django.conf import settings

from apps.orders.errors import ProviderNotFound
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.protocol import Provider

STRIPE = "stripe"


def get_provider(name: str) -> Provider:
    """Return the configured provider of this name. Raises ProviderNotFound."""
    if not is_set_up(name):
        raise ProviderNotFound
    return _makers[name]()


def is_set_up(name: str) -> bool:
    """Return whether there is a provider of this name and its credentials are configured."""
    return name in _makers and (name != STRIPE or bool(settings.STRIPE_SECRET_KEY))


def chosen_provider() -> Provider:
    """Return the provider for new payments. Raises ProviderNotFound if PAYMENT_PROVIDER names none."""
    return get_provider(settings.PAYMENT_PROVIDER)


def _stripe() -> Provider:
    # Imported only where Stripe is used: importing its SDK takes seconds and many megabytes.
    from apps.orders.payments.providers.stripe import Stripe

    return Stripe()


_makers: dict[str, Callable[[], Provider]] = {sandbox.NAME: sandbox.Sandbox, STRIPE: _stripe}
NAMES = tuple(_makers)
