"""The circuit breaker before a payment provider: one that does not answer is left alone, and tried now and then.

The state is one row per provider in PostgreSQL, so that all workers know at once and nothing is lost with Redis. What
would have called stays in the outbox. An answer costs a read; only a fault, and the answer after one, write. How calls
go is told to the waiting rooms too, which send fewer people into a shop that cannot take their money.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import connection

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.outbox import facade as outbox
from apps.orders.models import ProviderStanding
from apps.queue import facade as queue

FAULT_WINDOW_SECONDS = 60
"""Faults further apart than this are not in a row."""
TRIAL_PAUSE_SECONDS = 2
"""How long those wait who find another trying the provider."""

_package = "apps.orders"
_standing = sql.load(_package, "provider_standing")
_claim_trial = sql.load(_package, "claim_provider_trial")
_note_fault = sql.load(_package, "note_provider_fault")
_note_answer = sql.load(_package, "note_provider_answer")


class ProviderUnavailable(Exception):
    """The provider failed too often and is left alone; nothing was asked of it."""

    def __init__(self, provider: str, seconds: int) -> None:
        super().__init__(f"{provider} rests for another {seconds} s")
        self.seconds = seconds


def require_available(provider: str) -> int:
    """The provider may be called once the caller has committed; its faults in a row, to be given to `record_success`.

    After a rest that is so for one caller alone, whose call decides for all. Raises ProviderUnavailable. Joins the
    caller's transaction, whose last lock is this one.
    """
    transactions.require_transaction()
    with connection.cursor() as cursor:
        rows = _standing.rows(cursor, provider=provider)
        if not rows:
            return 0
        ((faults, seconds_left, is_resting),) = rows
        if not is_resting:
            return int(faults)
        seconds = math.ceil(seconds_left)
        if seconds == 0:
            trial_seconds = settings.PAYMENT_TIMEOUT_SECONDS + 15
            if _claim_trial.count(cursor, provider=provider, trial_seconds=trial_seconds):
                return int(faults)
            seconds = TRIAL_PAUSE_SECONDS
    # A shop whose charges wait is no better off than one whose charges fail.
    queue.payment_faults.observe(1)
    raise ProviderUnavailable(provider, seconds)


def record_fault(provider: str) -> None:
    """A call brought no answer, or none that can be read: one more fault in a row, committed. A decline is an
    answer."""
    queue.payment_faults.observe(1)
    with transactions.write(), connection.cursor() as cursor:
        _note_fault.count(
            cursor,
            provider=provider,
            faults_max=settings.PAYMENT_FAULTS_MAX,
            rest_seconds=settings.PAYMENT_REST_SECONDS,
            rest_seconds_max=settings.PAYMENT_REST_SECONDS_MAX,
            row_seconds=FAULT_WINDOW_SECONDS,
        )


def record_success(provider: str, faults: int) -> None:
    """A call brought an answer: the faults, if there were any when it began, are over, committed."""
    queue.payment_faults.observe(0)
    if faults:
        with transactions.write(), connection.cursor() as cursor:
            _note_answer.count(cursor, provider=provider)


@contextmanager
def guard_call(provider: str) -> Iterator[None]:
    """Around a call to a provider: entered before, and how it went noted after. Raises ProviderUnavailable."""
    with transactions.write():
        faults = require_available(provider)
    try:
        yield
    except Exception:
        record_fault(provider)
        raise
    record_success(provider, faults)


@contextmanager
def postpone_if_unavailable() -> Iterator[None]:
    """Within a handler of the outbox: a message that meets a provider that rests comes again when it has rested."""
    try:
        yield
    except ProviderUnavailable as resting:
        raise outbox.RetryLater(resting.seconds, str(resting)) from resting


def is_unavailable(provider: str) -> bool:
    """Whether the provider is left alone, or only being tried."""
    return ProviderStanding.objects.filter(provider=provider, rests_until__isnull=False).exists()


def list_unavailable() -> list[str]:
    """The providers that are left alone now, by name."""
    resting_now = ProviderStanding.objects.filter(rests_until__gt=clock.now()).order_by("provider")
    return list(resting_now.values_list("provider", flat=True))
