"""Whether a provider has signed a webhook, for the process `web`: without the provider's SDK, and without any query.

It only exempts a delivery from a rate limit. The site checks the signature again, and the delivery's age.
"""

import hashlib
import hmac
from collections.abc import Mapping

from django.conf import settings

from apps.orders.errors import SignatureInvalid
from apps.orders.payments.providers import STRIPE, sandbox
from apps.orders.payments.providers.sandbox import messages

FOLDER = "/api/webhooks/payments/"
STRIPE_HEADER = "stripe-signature"


def is_signed(path: str, raw: bytes, headers: Mapping[str, str]) -> bool:
    """Return whether a webhook at this path has a valid signature. The names of the headers are in lower case."""
    provider = path.removeprefix(FOLDER).rstrip("/")
    if provider == STRIPE:
        return _is_signed_by_stripe(raw, headers.get(STRIPE_HEADER, ""))
    if provider == sandbox.NAME and settings.PAYMENT_PROVIDER == sandbox.NAME:
        try:
            messages.check_signature(raw, headers.get(messages.SIGNATURE_HEADER.lower(), ""))
        except SignatureInvalid:
            return False
        return True
    return False


def _is_signed_by_stripe(raw: bytes, header: str) -> bool:
    """Verify Stripe's scheme v1: an HMAC of the time and the body."""
    parts = [part.partition("=") for part in header.split(",")]
    at = next((value for name, _, value in parts if name == "t"), "")
    given = [value for name, _, value in parts if name == "v1" and value.isascii()]
    signed = at.encode() + b"." + raw
    return any(
        hmac.compare_digest(hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest(), value)
        for secret in settings.STRIPE_WEBHOOK_SECRETS
        for value in given
    )
