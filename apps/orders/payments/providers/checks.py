"""System checks for the payment provider: report missing configuration before a buyer runs into it."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, register

from apps.orders.payments.providers import NAMES, STRIPE

CALLS_MAX = 1_000


@register()
def check_provider(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[CheckMessage]:
    """Check that the chosen provider can take payments, receive webhooks and be queried."""
    if settings.PAYMENT_PROVIDER not in NAMES:
        return [
            Error(f"PAYMENT_PROVIDER is {settings.PAYMENT_PROVIDER!r}, not one of {', '.join(NAMES)}", id="orders.E001")
        ]
    if settings.PAYMENT_PROVIDER != STRIPE and not settings.STRIPE_SECRET_KEY:
        return []
    secret, publishable = settings.STRIPE_SECRET_KEY, settings.STRIPE_PUBLISHABLE_KEY
    address = urlsplit(settings.STRIPE_API_BASE)
    wrong = [
        (not secret.startswith(("sk_", "rk_")), "STRIPE_SECRET_KEY is missing or not a secret key (sk_…, rk_…)"),
        (not publishable.startswith("pk_"), "STRIPE_PUBLISHABLE_KEY is missing or not a publishable key (pk_…)"),
        (
            not settings.STRIPE_WEBHOOK_SECRETS,
            "STRIPE_WEBHOOK_SECRETS is missing: Stripe's webhooks would be refused, and no payment settled in time",
        ),
        (
            ("_live_" in secret and "_test_" in publishable) or ("_test_" in secret and "_live_" in publishable),
            "STRIPE_SECRET_KEY and STRIPE_PUBLISHABLE_KEY belong to different modes: one is a test key, one is live",
        ),
        (
            address.scheme != "https" and address.hostname not in ("localhost", "127.0.0.1", "::1"),
            "STRIPE_API_BASE is not https: keys would be sent unencrypted",
        ),
    ]
    return [Error(text, id=f"orders.E{number:03}") for number, (is_wrong, text) in enumerate(wrong, 2) if is_wrong]


@register()
def check_calls(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[CheckMessage]:
    """Check that a process may call the provider and inquire, and not without a bound."""
    bounded = {"PAYMENT_CALLS_MAX": "orders.E007", "PAYMENT_INQUIRIES_PER_SECOND": "orders.E008"}
    return [
        Error(f"{name} is {value}, not 1 to {CALLS_MAX}", id=number)
        for name, number in bounded.items()
        if not 1 <= (value := getattr(settings, name)) <= CALLS_MAX
    ]


@register(deploy=True)
def check_provider_of_deployment(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[CheckMessage]:
    """Warn if a deployment would sell tickets with a test-mode key."""
    if settings.PAYMENT_PROVIDER == STRIPE and "_live_" not in settings.STRIPE_SECRET_KEY:
        return [checks.Warning("STRIPE_SECRET_KEY is a test-mode key: no money moves", id="orders.W001")]
    return []
