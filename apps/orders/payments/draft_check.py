"""What payments, mail and returns add to the checklist of a draft."""

from collections.abc import Iterator
from datetime import datetime
from urllib.parse import urlsplit

from django.conf import settings
from django.urls import reverse

from apps.events import facade as events
from apps.orders.models import ReturnPolicy
from apps.orders.payments.providers import STRIPE, sandbox, stripe_objects

_NOT_SENT = ("console", "dummy")


def check_draft(draft: events.Draft, now: datetime) -> Iterator[events.Finding]:
    """Yield what is unsafe about selling this draft on this installation. Only reads."""
    warning = events.Level.WARNING
    is_production = urlsplit(settings.SITE_URL).scheme == "https"
    if is_production and any(price.price_minor for price in draft.prices):
        if settings.PAYMENT_PROVIDER == sandbox.NAME:
            text = "Payments are in test mode (PAYMENT_PROVIDER is sandbox): test cards get real tickets."
            yield events.Finding(warning, text)
        elif settings.PAYMENT_PROVIDER == STRIPE and "_live_" not in settings.STRIPE_SECRET_KEY:
            text = "Payments are in test mode (STRIPE_SECRET_KEY is a test key): no money moves."
            yield events.Finding(warning, text)
    if settings.PAYMENT_PROVIDER == STRIPE and draft.currency in stripe_objects.CURRENCIES_REFUSED:
        yield events.Finding(warning, f"Stripe takes no payments in {draft.currency}: every payment would be declined.")
    if is_production and any(name in settings.EMAIL_BACKEND for name in _NOT_SENT):
        yield events.Finding(warning, "No email is sent (EMAIL_URL is not set): buyers would not get their tickets.")
    if not ReturnPolicy.objects.filter(event_id=draft.event_id).exists():
        link = f"{reverse('admin:orders_returnpolicy_add')}?event={draft.event_id}"
        yield events.Finding(warning, "Buyers cannot return tickets: the event has no return policy.", link)
