"""The circuit breaker of the payment providers: pause a provider that does not respond (`rests_until`), then try it.

The state is one row per provider in PostgreSQL, so that all workers share it and a loss of Redis does not affect it.
Messages whose call is refused stay in the outbox. A successful call costs one read; only faults, and the first success
after a fault, write the row. The outcome of calls is also reported to the waiting rooms, which admit fewer visitors
while payments fail.
"""

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import connection

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.outbox import facade as outbox
from apps.orders.models import ProviderStanding
from apps.orders.payments.providers.protocol import RequestFault, RequestsLimited
from apps.queue import facade as queue

FAULT_WINDOW_SECONDS = 60
"""Faults further apart than this are not consecutive."""
TRIAL_PAUSE_SECONDS = 2
"""Pause of a caller while another caller tries the provider."""
LIMITED_PAUSE_SECONDS = 4.0
"""Pause of a call that the provider did not take because there were too many, at most; half of it at least."""

_package = "apps.orders"
_standing = sql.load(_package, "provider_standing")
_standings = sql.load(_package, "provider_standings", prepared=True)
_claim_trial = sql.load(_package, "claim_provider_trial")
_note_fault = sql.load(_package, "note_provider_fault")
_note_answer = sql.load(_package, "note_provider_answer")


class ProviderUnavailable(Exception):
    """The circuit is open: the provider failed too often, so it was not called."""

    def __init__(self, provider: str, seconds: int) -> None:
        super().__init__(f"{provider} is unavailable; retry in {seconds} s")
        self.seconds = seconds


def require_available(provider: str) -> int:
    """Return the provider's consecutive faults, for `record_success`, if the caller may call it after its commit.

    After a pause only one caller gets permission: its trial call decides for all. Raises ProviderUnavailable. Joins the
    caller's transaction, in which the provider's row is the last lock.
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
    # The waiting rooms count a postponed charge as a failed one.
    queue.payment_faults.observe(1)
    raise ProviderUnavailable(provider, seconds)


def standings_call() -> sql.Call:
    """Return the statement whose rows `faults_of_available` reads, to be sent in a batch with others."""
    return _standings.call()


def faults_of_available(provider: str, rows: Sequence[tuple[Any, ...]]) -> int | None:
    """Return the provider's consecutive faults, for `record_success`, or None if it is paused or being tried: then only
    `require_available` may permit a call, one trial for all callers."""
    for name, faults, is_resting in rows:
        if name == provider:
            return None if is_resting else int(faults)
    return 0


def record_fault(provider: str, error: BaseException, *, is_charge: bool = True) -> None:
    """Count one more consecutive fault, and commit. A missing or malformed response is a fault. A decline is not, and
    neither is the refusal of a single request: then the provider has responded. If it refuses a charge because there
    are too many requests, only the waiting rooms count a failure, and admit fewer visitors."""
    if isinstance(error, RequestFault):
        is_limited = isinstance(error, RequestsLimited)
        if is_charge or not is_limited:
            queue.payment_faults.observe(1 if is_limited else 0)
        reset_faults(provider)
        return
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
    """Record a response. If there were faults when the call began, reset them and commit."""
    queue.payment_faults.observe(0)
    if faults:
        reset_faults(provider)


def reset_faults(provider: str) -> None:
    """Close the provider's circuit with no fault counted, and commit."""
    with transactions.write(), connection.cursor() as cursor:
        _note_answer.count(cursor, provider=provider)


@contextmanager
def guard_call(provider: str) -> Iterator[None]:
    """Wrap one call to a provider that is no charge: check the circuit before it, record the outcome after it. Raises
    ProviderUnavailable."""
    with transactions.write():
        faults = require_available(provider)
    try:
        yield
    except Exception as error:
        record_fault(provider, error, is_charge=False)
        raise
    record_success(provider, faults)


@contextmanager
def postpone_if_unavailable() -> Iterator[None]:
    """Within an outbox handler: if the circuit is open, retry the message after the provider's pause; if the provider
    takes no more requests, after a short one."""
    try:
        yield
    except ProviderUnavailable as error:
        raise outbox.RetryLater(error.seconds, str(error)) from error
    except RequestsLimited as error:
        raise outbox.RetryLater(limited_pause_seconds(), str(error)) from error


def limited_pause_seconds() -> float:
    """Return the pause of a call that the provider did not take because there were too many."""
    return random.uniform(0.5, 1) * LIMITED_PAUSE_SECONDS  # noqa: S311 - nothing secret


def is_unavailable(provider: str) -> bool:
    """Return whether the provider is paused or being tried after a pause."""
    return ProviderStanding.objects.filter(provider=provider, rests_until__isnull=False).exists()


def list_unavailable() -> list[str]:
    """Return the names of the providers that are not called now."""
    paused = ProviderStanding.objects.filter(rests_until__gt=clock.now()).order_by("provider")
    return list(paused.values_list("provider", flat=True))
