"""Stripe, through its SDK: a payment is a PaymentIntent, which the buyer's browser pays in Stripe's own form.

Card data goes from the browser directly to Stripe. Our payment's id is the idempotency key of its intent and is stored
in the intent's metadata. A refund's id is used in the same way.

SDK retries are off, because we count every try. After a timeout the state is unknown, so we retry with the same key.
Stripe keeps idempotency keys for a day; a later retry first looks up the intent or refund.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Any
from uuid import UUID

import aiohttp
import stripe as sdk
from django.conf import settings

from apps.orders.payments import large_orders
from apps.orders.payments.providers import event_loop
from apps.orders.payments.providers import stripe_objects as objects
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
    RequestFault,
    RequestsLimited,
)

logger = logging.getLogger(__name__)

NAME = "stripe"
METHODS = {"card": "Card or digital wallet"}
# Only methods that are decided at once: a bank debit takes days, but a payment deadline is minutes away.
METHOD_TYPES: list[Any] = ["card"]
CONNECT_SECONDS_MAX = 5
PAGE_SIZE = 100
_REFUND_REFUSED = {"charge_already_refunded", "charge_disputed", "amount_too_large"}


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
            except objects.RequestRefused as error:
                return _refused_event(request, Kind.DECLINED, str(error))

    def begin_charges(self, requests: Sequence[ChargeRequest]) -> "Sequence[Future[ProviderEvent]]":
        return [event_loop.submit(_charge(request)) for request in requests]

    def cancel(self, request: ChargeRequest, reference: str = "") -> ProviderEvent:
        with _translate_errors():
            try:
                # Creating with the same key returns an intent whose response we lost. If there is none, this creates
                # one, which is canceled below, so that a request still under way cannot create another.
                intent = _retrieve_intent(reference) if reference else _create(request)
            except objects.RequestRefused as error:
                return _refused_event(request, Kind.CANCELED, str(error))
            if intent["status"] in objects.CANCELABLE:
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
                        "amount": objects.to_stripe(request.amount_minor, request.currency),
                        "metadata": {"refund": str(request.key)},
                    },
                    options={"idempotency_key": str(request.key)},
                )
            except (sdk.InvalidRequestError, objects.RequestRefused) as error:
                if isinstance(error, sdk.InvalidRequestError) and error.code not in _REFUND_REFUSED:
                    raise
                return RefundAnswer("", RefundState.FAILED, objects.failure_text(str(error)))
            return objects.refund_answer(refund.to_dict())

    def find_refund(self, key: UUID, charge_reference: str) -> RefundAnswer | None:
        with _translate_errors():
            params: Any = {"payment_intent": charge_reference, "limit": PAGE_SIZE}
            for refund in _client().v1.refunds.list(params=params).auto_paging_iter():
                row = refund.to_dict()
                if objects.metadata_of(row, "refund") == str(key):
                    return objects.refund_answer(row)
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
    """Return the client of the running event loop, with a connection for each charge that may be under way."""
    base, timeout_seconds = settings.STRIPE_API_BASE, settings.PAYMENT_TIMEOUT_SECONDS
    calls_max = settings.PAYMENT_CALLS_MAX + large_orders.calls_max()
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
        except (sdk.InvalidRequestError, objects.RequestRefused) as error:
            return _refused_event(request, Kind.DECLINED, str(error))


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate SDK errors, those of its connections, and responses that cannot be parsed into ProviderFault."""
    try:
        yield
    except sdk.InvalidRequestError as error:
        raise RequestFault(f"Stripe refuses the request: {error.code or ''} {error}"[:500]) from error
    except sdk.RateLimitError as error:
        raise RequestsLimited(f"Stripe takes no more requests: {error.code or ''} {error}"[:500]) from error
    except sdk.StripeError as error:
        # The text contains no secret: the SDK masks keys, and card data never reaches us.
        raise ProviderFault(f"Stripe: {type(error).__name__} {error.code or ''} {error}"[:500]) from error
    except (aiohttp.ClientError, OSError) as error:
        # The SDK lets errors pass that occur while the body is read.
        raise ProviderFault(f"Stripe: {error!r}"[:500]) from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ProviderFault(f"Stripe's response cannot be parsed: {error!r}"[:500]) from error


def _creation(request: ChargeRequest) -> dict[str, Any]:
    """Return the arguments that create the intent. Raises `RequestRefused`."""
    return {
        "params": {
            "amount": objects.to_stripe(request.amount_minor, request.currency),
            "currency": request.currency.lower(),
            "allowed_payment_method_types": METHOD_TYPES,
            "description": request.description,
            "metadata": {"payment": str(request.key)},
        },
        "options": {"idempotency_key": str(request.key)},
    }


def _create(request: ChargeRequest) -> objects.Row:
    try:
        intent = _client().v1.payment_intents.create(**_creation(request))
    except sdk.InvalidRequestError as error:
        # This request is refused, for example its amount or currency: no intent exists, and a retry cannot succeed. It
        # is no fault of the provider, which would be paused for the payments of all events.
        raise objects.RequestRefused(str(error)) from error
    return intent.to_dict()


def _retrieve_intent(reference: str) -> objects.Row:
    return _client().v1.payment_intents.retrieve(reference, params={"expand": ["latest_charge"]}).to_dict()


def _search_intent(key: UUID) -> objects.Row | None:
    """Search for the intent by our payment's id. Stripe's index may lag by a minute; if it misses the intent, the
    charge call that follows finds the intent by its idempotency key."""
    found = _client().v1.payment_intents.search(
        params={"query": f"metadata['payment']:'{key}'", "limit": 1, "expand": ["data.latest_charge"]}
    )
    return found.data[0].to_dict() if found.data else None


def _intent_event(intent: objects.Row) -> ProviderEvent:
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
        moment = objects.now()
    shown = {name: value for name, value in intent.items() if name != "client_secret"}
    return objects.charge_event(
        intent,
        kind,
        message_id=f"{intent['id']}:{kind}:{'' if charge is None else charge['id']}"[: objects.TEXT_MAX],
        occurred_at=objects.parse_timestamp(moment),
        raw=json.dumps(shown, default=str).encode(),
    )


def _refused_event(request: ChargeRequest, kind: Kind, why: str) -> ProviderEvent:
    """Return an event for a request that Stripe refused, for which Stripe has no intent."""
    # An error: if the cause is our configuration, every payment is declined.
    logger.error("payment %s: Stripe refuses its charge: %s", request.key, why)
    return ProviderEvent(
        message_id=f"{request.key}:{kind}",
        kind=kind,
        key=str(request.key),
        reference="",
        amount_minor=request.amount_minor,
        currency=request.currency,
        occurred_at=objects.parse_timestamp(objects.now()),
        raw=json.dumps({"refused": why}).encode(),
    )


def _movement(
    kind: MovementKind, row: objects.Row, key_name: str, reference: Any, charge: Any, amount: Any
) -> Movement:
    currency = objects.currency_of(row)
    return Movement(
        kind=kind,
        reference=objects.id_of(reference),
        key=objects.metadata_of(row, key_name),
        charge_reference=objects.id_of(charge),
        amount_minor=objects.amount_of(amount, currency),
        currency=currency,
        occurred_at=objects.parse_timestamp(row["created"]),
    )
