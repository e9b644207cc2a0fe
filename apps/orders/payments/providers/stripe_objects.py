"""Stripe's objects and webhooks, read without its SDK: the process `web` stores webhooks, and the SDK is large."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from apps.kernel import clock
from apps.kernel.http import problems
from apps.orders.errors import SignatureInvalid
from apps.orders.payments.providers.protocol import Headers, Kind, ProviderEvent, RefundAnswer, RefundState

SIGNATURE_HEADER = "Stripe-Signature"
SIGNATURE_AGE_SECONDS_MAX = 300
SECONDS_DIGITS_MAX = 12
TEXT_MAX = 120
FAILURE_MAX = 200
# Factors for currencies whose smallest unit at Stripe is not that of ISO 4217: https://docs.stripe.com/currencies.
_MULTIPLIED_BY = {"ISK": 100, "UGX": 100}
_DIVIDED_BY = {"MGA": 100}
_MULTIPLES_OF_TEN = {"BHD", "JOD", "KWD", "OMR", "TND"}
CANCELABLE = {"requires_payment_method", "requires_confirmation", "requires_action", "requires_capture"}
_REFUND_STATES = {
    "succeeded": RefundState.SUCCEEDED,
    "pending": RefundState.PENDING,
    "requires_action": RefundState.PENDING,
    "failed": RefundState.FAILED,
    "canceled": RefundState.FAILED,
}
_CHARGE_EVENTS = {
    "payment_intent.succeeded": Kind.SUCCEEDED,
    "payment_intent.payment_failed": Kind.DECLINED,
    "payment_intent.canceled": Kind.CANCELED,
}
_REFUND_EVENTS = {"refund.created", "refund.updated", "refund.failed", "charge.refund.updated"}
_DISPUTE_EVENTS = {
    "charge.dispute.created": Kind.DISPUTED,
    "charge.dispute.funds_withdrawn": Kind.DISPUTE_WITHDRAWN,
    "charge.dispute.funds_reinstated": Kind.DISPUTE_REINSTATED,
    "charge.dispute.closed": Kind.DISPUTE_CLOSED,
}

CURRENCIES_REFUSED = frozenset(("CUP", "ERN", "IQD", "IRR", "KPW", "LYD", "SDG", "SSP", "SYP", "TMT", "VED", "VES"))
"""Not among the currencies in which Stripe takes payments (https://docs.stripe.com/currencies)."""

Row = dict[str, Any]


class RequestRefused(ValueError):
    """Stripe refuses this request whenever it is made, or cannot represent its amount."""


def read_webhook(raw: bytes, headers: Headers) -> ProviderEvent | None:
    """Return the event of a webhook as a `WebhookReader` does."""
    check_signature(raw, headers.get(SIGNATURE_HEADER, ""))
    try:
        event = json.loads(raw)
        kind, row = str(event["type"]), event["data"]["object"]
        about = {"message_id": id_of(event["id"]), "occurred_at": parse_timestamp(event["created"]), "raw": raw}
        if kind in _CHARGE_EVENTS:
            return charge_event(row, _CHARGE_EVENTS[kind], **about)
        if kind in _REFUND_EVENTS and row.get("payment_intent"):
            return _refund_event(row, **about)
        if kind in _DISPUTE_EVENTS and row.get("payment_intent"):
            return _dispute_event(row, _DISPUTE_EVENTS[kind], **about)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, OSError, RecursionError) as error:
        raise problems.MalformedBody("The body is not a Stripe event.") from error
    return None


def check_signature(raw: bytes, header: str) -> None:
    """Check that one of our secrets signed these bytes recently, by Stripe's scheme v1: an HMAC of time and body.
    During a rotation both the old and the new secret are valid. Raises SignatureInvalid."""
    parts = [part.partition("=") for part in header.split(",")]
    at = next((value for name, _, value in parts if name == "t"), "")
    if not (at.isascii() and at.isdigit() and len(at) <= SECONDS_DIGITS_MAX):
        raise SignatureInvalid
    given = [value for name, _, value in parts if name == "v1" and value.isascii()]
    for secret in settings.STRIPE_WEBHOOK_SECRETS:
        expected = hmac.new(secret.encode(), at.encode() + b"." + raw, hashlib.sha256).hexdigest()
        if any(hmac.compare_digest(expected, value) for value in given):
            # The age of the delivery, not of the event.
            if now() - int(at) > SIGNATURE_AGE_SECONDS_MAX:
                raise SignatureInvalid("This delivery was signed too long ago.")
            return
    raise SignatureInvalid


def to_stripe(amount_minor: int, currency: str) -> int:
    """Return the amount in Stripe's units. Raises RequestRefused if it is not a whole number of them."""
    amount, rest = divmod(amount_minor * _MULTIPLIED_BY.get(currency, 1), _DIVIDED_BY.get(currency, 1))
    if rest or (currency in _MULTIPLES_OF_TEN and amount % 10):
        raise RequestRefused(f"Stripe cannot charge {amount_minor} of the smallest unit of {currency}")
    return amount


def from_stripe(amount: int, currency: str) -> int:
    """Return Stripe's amount in the smallest unit of ISO 4217."""
    amount_minor, rest = divmod(amount * _DIVIDED_BY.get(currency, 1), _MULTIPLIED_BY.get(currency, 1))
    if rest:
        raise ValueError(f"{amount} {currency} is not a whole number of its smallest unit")
    return amount_minor


def charge_event(intent: Row, kind: Kind, **about: Any) -> ProviderEvent:
    """Return this kind of event about a PaymentIntent; `about` has its message id, time and bytes. Raises ValueError or
    KeyError for another object."""
    currency = currency_of(intent)
    amount = (intent.get("amount_received") if kind == Kind.SUCCEEDED else None) or intent["amount"]
    return ProviderEvent(
        **about,
        kind=kind,
        key=metadata_of(intent, "payment"),
        reference=id_of(intent["id"]),
        amount_minor=amount_of(amount, currency),
        currency=currency,
        next_action=_next_action(intent) if kind == Kind.PENDING else None,
    )


def _next_action(intent: Row) -> Mapping[str, str] | None:
    secret = intent.get("client_secret")
    if not secret or intent["status"] not in CANCELABLE:
        return None
    return {"type": "stripe", "client_secret": str(secret), "publishable_key": settings.STRIPE_PUBLISHABLE_KEY}


def _refund_event(refund: Row, **about: Any) -> ProviderEvent:
    currency, answer = currency_of(refund), refund_answer(refund)
    return ProviderEvent(
        **about,
        kind=Kind(f"refund.{answer.state}"),
        # The intent identifies the charge; the refund's metadata holds our refund's id.
        key="",
        reference=id_of(refund["payment_intent"]),
        amount_minor=amount_of(refund["amount"], currency),
        currency=currency,
        refund_key=metadata_of(refund, "refund"),
        refund_reference=answer.reference,
        failure=answer.failure,
    )


def _dispute_event(dispute: Row, kind: Kind, **about: Any) -> ProviderEvent:
    currency = currency_of(dispute)
    details = [str(dispute[name]).replace("_", " ") for name in ("status", "reason") if dispute.get(name)]
    return ProviderEvent(
        **about,
        kind=kind,
        # The intent identifies the charge; a dispute's metadata belongs to the account owner.
        key="",
        reference=id_of(dispute["payment_intent"]),
        amount_minor=amount_of(dispute["amount"], currency),
        currency=currency,
        failure=failure_text(", ".join(details)),
        dispute_reference=id_of(dispute["id"]),
    )


def refund_answer(refund: Row) -> RefundAnswer:
    """Return the state of a Refund. Raises ValueError and KeyError for an object that is not one."""
    return RefundAnswer(
        reference=id_of(refund["id"]),
        state=_REFUND_STATES[refund["status"]],
        failure=failure_text(refund.get("failure_reason") or ""),
    )


def now() -> int:
    """Return this process's time in Unix seconds."""
    return int(clock.process_now().timestamp())


def parse_timestamp(seconds: object) -> datetime:
    """Return the time of these Unix seconds. Raises ValueError unless it is between 2000 and 2100."""
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not 946_684_800 <= seconds < 4_102_444_800:
        raise ValueError("a timestamp must be Unix seconds between 2000 and 2100")
    return datetime.fromtimestamp(seconds, UTC)


def currency_of(row: Row) -> str:
    currency = row["currency"]
    if not (isinstance(currency, str) and len(currency) == 3 and currency.isascii() and currency.isalpha()):
        raise ValueError("currency must be three letters")
    return currency.upper()


def amount_of(amount: object, currency: str) -> int:
    if not isinstance(amount, int) or isinstance(amount, bool) or not 0 < amount < 2**53:
        raise ValueError("an amount must be a positive integer")
    return from_stripe(amount, currency)


def id_of(text: object) -> str:
    if not (isinstance(text, str) and text.isascii() and text.isprintable() and 0 < len(text) <= TEXT_MAX):
        raise ValueError("an id must be short printable ASCII")
    return text


def metadata_of(row: Row, name: str) -> str:
    """Return the metadata value, empty unless it is short printable ASCII: anyone with the account's keys can write
    there."""
    value = (row.get("metadata") or {}).get(name, "")
    return (
        value if isinstance(value, str) and value.isascii() and value.isprintable() and len(value) <= TEXT_MAX else ""
    )


def failure_text(text: object) -> str:
    return str(text).replace("\x00", "").encode("utf-8", "replace").decode()[:FAILURE_MAX]
