"""Payment providers by name. PAYMENT_PROVIDER chooses the one for new payments; old payments keep theirs."""

from collections.abc import Callable

from django.conf import settings

from apps.orders.errors import ProviderNotFound
from apps.orders.payments.providers import sandbox, stripe_objects
from apps.orders.payments.providers.protocol import Headers, Provider, ProviderEvent, WebhookReader
from apps.orders.payments.providers.sandbox import messages as sandbox_messages

STRIPE = "stripe"


def get_provider(name: str) -> Provider:
    """Return the configured provider of this name. Raises ProviderNotFound."""
    if not is_set_up(name):
        raise ProviderNotFound
    return _makers[name]()


def is_set_up(name: str) -> bool:
    """Return whether there is a provider of this name and its credentials are configured."""
    return name in _makers and (name != STRIPE or bool(settings.STRIPE_SECRET_KEY))


def read_webhook(name: str, raw: bytes, headers: Headers) -> ProviderEvent | None:
    """Return the event of a webhook of the provider of this name; None for event types that we ignore. Raises
    ProviderNotFound, SignatureInvalid, MalformedBody."""
    # The sandbox is no bank: it may report payments only where it takes them.
    if not is_set_up(name) or (name == sandbox.NAME and name != settings.PAYMENT_PROVIDER):
        raise ProviderNotFound
    return _readers[name](raw, headers)


def chosen_provider() -> Provider:
    """Return the provider for new payments. Raises ProviderNotFound if PAYMENT_PROVIDER names none."""
    return get_provider(settings.PAYMENT_PROVIDER)


def _stripe() -> Provider:
    # Imported only where Stripe is used: importing its SDK takes seconds and many megabytes.
    from apps.orders.payments.providers.stripe import Stripe

    return Stripe()


_makers: dict[str, Callable[[], Provider]] = {sandbox.NAME: sandbox.Sandbox, STRIPE: _stripe}
NAMES = tuple(_makers)
_readers: dict[str, WebhookReader] = {
    sandbox.NAME: sandbox_messages.read_webhook,
    STRIPE: stripe_objects.read_webhook,
}
