"""Stripe, through its SDK: a payment is a PaymentIntent, which the buyer's browser pays in Stripe's own form.

Card data goes from the browser directly to Stripe. Our payment's id is the idempotency key of its intent and is stored
in the intent's metadata. A refund's id is used in the same way.

SDK retries are off, because we count every try. After a timeout the state is unknown, so we retry with the same key.
Stripe keeps idempotency keys for a day; a later retry first looks up the intent or refund.
"""

import asyncio
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Any
from uuid import UUID

import aiohttp
import stripe as sdk
from django.conf import settings

from apps.kernel import clock
from apps.kernel.http import problems
from apps.orders.errors import SignatureInvalid
from apps.orders.payments.providers import event_loop
from apps.orders.payments.providers.protocol import (
    ChargeRequest,
    Kind,
    Movement,
    MovementKind,
    ProviderEvent,
    ProviderFault,
    RefundAnswer,
    RefundRequest,
    RefundState,
)

NAME = "stripe"
METHODS = {"card": "Card or digital wallet"}
# Only methods that are decided at once: a bank debit takes days, but a payment deadline is minutes away.
METHOD_TYPES: list[Any] = ["card"]
SIGNATURE_HEADER = "Stripe-Signature"
SIGNATURE_AGE_SECONDS_MAX = 300
CONNECT_SECONDS_MAX = 5
PAGE_SIZE = 100
TEXT_MAX = 120
FAILURE_MAX = 200
# Factors for currencies whose smallest unit at Stripe is not that of ISO 4217: https://docs.stripe.com/currencies.
_MULTIPLIED_BY = {"ISK": 100, "UGX": 100}
_DIVIDED_BY = {"MGA": 100}
_MULTIPLES_OF_TEN = {"BHD", "JOD", "KWD", "OMR", "TND"}
# Stripe refused the amount, not the card; a retry cannot succeed.
_AMOUNT_ERRORS = {"amount_too_small", "amount_too_large"}
_REFUND_REFUSED = {"charge_already_refunded", "charge_disputed", "amount_too_large"}
_CANCELABLE = {"requires_payment_method", "requires_confirmation", "requires_action", "requires_capture"}
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

Row = dict[str, Any]


class AmountRefused(ValueError):
    """Stripe cannot represent or refuses this amount."""


class Stripe:
    name = NAME
    methods = METHODS

    def find_charge(self, key: UUID, reference: str = "") -> ProviderEvent | None:
        with _translate_errors():
            intent = _retrieve_intent(reference) if reference else _search_intent(key)
            return None if intent is None else _intent_event(intent)

    def charge(self, request: ChargeRequest) -> ProviderEvent:
        with _translate_errors():
            try:
                return _intent_event(_create(request))
            except AmountRefused as error:
                return _amount_refused_event(request, Kind.DECLINED, str(error))

    def begin_charges(self, requests: Sequence[ChargeRequest]) -> "Sequence[Future[ProviderEvent]]":
        return [event_loop.submit(_charge(request)) for request in requests]

    def cancel(self, request: ChargeRequest, reference: str = "") -> ProviderEvent:
        with _translate_errors():
            try:
                # Creating with the same key returns an intent whose response we lost. If there is none, this creates
                # one, which is canceled below, so that a request still under way cannot create another.
                intent = _retrieve_intent(reference) if reference else _create(request)
            except AmountRefused as error:
                return _amount_refused_event(request, Kind.CANCELED, str(error))
            if intent["status"] in _CANCELABLE:
                try:
                    intent = _client().v1.payment_intents.cancel(intent["id"]).to_dict()
                except sdk.InvalidRequestError:
                    # The buyer paid meanwhile.
                    intent = _retrieve_intent(intent["id"])
            return _intent_event(intent)

    def refund(self, request: RefundRequest) -> RefundAnswer:
        known = self.find_refund(request.key, request.charge_reference)
        if known is not None:
            return known
        with _translate_errors():
            try:
                refund = _client().v1.refunds.create(
                    params={
                        "payment_intent": request.charge_reference,
                        "amount": to_stripe(request.amount_minor, request.currency),
                        "metadata": {"refund": str(request.key)},
                    },
                    options={"idempotency_key": str(request.key)},
                )
            except (sdk.InvalidRequestError, AmountRefused) as error:
                if isinstance(error, sdk.InvalidRequestError) and error.code not in _REFUND_REFUSED:
                    raise
                return RefundAnswer("", RefundState.FAILED, _failure_text(str(error)))
            return _refund_answer(refund.to_dict())

    def find_refund(self, key: UUID, charge_reference: str) -> RefundAnswer | None:
        with _translate_errors():
            params: Any = {"payment_intent": charge_reference, "limit": PAGE_SIZE}
            for refund in _client().v1.refunds.list(params=params).auto_paging_iter():
                row = refund.to_dict()
                if _metadata(row, "refund") == str(key):
                    return _refund_answer(row)
            return None

    def movements(self, day: date) -> Iterator[Movement]:
        begin = datetime.combine(day, time(), UTC)
        created = {"gte": int(begin.timestamp()), "lt": int((begin + timedelta(days=1)).timestamp())}
        with _translate_errors():
            params: Any = {"created": created, "limit": PAGE_SIZE}
            for charge in _client().v1.charges.list(params=params).auto_paging_iter():
                row = charge.to_dict()
                if row["status"] == "succeeded" and row["captured"]:
                    intent, amount = row.get("payment_intent") or row["id"], row.get("amount_captured") or row["amount"]
                    yield _movement(MovementKind.CAPTURE, row, "payment", intent, intent, amount)
            for refund in _client().v1.refunds.list(params=params).auto_paging_iter():
                row = refund.to_dict()
                if row["status"] == "succeeded":
                    charge_id = row.get("payment_intent") or row["charge"]
                    yield _movement(MovementKind.REFUND, row, "refund", row["id"], charge_id, row["amount"])

    def read_webhook(self, raw: bytes, headers: Mapping[str, str]) -> ProviderEvent | None:
        _check_signature(raw, headers.get(SIGNATURE_HEADER, ""))
        try:
            event = json.loads(raw)
            kind, row = str(event["type"]), event["data"]["object"]
            about = {"message_id": _id(event["id"]), "occurred_at": _parse_timestamp(event["created"]), "raw": raw}
            if kind in _CHARGE_EVENTS:
                return _event(row, _CHARGE_EVENTS[kind], **about)
            if kind in _REFUND_EVENTS and row.get("payment_intent"):
                return _refund_event(row, **about)
            if kind in _DISPUTE_EVENTS and row.get("payment_intent"):
                return _dispute_event(row, _DISPUTE_EVENTS[kind], **about)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, OSError, RecursionError) as error:
            raise problems.MalformedBody("The body is not a Stripe event.") from error
        return None


def to_stripe(amount_minor: int, currency: str) -> int:
    """Return the amount in Stripe's units. Raises AmountRefused if it is not a whole number of them."""
    amount, rest = divmod(amount_minor * _MULTIPLIED_BY.get(currency, 1), _DIVIDED_BY.get(currency, 1))
    if rest or (currency in _MULTIPLES_OF_TEN and amount % 10):
        raise AmountRefused(f"Stripe cannot charge {amount_minor} of the smallest unit of {currency}")
    return amount


def from_stripe(amount: int, currency: str) -> int:
    """Return Stripe's amount in the smallest unit of ISO 4217."""
    amount_minor, rest = divmod(amount * _DIVIDED_BY.get(currency, 1), _MULTIPLIED_BY.get(currency, 1))
    if rest:
        raise ValueError(f"{amount} {currency} is not a whole number of its smallest unit")
    return amount_minor


@cache
def _client_of(key: str, base: str, timeout_seconds: int) -> sdk.StripeClient:
    sdk.enable_telemetry = False
    timeouts = (min(CONNECT_SECONDS_MAX, timeout_seconds), max(timeout_seconds - CONNECT_SECONDS_MAX, 1))
    return sdk.StripeClient(
        key,
        base_addresses={"api": base},
        max_network_retries=0,
        http_client=sdk.RequestsClient(timeout=timeouts),
    )


def _client() -> sdk.StripeClient:
    return _client_of(settings.STRIPE_SECRET_KEY, settings.STRIPE_API_BASE, settings.PAYMENT_TIMEOUT_SECONDS)


_async_clients: dict[tuple[Any, ...], sdk.StripeClient] = {}
"""The client of the event loop, by its settings. Its connections belong to the loop and are kept between calls."""


def _async_client() -> sdk.StripeClient:
    """Return the client of the running event loop, with PAYMENT_CALLS_MAX connections at most."""
    base, timeout_seconds = settings.STRIPE_API_BASE, settings.PAYMENT_TIMEOUT_SECONDS
    calls_max = settings.PAYMENT_CALLS_MAX
    of = (id(asyncio.get_running_loop()), settings.STRIPE_SECRET_KEY, base, timeout_seconds, calls_max)
    if of not in _async_clients:
        sdk.enable_telemetry = False
        # Proxies and certificates as for the other client.
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=calls_max, ssl=ssl.create_default_context(cafile=sdk.ca_bundle_path)),
            timeout=aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_SECONDS_MAX),
            trust_env=True,
        )
        _async_clients[of] = sdk.StripeClient(
            settings.STRIPE_SECRET_KEY,
            base_addresses={"api": base},
            max_network_retries=0,
            http_client=sdk.AIOHTTPClient(timeout=None, session=session),
        )
    return _async_clients[of]


async def _charge(request: ChargeRequest) -> ProviderEvent:
    """Create the charge as `Stripe.charge` does, on the event loop."""
    with _translate_errors():
        try:
            creation = _creation(request)
            return _intent_event((await _async_client().v1.payment_intents.create_async(**creation)).to_dict())
        except sdk.InvalidRequestError as error:
            if error.code not in _AMOUNT_ERRORS:
                raise
            return _amount_refused_event(request, Kind.DECLINED, str(error))
        except AmountRefused as error:
            return _amount_refused_event(request, Kind.DECLINED, str(error))


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate SDK errors, those of its connections, and responses that cannot be parsed into ProviderFault."""
    try:
        yield
    except sdk.StripeError as error:
        # The text contains no secret: the SDK masks keys, and card data never reaches us.
        raise ProviderFault(f"Stripe: {type(error).__name__} {error.code or ''} {error}"[:500]) from error
    except (aiohttp.ClientError, OSError) as error:
        # The SDK lets errors pass that occur while the body is read.
        raise ProviderFault(f"Stripe: {error!r}"[:500]) from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ProviderFault(f"Stripe's response cannot be parsed: {error!r}"[:500]) from error


def _creation(request: ChargeRequest) -> dict[str, Any]:
    """Return the arguments that create the intent. Raises AmountRefused."""
    return {
        "params": {
            "amount": to_stripe(request.amount_minor, request.currency),
            "currency": request.currency.lower(),
            "allowed_payment_method_types": METHOD_TYPES,
            "description": request.description,
            "metadata": {"payment": str(request.key)},
        },
        "options": {"idempotency_key": str(request.key)},
    }


def _create(request: ChargeRequest) -> Row:
    try:
        intent = _client().v1.payment_intents.create(**_creation(request))
    except sdk.InvalidRequestError as error:
        if error.code in _AMOUNT_ERRORS:
            raise AmountRefused(str(error)) from error
        raise
    return intent.to_dict()


def _retrieve_intent(reference: str) -> Row:
    return _client().v1.payment_intents.retrieve(reference, params={"expand": ["latest_charge"]}).to_dict()


def _search_intent(key: UUID) -> Row | None:
    """Search for the intent by our payment's id. Stripe's index may lag by a minute; if it misses the intent, the
    charge call that follows finds the intent by its idempotency key."""
    found = _client().v1.payment_intents.search(
        params={"query": f"metadata['payment']:'{key}'", "limit": 1, "expand": ["data.latest_charge"]}
    )
    return found.data[0].to_dict() if found.data else None


def _intent_event(intent: Row) -> ProviderEvent:
    """Return the intent's state as an event. The same state gets the same message id."""
    status, charge = intent["status"], intent.get("latest_charge")
    charge = charge if isinstance(charge, dict) else None
    kind = {"succeeded": Kind.SUCCEEDED, "canceled": Kind.CANCELED}.get(status, Kind.PENDING)
    moment = intent["created"]
    if status == "requires_payment_method" and intent.get("last_payment_error"):
        kind = Kind.DECLINED
    if kind in (Kind.SUCCEEDED, Kind.DECLINED) and charge is not None:
        moment = charge["created"]
    elif kind == Kind.CANCELED:
        moment = intent.get("canceled_at") or moment
    elif kind != Kind.PENDING:
        moment = _now()
    shown = {name: value for name, value in intent.items() if name != "client_secret"}
    return _event(
        intent,
        kind,
        message_id=f"{intent['id']}:{kind}:{'' if charge is None else charge['id']}"[:TEXT_MAX],
        occurred_at=_parse_timestamp(moment),
        raw=json.dumps(shown, default=str).encode(),
    )


def _event(intent: Row, kind: Kind, **about: Any) -> ProviderEvent:
    currency = _currency(intent)
    amount = (intent.get("amount_received") if kind == Kind.SUCCEEDED else None) or intent["amount"]
    return ProviderEvent(
        **about,
        kind=kind,
        key=_metadata(intent, "payment"),
        reference=_id(intent["id"]),
        amount_minor=_amount(amount, currency),
        currency=currency,
        next_action=_next_action(intent) if kind == Kind.PENDING else None,
    )


def _next_action(intent: Row) -> Mapping[str, str] | None:
    secret = intent.get("client_secret")
    if not secret or intent["status"] not in _CANCELABLE:
        return None
    return {"type": "stripe", "client_secret": str(secret), "publishable_key": settings.STRIPE_PUBLISHABLE_KEY}


def _refund_event(refund: Row, **about: Any) -> ProviderEvent:
    currency, answer = _currency(refund), _refund_answer(refund)
    return ProviderEvent(
        **about,
        kind=Kind(f"refund.{answer.state}"),
        # The intent identifies the charge; the refund's metadata holds our refund's id.
        key="",
        reference=_id(refund["payment_intent"]),
        amount_minor=_amount(refund["amount"], currency),
        currency=currency,
        refund_key=_metadata(refund, "refund"),
        refund_reference=answer.reference,
        failure=answer.failure,
    )


def _dispute_event(dispute: Row, kind: Kind, **about: Any) -> ProviderEvent:
    currency = _currency(dispute)
    details = [str(dispute[name]).replace("_", " ") for name in ("status", "reason") if dispute.get(name)]
    return ProviderEvent(
        **about,
        kind=kind,
        # The intent identifies the charge; a dispute's metadata belongs to the account owner.
        key="",
        reference=_id(dispute["payment_intent"]),
        amount_minor=_amount(dispute["amount"], currency),
        currency=currency,
        failure=_failure_text(", ".join(details)),
        dispute_reference=_id(dispute["id"]),
    )


def _amount_refused_event(request: ChargeRequest, kind: Kind, why: str) -> ProviderEvent:
    """Return an event for an amount that Stripe refused, for which Stripe has no intent."""
    return ProviderEvent(
        message_id=f"{request.key}:{kind}",
        kind=kind,
        key=str(request.key),
        reference="",
        amount_minor=request.amount_minor,
        currency=request.currency,
        occurred_at=_parse_timestamp(_now()),
        raw=json.dumps({"refused": why}).encode(),
    )


def _refund_answer(refund: Row) -> RefundAnswer:
    return RefundAnswer(
        reference=_id(refund["id"]),
        state=_REFUND_STATES[refund["status"]],
        failure=_failure_text(refund.get("failure_reason") or ""),
    )


def _movement(kind: MovementKind, row: Row, key_name: str, reference: Any, charge: Any, amount: Any) -> Movement:
    currency = _currency(row)
    return Movement(
        kind=kind,
        reference=_id(reference),
        key=_metadata(row, key_name),
        charge_reference=_id(charge),
        amount_minor=_amount(amount, currency),
        currency=currency,
        occurred_at=_parse_timestamp(row["created"]),
    )


def _check_signature(raw: bytes, header: str) -> None:
    """Check that one of our secrets signed these bytes recently. During a rotation both the old and the new secret are
    valid."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise SignatureInvalid from error
    if not header.isascii():
        raise SignatureInvalid
    for secret in settings.STRIPE_WEBHOOK_SECRETS:
        try:
            sdk.WebhookSignature.verify_header(text, header, secret)
        except sdk.SignatureVerificationError:
            continue
        # Check the age of the delivery, not of the event. The SDK's own check would give no separate error text.
        at = int(next(part[2:] for part in header.split(",") if part.startswith("t=")))
        if _now() - at > SIGNATURE_AGE_SECONDS_MAX:
            raise SignatureInvalid("This delivery was signed too long ago.")
        return
    raise SignatureInvalid


def _now() -> int:
    return int(clock.process_now().timestamp())


def _parse_timestamp(seconds: object) -> datetime:
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not 946_684_800 <= seconds < 4_102_444_800:
        raise ValueError("a timestamp must be Unix seconds between 2000 and 2100")
    return datetime.fromtimestamp(seconds, UTC)


def _currency(row: Row) -> str:
    currency = row["currency"]
    if not (isinstance(currency, str) and len(currency) == 3 and currency.isascii() and currency.isalpha()):
        raise ValueError("currency must be three letters")
    return currency.upper()


def _amount(amount: object, currency: str) -> int:
    if not isinstance(amount, int) or isinstance(amount, bool) or not 0 < amount < 2**53:
        raise ValueError("an amount must be a positive integer")
    return from_stripe(amount, currency)


def _id(text: object) -> str:
    if not (isinstance(text, str) and text.isascii() and text.isprintable() and 0 < len(text) <= TEXT_MAX):
        raise ValueError("an id must be short printable ASCII")
    return text


def _metadata(row: Row, name: str) -> str:
    """Return the metadata value, empty unless it is short printable ASCII: anyone with the account's keys can write
    there."""
    value = (row.get("metadata") or {}).get(name, "")
    return (
        value if isinstance(value, str) and value.isascii() and value.isprintable() and len(value) <= TEXT_MAX else ""
    )


def _failure_text(text: object) -> str:
    return str(text).replace("\x00", "").encode("utf-8", "replace").decode()[:FAILURE_MAX]
