"""The sandbox's webhooks as bytes: build, sign, verify and parse them. The parser trusts nothing in the bytes."""

import hashlib
import hmac
import json
import re
from datetime import UTC, datetime
from typing import Any

from django.core.signing import Signer
from django.urls import reverse

from apps.kernel import clock, secret_key
from apps.kernel.http import problems
from apps.orders.absolute_urls import absolute_url
from apps.orders.errors import SignatureInvalid
from apps.orders.payments.providers.protocol import Headers, Kind, ProviderEvent
from apps.orders.payments.providers.sandbox.cards import CHALLENGES
from apps.orders.payments.providers.sandbox.rows import Charge

SIGNATURE_HEADER = "Sandbox-Signature"
SIGNATURE_AGE_SECONDS_MAX = 300
OCCURRED_YEARS = range(2000, 2100)
URL_LENGTH_MAX = 500
_page_signer = Signer(salt="sandbox-pay", sep=".")


def charge_event(charge: Charge) -> ProviderEvent:
    """Return the charge's current state as an event. The same state gives the same bytes and message id."""
    return parse_message(charge_message(charge, charge.status, charge.occurred_at))


def charge_message(charge: Charge, status: str, occurred_at: datetime) -> bytes:
    """Return the unsigned webhook for this status of the charge."""
    body: dict[str, Any] = {
        "id": f"se_{charge.pk}_{status}",
        "type": f"payment.{status}",
        "occurred_at": occurred_at.isoformat(),
        "charge": {
            "id": f"sc_{charge.pk}",
            "idempotency_key": charge.idempotency_key,
            "amount_minor": charge.amount_minor,
            "currency": charge.currency,
        },
    }
    if status == "pending" and charge.method == CHALLENGES:
        body["next_action"] = {"type": "redirect", "url": absolute_url(payment_page_path(charge))}
    return json.dumps(body).encode()


def payment_page_path(charge: Charge) -> str:
    """Return the path of the sandbox's confirmation page for this charge. The signed path authorizes the decision."""
    return reverse("orders:sandbox_pay", args=[_page_signer.sign(str(charge.pk))])


def parse_page_token(token: str) -> int:
    """Return the id of the charge in a confirmation page's token. Raises BadSignature."""
    return int(_page_signer.unsign(token))


def sign(raw: bytes, at_seconds: int | None = None) -> str:
    """Return the signature header for these bytes, sent at this Unix time (default: now)."""
    at = int(clock.process_now().timestamp()) if at_seconds is None else at_seconds
    return f"t={at},v1={_digest(secret_key.require_key(), raw, str(at))}"


def _digest(key: str, raw: bytes, at: str) -> str:
    secret = hashlib.sha256(b"sandbox webhooks " + key.encode()).digest()
    return hmac.new(secret, at.encode() + b"." + raw, hashlib.sha256).hexdigest()


def check_signature(raw: bytes, header: str) -> None:
    """Check that the sandbox signed these bytes recently. Raises SignatureInvalid."""
    parts = dict(part.split("=", 1) for part in header.split(",") if "=" in part)
    at, given = parts.get("t", ""), parts.get("v1", "")
    if not (at.isascii() and at.isdigit() and len(at) <= 12 and given.isascii()):
        raise SignatureInvalid
    if not any(hmac.compare_digest(_digest(key, raw, at), given) for key in secret_key.accepted_keys()):
        raise SignatureInvalid
    # Check the age of the delivery, not of the event: a late event is still valid, but an old delivery is a replay.
    if abs(clock.process_now().timestamp() - int(at)) > SIGNATURE_AGE_SECONDS_MAX:
        raise SignatureInvalid("This delivery was signed too long ago.")


def read_webhook(raw: bytes, headers: Headers) -> ProviderEvent:
    """Return the event of a webhook, as a `WebhookReader` does."""
    check_signature(raw, headers.get(SIGNATURE_HEADER, ""))
    try:
        return parse_message(raw)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise problems.MalformedBody("The body is not a sandbox webhook.") from error


def parse_message(raw: bytes) -> ProviderEvent:
    """Parse a webhook's bytes. Raises ValueError, TypeError or KeyError for malformed ones."""
    body = json.loads(raw)
    kind, charge = Kind(body["type"]), body["charge"]
    refund: dict[str, Any] = body["refund"] if kind.is_refund else {}
    _check_id(body["id"])
    for row in (charge, refund) if kind.is_refund else (charge,):
        _check_id(row["id"])
        _check_id(row["idempotency_key"])
    if not (isinstance(charge["currency"], str) and re.fullmatch(r"[A-Z]{3}", charge["currency"])):
        raise ValueError("currency must be three capital letters")
    amount_minor = (refund or charge)["amount_minor"]
    if not isinstance(amount_minor, int) or isinstance(amount_minor, bool) or not 0 < amount_minor < 2**63:
        raise ValueError("amount_minor must be a positive integer")
    failure = refund.get("failure", "")
    if not (isinstance(failure, str) and failure.isascii() and len(failure) <= 200 and "\x00" not in failure):
        raise ValueError("failure must be a short ASCII string")
    occurred_at = datetime.fromisoformat(body["occurred_at"])
    if occurred_at.tzinfo is None:
        raise ValueError("occurred_at must have a time zone")
    # Converted to UTC and limited to this century: PostgreSQL stores timestamps near the ends of Python's calendar
    # that Python cannot read back.
    occurred_at = occurred_at.astimezone(UTC)
    if occurred_at.year not in OCCURRED_YEARS:
        raise ValueError("occurred_at must be between 2000 and 2099")
    return ProviderEvent(
        message_id=body["id"],
        kind=kind,
        key=charge["idempotency_key"],
        reference=charge["id"],
        amount_minor=amount_minor,
        currency=charge["currency"],
        occurred_at=occurred_at,
        raw=raw,
        refund_key=refund.get("idempotency_key", ""),
        refund_reference=refund.get("id", ""),
        failure=failure,
        next_action=None if kind != Kind.PENDING else _next_action(body.get("next_action")),
    )


def _next_action(action: Any) -> dict[str, str] | None:
    if action is None:
        return None
    kind, url = action["type"], action["url"]
    if kind != "redirect" or not (isinstance(url, str) and url.startswith(("http://", "https://"))):
        raise ValueError("next_action must be a redirect")
    if not (url.isascii() and url.isprintable() and len(url) <= URL_LENGTH_MAX):
        raise ValueError("url must be short printable ASCII")
    return {"type": kind, "url": url}


def _check_id(text: object) -> None:
    if not (isinstance(text, str) and text.isascii() and text.isprintable() and 0 < len(text) <= 120):
        raise ValueError("an id must be short printable ASCII")
