"""The sandbox: a payment provider without a bank. It keeps its books in PostgreSQL; test cards decide how it behaves.

It simulates an external service. It writes its rows in its own transactions, so that a crash between its response and
our ledger is as possible as with a real provider. Its late messages arrive through the same signed webhook, and buyers
confirm on its own page. It takes payments only where it is the configured provider.
"""

from apps.orders.payments.providers.sandbox.books import WEBHOOK_TOPIC, settle, settle_late_charge
from apps.orders.payments.providers.sandbox.cards import (
    APPROVES,
    CARDS,
    CHALLENGES,
    DECLINED_FIRST,
    DECLINES,
    DELAYED,
    DUPLICATED,
    LATE,
    LOST,
    METHODS,
    REORDERED,
    TIMES_OUT,
    TIMES_OUT_CHARGED,
    WRONG_AMOUNT,
)
from apps.orders.payments.providers.sandbox.messages import SIGNATURE_HEADER, charge_event, refund_event, sign
from apps.orders.payments.providers.sandbox.provider import NAME, Sandbox

__all__ = [
    "APPROVES",
    "CARDS",
    "CHALLENGES",
    "DECLINED_FIRST",
    "DECLINES",
    "DELAYED",
    "DUPLICATED",
    "LATE",
    "LOST",
    "METHODS",
    "NAME",
    "REORDERED",
    "SIGNATURE_HEADER",
    "TIMES_OUT",
    "TIMES_OUT_CHARGED",
    "WEBHOOK_TOPIC",
    "WRONG_AMOUNT",
    "Sandbox",
    "charge_event",
    "refund_event",
    "settle",
    "settle_late_charge",
    "sign",
]
