"""The sandbox's books: charges and refunds, with the outcome that the test card prescribes.

Every function runs in a transaction of its own in the sandbox's file (`store`), never in one of the application's
database: a crash can happen between both, as with a real provider. A charge's scheduled change is stored with the
charge (`then_status`), so that an inquiry returns the true state even if the change's webhook was never sent.
"""

import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.conf import settings

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.orders.payments.providers.protocol import ChargeRequest, ProviderFault, RefundRequest, RefundState
from apps.orders.payments.providers.sandbox import messages, store
from apps.orders.payments.providers.sandbox.cards import LATE, Card
from apps.orders.payments.providers.sandbox.rows import NOT_RECEIVED, Charge, Refund

LATE_BY = timedelta(seconds=1)
WEBHOOK_TOPIC = "sandbox.webhook"
NEW_REFUND_STATUS = str(RefundState.SUCCEEDED)
PAGE_SIZE = 500
_TRANSITIONS = {"pending": ("succeeded", "declined"), "declined": ("succeeded",)}


_CHARGE = ", ".join(field.name for field in fields(Charge))
_REFUND = ", ".join(field.name for field in fields(Refund))


def new_pk() -> int:
    return secrets.randbits(52) + 1


def charge(request: ChargeRequest, card: Card) -> tuple[Charge, bool]:
    """Create the charge, once per key, and schedule its card's webhooks. Return the charge and whether it is new."""
    (booked,) = charge_all([(request, card)])
    return booked


def charge_all(requests: Sequence[tuple[ChargeRequest, Card]]) -> list[tuple[Charge, bool]]:
    """Create these charges as `charge` does, in one transaction. Return them in the same order."""
    booked: list[tuple[Charge, bool]] = []
    webhooks: list[outbox.NewMessage] = []
    with store.transaction() as on:
        now = clock.process_now()
        for request, card in requests:
            known = _find(on, str(request.key))
            if known is None:
                row = _new_charge(request, card, now)
                _insert(on, row)
                webhooks += _webhooks(row, request, card, now)
            else:
                row = _apply_due_change(on, known, now)
                if row.status == NOT_RECEIVED:
                    row = _change_status(on, row, card.answer, now)
            booked.append((row, known is None))
    # After the commit, as a remote provider sends them. If this process ends before, they are lost, which inquiries
    # make up for.
    _send(webhooks)
    return booked


def _new_charge(request: ChargeRequest, card: Card, now: datetime) -> Charge:
    return Charge(
        pk=new_pk(),
        idempotency_key=str(request.key),
        method=request.method,
        amount_minor=request.amount_minor + card.excess_minor,
        currency=request.currency,
        status=card.answer if card.is_received else NOT_RECEIVED,
        occurred_at=now,
        then_status=card.then,
        then_at=now + _pause() if card.then else None,
        return_url=request.return_url,
    )


def _webhooks(row: Charge, request: ChargeRequest, card: Card, now: datetime) -> list[outbox.NewMessage]:
    scheduled = [
        _webhook(row, each.status, now + each.true_after * _pause(), each.sent_after * _pause())
        for each in card.webhooks
    ]
    if request.method == LATE:
        happens_at = max(request.counts_until, now) + LATE_BY
        scheduled.append(_webhook(row, "succeeded", happens_at, happens_at - now))
    return scheduled


def _pause() -> timedelta:
    return timedelta(seconds=settings.SANDBOX_PAUSE_SECONDS)


def find(key: str) -> Charge | None:
    """Return the charge with this key in its current state; None if it does not exist or its request was lost."""
    with store.transaction(writes=False) as on:
        row = _find(on, key)
    if row is not None and row.then_at is not None:
        with store.transaction() as on:
            row = _apply_due_change(on, _get(on, key), clock.process_now())
    return None if row is None or row.status == NOT_RECEIVED else row


def find_by_pk(pk: int) -> Charge | None:
    with store.transaction(writes=False) as on:
        return _first(on, "pk = ?", pk)


def cancel(request: ChargeRequest) -> Charge:
    """Cancel the charge unless it has succeeded, and return it. The late card's pending charge cannot be canceled: real
    banks have such payments too."""
    key = str(request.key)
    with store.transaction() as on:
        now = clock.process_now()
        if _find(on, key) is None:
            # A charge request that arrives later finds this row and its canceled status.
            _insert(on, Charge(new_pk(), key, request.method, request.amount_minor, request.currency, "canceled", now))
        row = _apply_due_change(on, _get(on, key), now)
        if row.status in ("declined", NOT_RECEIVED) or (row.status == "pending" and row.method != LATE):
            row = _change_status(on, row, "canceled", now)
        return row


def decide(charge_pk: int, status: str) -> Charge | None:
    """Set a pending charge to this status and schedule its webhook; a decided charge stays unchanged. Return the
    charge, or None if there is none."""
    webhooks = []
    with store.transaction() as on:
        found = _first(on, "pk = ?", charge_pk)
        if found is None:
            return None
        now = clock.process_now()
        row = _apply_due_change(on, found, now)
        if row.status == "pending":
            row = _change_status(on, row, status, now)
            webhooks.append(_webhook(row, status, now, timedelta()))
    _send(webhooks)
    return row


def settle(key: str, status: str, occurred_at: datetime) -> bytes:
    """Set the charge to the webhook's status if its current status allows it. Return the unsigned webhook with this
    status, or with the cancellation if the charge is canceled."""
    return settle_all([(key, status, occurred_at)])[0]


def settle_all(changes: Sequence[tuple[str, str, datetime]]) -> list[bytes]:
    """Settle these charges as `settle` does, in one transaction. Return their webhooks in the same order."""
    with store.transaction() as on:
        return [_settle(on, *change) for change in changes]


def _settle(on: sqlite3.Connection, key: str, status: str, occurred_at: datetime) -> bytes:
    row = _apply_due_change(on, _get(on, key), clock.process_now())
    if status in _TRANSITIONS.get(row.status, ()):
        row = _change_status(on, row, status, occurred_at)
    if row.status == "canceled":
        return messages.charge_event(row).raw
    if row.status == status:
        occurred_at = row.occurred_at
    return messages.charge_message(row, status, occurred_at)


def refund(request: RefundRequest) -> Refund | None:
    """Refund this amount of the captured charge, once per key. Return None if the charge has less left. Raises
    ProviderFault if there is no such charge."""
    with store.transaction() as on:
        charge = _captured(on, request.charge_reference)
        known = _find_refund(on, str(request.key))
        if known is not None:
            return known
        # In one write transaction: two concurrent refunds together never exceed the charge.
        ((refunded_minor,),) = on.execute(
            "SELECT coalesce(sum(amount_minor), 0) FROM refund WHERE charge_pk = ? AND status <> 'failed'", [charge.pk]
        ).fetchall()
        if refunded_minor + request.amount_minor > charge.amount_minor:
            return None
        row = Refund(
            new_pk(), str(request.key), charge.pk, request.amount_minor, NEW_REFUND_STATUS, "", clock.process_now()
        )
        insert_refund(on, row)
        return row


def find_refund(key: str) -> Refund | None:
    with store.transaction(writes=False) as on:
        return _find_refund(on, key)


def captures(day: date) -> Iterator[Charge]:
    """Yield the captured charges of this UTC day by time."""
    for row in _of_day("charge", _CHARGE, day):
        yield _charge_of(row)


def refunds(day: date) -> Iterator[tuple[Refund, str]]:
    """Yield the refunds that succeeded on this UTC day by time, with their currencies."""
    currency = "(SELECT charge.currency FROM charge WHERE charge.pk = charge_pk)"
    for *row, code in _of_day("refund", f"{_REFUND}, {currency}", day):
        yield _refund_of(row), code


def _of_day(table: str, columns: str, day: date) -> Iterator[tuple[Any, ...]]:
    begin = datetime.combine(day, time(), UTC)
    end, after = _text(begin + timedelta(days=1)), (_text(begin), 0)
    while True:
        # Page by page: no transaction stays open while the caller works.
        with store.transaction(writes=False) as on:
            page = on.execute(
                f"SELECT {columns}, occurred_at, pk FROM {table} WHERE status = 'succeeded'"  # noqa: S608 - Constants.
                " AND (occurred_at, pk) > (?, ?) AND occurred_at < ? ORDER BY occurred_at, pk LIMIT ?",
                [*after, end, PAGE_SIZE],
            ).fetchall()
        for *row, occurred_at, pk in page:
            after = (occurred_at, pk)
            yield tuple(row)
        if len(page) < PAGE_SIZE:
            return


def insert_refund(on: sqlite3.Connection, row: Refund) -> None:
    on.execute(f"INSERT INTO refund ({_REFUND}) VALUES (?, ?, ?, ?, ?, ?, ?)", _values(row))  # noqa: S608


def _insert(on: sqlite3.Connection, row: Charge) -> None:
    on.execute(f"INSERT INTO charge ({_CHARGE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _values(row))  # noqa: S608


def _values(row: Charge | Refund) -> list[Any]:
    return [_text(value) if isinstance(value, datetime) else value for value in astuple(row)]


def _text(moment: datetime) -> str:
    """Return the time in a form that sorts by time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _find(on: sqlite3.Connection, key: str) -> Charge | None:
    return _first(on, "idempotency_key = ?", key)


def _get(on: sqlite3.Connection, key: str) -> Charge:
    row = _find(on, key)
    if row is None:
        raise LookupError(f"the sandbox has no charge {key}")
    return row


def _first(on: sqlite3.Connection, condition: str, value: object) -> Charge | None:
    row = on.execute(f"SELECT {_CHARGE} FROM charge WHERE {condition}", [value]).fetchone()  # noqa: S608 - Constants.
    return None if row is None else _charge_of(row)


def _find_refund(on: sqlite3.Connection, key: str) -> Refund | None:
    row = on.execute(f"SELECT {_REFUND} FROM refund WHERE idempotency_key = ?", [key]).fetchone()  # noqa: S608
    return None if row is None else _refund_of(row)


def _charge_of(row: Sequence[Any]) -> Charge:
    found = Charge(*row)
    found.occurred_at = datetime.fromisoformat(row[6])
    found.then_at = None if row[8] is None else datetime.fromisoformat(row[8])
    return found


def _refund_of(row: Sequence[Any]) -> Refund:
    found = Refund(*row)
    found.occurred_at = datetime.fromisoformat(row[6])
    return found


def _captured(on: sqlite3.Connection, reference: str) -> Charge:
    prefix, _, number = reference.partition("_")
    row = _first(on, "pk = ?", int(number)) if prefix == "sc" and number.isdigit() and len(number) < 19 else None
    if row is None or row.status != "succeeded":
        raise ProviderFault(f"the sandbox has no captured charge {reference}")
    return row


def _apply_due_change(on: sqlite3.Connection, row: Charge, now: datetime) -> Charge:
    """Apply the charge's scheduled change if it is due. Return the charge."""
    if row.then_at is None or row.then_at > now:
        return row
    status, occurred_at = row.then_status, row.then_at
    row.then_status, row.then_at = "", None
    if status in _TRANSITIONS.get(row.status, ()):
        row.status, row.occurred_at = status, occurred_at
    return _save(on, row)


def _change_status(on: sqlite3.Connection, row: Charge, status: str, occurred_at: datetime) -> Charge:
    row.status, row.occurred_at, row.then_status, row.then_at = status, occurred_at, "", None
    return _save(on, row)


def _save(on: sqlite3.Connection, row: Charge) -> Charge:
    on.execute(
        "UPDATE charge SET status = ?, occurred_at = ?, then_status = ?, then_at = ? WHERE pk = ?",
        [row.status, _text(row.occurred_at), row.then_status, row.then_at and _text(row.then_at), row.pk],
    )
    return row


def _webhook(row: Charge, status: str, occurred_at: datetime, delay: timedelta) -> outbox.NewMessage:
    body = {"key": row.idempotency_key, "status": status, "occurred_at": occurred_at.isoformat()}
    return outbox.NewMessage(WEBHOOK_TOPIC, row.idempotency_key, body, delay)


def _send(webhooks: Sequence[outbox.NewMessage]) -> None:
    """Schedule these webhooks, and commit."""
    if webhooks:
        with transactions.write():
            outbox.publish_all(webhooks)
