"""The sandbox: a payment provider without a bank. It keeps its books in a file of its own; test cards decide how it
behaves.

It simulates an external service: its books are not in the application's database, so that a crash can happen between
its commit and ours, as with a real provider. Its late messages arrive as signed webhooks, and buyers confirm payments
on its own page. It takes payments only where it is the configured provider.
"""

from apps.orders.payments.providers.sandbox.books import WEBHOOK_TOPIC, settle, settle_all
from apps.orders.payments.providers.sandbox.cards import APPROVES, DECLINES, LATE
from apps.orders.payments.providers.sandbox.messages import SIGNATURE_HEADER, sign
from apps.orders.payments.providers.sandbox.provider import NAME, Sandbox

__all__ = [
    "APPROVES",
    "DECLINES",
    "LATE",
    "NAME",
    "SIGNATURE_HEADER",
    "WEBHOOK_TOPIC",
    "Sandbox",
    "settle",
    "settle_all",
    "sign",
]
