"""Whether a provider has signed a webhook, for the process `web`: without the provider's SDK, and without any query.

It only exempts a delivery from a rate limit. Whether it is stored is decided by `providers.read_webhook`.
"""

from collections.abc import Mapping

from django.conf import settings

from apps.orders.errors import SignatureInvalid
from apps.orders.payments.providers import STRIPE, sandbox, stripe_objects
from apps.orders.payments.providers.sandbox import messages

FOLDER = "/api/webhooks/payments/"


def is_signed(path: str, raw: bytes, headers: Mapping[str, str]) -> bool:
    """Return whether a webhook at this path has a valid signature. The names of the headers are in lower case."""
    provider = path.removeprefix(FOLDER).rstrip("/")
    try:
        if provider == STRIPE:
            stripe_objects.check_signature(raw, headers.get(stripe_objects.SIGNATURE_HEADER.lower(), ""))
        elif provider == sandbox.NAME and settings.PAYMENT_PROVIDER == sandbox.NAME:
            messages.check_signature(raw, headers.get(messages.SIGNATURE_HEADER.lower(), ""))
        else:
            return False
    except SignatureInvalid:
        return False
    return True
