"""The sandbox: a provider that keeps its books in PostgreSQL and behaves as the payment method says.

It plays the outside world. Its rows are written in transactions of its own, so that a crash between its answer and
our ledger is as possible as with a real provider; its late messages come through the same signed webhook.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from apps.orders.errors import SignatureInvalid
from apps.orders.models import SandboxCharge, SandboxRefund
from apps.orders.providers.protocol import (
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

    def find_charge(self, key: UUID, reference: str = "") -> ProviderEvent | None:
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

    def cancel(self, request: ChargeRequest, reference: str = "") -> ProviderEvent:
        with transactions.write():
            # A charge that comes up after this meets the row, and is canceled too.
            charge, _ = SandboxCharge.objects.get_or_create(
                idempotency_key=str(request.key),
                defaults={
                    "method": request.method,
                    "amount_minor": request.amount_minor,
                    "currency": request.currency,
                    "status": "canceled",
                    "occurred_at": clock.now(),
                },
            )
            charge = SandboxCharge.objects.select_for_update(no_key=True).get(pk=charge.pk)
            # Money that is under way arrives: banks have such payments too.
            if charge.status == "declined" or (charge.status == "pending" and charge.method != LATE):
                charge.status, charge.occurred_at = "canceled", clock.now()
                charge.save(update_fields=["status", "occurred_at"])
        return event_of(charge)

    def refund(self, request: RefundRequest) -> RefundAnswer:
        with transactions.write():
            charge = SandboxCharge.objects.filter(pk=_charge_pk(request.charge_reference)).first()
            if charge is None or charge.status != "succeeded":
                raise ProviderFault(f"the sandbox has no captured charge {request.charge_reference}")
            refund, _ = SandboxRefund.objects.get_or_create(
                idempotency_key=str(request.key),
                defaults={"charge": charge, "amount_minor": request.amount_minor, "occurred_at": clock.now()},
            )
        return _answer_of(refund)

    def find_refund(self, key: UUID, charge_reference: str) -> RefundAnswer | None:
        refund = SandboxRefund.objects.filter(idempotency_key=str(key)).first()
        return None if refund is None else _answer_of(refund)

    def movements(self, day: date) -> Iterator[Movement]:
        begin = datetime.combine(day, time(), UTC)
        of_day = {"occurred_at__gte": begin, "occurred_at__lt": begin + timedelta(days=1), "status": "succeeded"}
        for charge in SandboxCharge.objects.filter(**of_day).order_by("occurred_at", "pk").iterator(500):
            yield Movement(
                kind=MovementKind.CAPTURE,
                reference=f"sc_{charge.pk}",
                key=charge.idempotency_key,
                charge_reference=f"sc_{charge.pk}",
                amount_minor=charge.amount_minor,
                currency=charge.currency,
                occurred_at=charge.occurred_at,
            )
        refunds = SandboxRefund.objects.filter(**of_day).select_related("charge").order_by("occurred_at", "pk")
        for refund in refunds.iterator(500):
            yield Movement(
                kind=MovementKind.REFUND,
                reference=f"sr_{refund.pk}",
                key=refund.idempotency_key,
                charge_reference=f"sc_{refund.charge_id}",
                amount_minor=refund.amount_minor,
                currency=refund.charge.currency,
                occurred_at=refund.occurred_at,
            )

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
            "charge": _of_charge(charge),
        }
    ).encode()
    return _read(raw)


def event_of_refund(refund: SandboxRefund) -> ProviderEvent:
    """What the books say of a refund, as the message they would send."""
    raw = json.dumps(
        {
            "id": f"se_r{refund.pk}_{refund.status}",
            "type": f"refund.{refund.status}",
            "occurred_at": refund.occurred_at.isoformat(),
            "charge": _of_charge(refund.charge),
            "refund": {
                "id": f"sr_{refund.pk}",
                "idempotency_key": refund.idempotency_key,
                "amount_minor": refund.amount_minor,
                "failure": refund.failure,
            },
        }
    ).encode()
    return _read(raw)


def _of_charge(charge: SandboxCharge) -> dict[str, Any]:
    return {
        "id": f"sc_{charge.pk}",
        "idempotency_key": charge.idempotency_key,
        "amount_minor": charge.amount_minor,
        "currency": charge.currency,
    }


def _answer_of(refund: SandboxRefund) -> RefundAnswer:
    return RefundAnswer(reference=f"sr_{refund.pk}", state=RefundState(refund.status), failure=refund.failure)


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
    kind, charge = Kind(body["type"]), body["charge"]
    refund: dict[str, Any] = body["refund"] if kind.is_of_refund else {}
    _check_id(body["id"])
    for row in (charge, refund) if kind.is_of_refund else (charge,):
        _check_id(row["id"])
        _check_id(row["idempotency_key"])
    if not (isinstance(charge["currency"], str) and re.fullmatch(r"[A-Z]{3}", charge["currency"])):
        raise ValueError("currency is three capital letters")
    amount_minor = (refund or charge)["amount_minor"]
    if not isinstance(amount_minor, int) or isinstance(amount_minor, bool) or not 0 < amount_minor < 2**63:
        raise ValueError("amount_minor is a positive integer")
    failure = refund.get("failure", "")
    if not (isinstance(failure, str) and failure.isascii() and len(failure) <= 200 and "\x00" not in failure):
        raise ValueError("failure is a short text")
    occurred_at = datetime.fromisoformat(body["occurred_at"])
    if occurred_at.tzinfo is None:
        raise ValueError("occurred_at names its zone")
    # In UTC from here on: PostgreSQL keeps moments that Python cannot read back at the ends of its calendar.
    occurred_at = occurred_at.astimezone(UTC)
    if occurred_at.year not in OCCURRED_YEARS:
        raise ValueError("occurred_at is of our time")
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
    )


def _check_id(text: object) -> None:
    if not (isinstance(text, str) and text.isascii() and text.isprintable() and 0 < len(text) <= 120):
        raise ValueError("ids are short printable ASCII")


def _charge_pk(reference: str) -> int:
    prefix, _, number = reference.partition("_")
    if prefix != "sc" or not number.isdigit():
        raise ProviderFault(f"the sandbox has no charge {reference}")
    return int(number)
