"""The sandbox: a provider without a bank, that keeps its books in PostgreSQL and behaves as the test card says.

It plays the outside world. Its rows are written in transactions of its own, so that a crash between its answer and
our ledger is as possible as with a real provider; its late messages come through the same signed webhook, and whom it
asks to confirm is sent to a page of its own. It takes payments only where it is the provider that was chosen.
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
