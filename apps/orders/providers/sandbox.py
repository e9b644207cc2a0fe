"""The sandbox: a provider that keeps its books in PostgreSQL and behaves as the payment method says.

It plays the outside world. Its rows are written in transactions of its own, so that a crash between its answer and
our ledger is as possible as with a real provider; its late messages come through the same signed webhook.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from apps.orders.errors import SignatureInvalid
from apps.orders.models import SandboxCharge, SandboxRefund
from apps.orders.providers.protocol import ChargeRequest, Kind, ProviderEvent, ProviderFault, RefundRequest
from ticketing.kernel import clock, problems, signing, transactions
from ticketing.kernel.outbox import facade as outbox

NAME = "sandbox"
APPROVES, DECLINES, LATE = "sandbox", "sandbox_decline", "sandbox_late"
METHODS = {
    APPROVES: "Test card that pays",
    DECLINES: "Test card that is declined",
    LATE: "Test card whose payment arrives too late",
}
LATE_BY = timedelta(seconds=1)
SIGNATURE_HEADER = "Sandbox-Signature"
SIGNATURE_AGE_SECONDS_MAX = 300
OCCURRED_YEARS = range(2000, 2100)
WEBHOOK_TOPIC = "sandbox.webhook"


class Sandbox:
    name = NAME
    methods = METHODS

    def find_charge(self, key: UUID) -> ProviderEvent | None:
        charge = SandboxCharge.objects.filter(idempotency_key=str(key)).first()
        return None if charge is None else event_of(charge)

    def charge(self, request: ChargeRequest) -> ProviderEvent:
        with transactions.write():
            # Two at once with one key: the second waits at the unique key and then finds the first one's row.
            now = clock.now()
            status = {APPROVES: "succeeded", DECLINES: "declined", LATE: "pending"}[request.method]
            charge, created = SandboxCharge.objects.get_or_create(
                idempotency_key=str(request.key),
                defaults={
                    "method": request.method,
                    "amount_minor": request.amount_minor,
                    "currency": request.currency,
                    "status": status,
                    "occurred_at": now,
                },
            )
            if created and request.method == LATE:
                happens_at = max(request.counts_until, now) + LATE_BY
                outbox.publish(
                    WEBHOOK_TOPIC,
                    str(request.key),
                    {"key": str(request.key), "occurred_at": happens_at.isoformat()},
                    delay=happens_at - now,
                )
        return event_of(charge)

    def refund(self, request: RefundRequest) -> str:
        with transactions.write():
            charge = SandboxCharge.objects.filter(pk=_charge_pk(request.charge_reference)).first()
            if charge is None or charge.status != "succeeded":
                raise ProviderFault(f"the sandbox has no captured charge {request.charge_reference}")
            refund, _ = SandboxRefund.objects.get_or_create(
                idempotency_key=str(request.key),
                defaults={"charge": charge, "amount_minor": request.amount_minor, "occurred_at": clock.now()},
            )
        return f"sr_{refund.pk}"

    def read_webhook(self, raw: bytes, headers: Mapping[str, str]) -> ProviderEvent:
        _check_signature(raw, headers.get(SIGNATURE_HEADER, ""))
        try:
            return _read(raw)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise problems.MalformedBody("This is not a message of the sandbox.") from error


def settle_late_charge(key: str, occurred_at: datetime) -> bytes:
    """The late charge has succeeded in the sandbox's books; the message that says so, unsigned."""
    with transactions.write():
        charge = SandboxCharge.objects.select_for_update(no_key=True).get(idempotency_key=key)
        if charge.status == "pending":
            charge.status, charge.occurred_at = "succeeded", occurred_at
            charge.save(update_fields=["status", "occurred_at"])
    return event_of(charge).raw


def event_of(charge: SandboxCharge) -> ProviderEvent:
    """What the books say of a charge, as the message they would send: same state, same bytes, same message id."""
    raw = json.dumps(
        {
            "id": f"se_{charge.pk}_{charge.status}",
            "type": f"payment.{charge.status}",
            "occurred_at": charge.occurred_at.isoformat(),
            "charge": {
                "id": f"sc_{charge.pk}",
                "idempotency_key": charge.idempotency_key,
                "amount_minor": charge.amount_minor,
                "currency": charge.currency,
            },
        }
    ).encode()
    return _read(raw)


def sign(raw: bytes, at_seconds: int | None = None) -> str:
    """The signature header for these bytes, as if sent at that Unix time (now unless given)."""
    at = int(clock.process_now().timestamp()) if at_seconds is None else at_seconds
    return f"t={at},v1={_digest(raw, str(at))}"


def _digest(raw: bytes, at: str) -> str:
    secret = hashlib.sha256(b"sandbox webhooks " + signing.require_key().encode()).digest()
    return hmac.new(secret, at.encode() + b"." + raw, hashlib.sha256).hexdigest()


def _check_signature(raw: bytes, header: str) -> None:
    parts = dict(part.split("=", 1) for part in header.split(",") if "=" in part)
    at, given = parts.get("t", ""), parts.get("v1", "")
    if not (at.isascii() and at.isdigit() and len(at) <= 12 and given.isascii()):
        raise SignatureInvalid
    if not hmac.compare_digest(_digest(raw, at), given):
        raise SignatureInvalid
    # The age of the delivery, never of what it speaks about: a late message is news, an old delivery is a replay.
    if abs(clock.process_now().timestamp() - int(at)) > SIGNATURE_AGE_SECONDS_MAX:
        raise SignatureInvalid("This delivery was signed too long ago.")


def _read(raw: bytes) -> ProviderEvent:
    body = json.loads(raw)
    charge = body["charge"]
    for text in (body["id"], charge["id"], charge["idempotency_key"]):
        if not (isinstance(text, str) and text.isascii() and text.isprintable() and 0 < len(text) <= 120):
            raise ValueError("ids are short printable ASCII")
    if not (isinstance(charge["currency"], str) and re.fullmatch(r"[A-Z]{3}", charge["currency"])):
        raise ValueError("currency is three capital letters")
    amount_minor = charge["amount_minor"]
    if not isinstance(amount_minor, int) or isinstance(amount_minor, bool) or not 0 < amount_minor < 2**63:
        raise ValueError("amount_minor is a positive integer")
    occurred_at = datetime.fromisoformat(body["occurred_at"])
    if occurred_at.tzinfo is None:
        raise ValueError("occurred_at names its zone")
    # In UTC from here on: PostgreSQL keeps moments that Python cannot read back at the ends of its calendar.
    occurred_at = occurred_at.astimezone(UTC)
    if occurred_at.year not in OCCURRED_YEARS:
        raise ValueError("occurred_at is of our time")
    return ProviderEvent(
        message_id=body["id"],
        kind=Kind(body["type"]),
        key=charge["idempotency_key"],
        reference=charge["id"],
        amount_minor=amount_minor,
        currency=charge["currency"],
        occurred_at=occurred_at,
        raw=raw,
    )


def _charge_pk(reference: str) -> int:
    prefix, _, number = reference.partition("_")
    if prefix != "sc" or not number.isdigit():
        raise ProviderFault(f"the sandbox has no charge {reference}")
    return int(number)
