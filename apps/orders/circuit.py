"""The circuit breaker before a payment provider: one that does not answer is left alone, and tried now and then.

The state is one row per provider in PostgreSQL, so that all workers know at once and nothing is lost with Redis. What
would have called stays in the outbox. An answer costs a read; only a fault, and the answer after one, write.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import connection

from apps.orders.models import ProviderStanding
from apps.queue import facade as queue
from ticketing.kernel import sql, transactions

IN_A_ROW_SECONDS = 60
"""Faults further apart than this are not in a row."""
TRIAL_PAUSE_SECONDS = 2
"""How long those wait who find another trying the provider."""

_package = "apps.orders"
_standing = sql.load(_package, "provider_standing")
_claim_trial = sql.load(_package, "claim_provider_trial")
_note_fault = sql.load(_package, "note_provider_fault")
_note_answer = sql.load(_package, "note_provider_answer")


class ProviderResting(Exception):
    """The provider failed too often and is left alone; nothing was asked of it."""

    def __init__(self, provider: str, seconds: int) -> None:
        super().__init__(f"{provider} rests for another {seconds} s")
        self.seconds = seconds


@contextmanager
def calling(provider: str) -> Iterator[None]:
    """Around calls to a provider: how they went is remembered for all processes, and told to the waiting rooms.

    Whatever is raised inside counts as a fault: no answer, or none that can be read. A decline is an answer. Raises
    ProviderResting before anything was asked.
    """
    try:
        faults = _enter(provider)
    except ProviderResting:
        # A shop whose charges wait is no better off than one whose charges fail.
        queue.payment_faults.observe(1)
        raise
    try:
        yield
    except Exception:
        queue.payment_faults.observe(1)
        with transactions.write(), connection.cursor() as cursor:
            _note_fault.count(
                cursor,
                provider=provider,
                faults_max=settings.PAYMENT_FAULTS_MAX,
                rest_seconds=settings.PAYMENT_REST_SECONDS,
                rest_seconds_max=settings.PAYMENT_REST_SECONDS_MAX,
                row_seconds=IN_A_ROW_SECONDS,
            )
        raise
    queue.payment_faults.observe(0)
    if faults:
        with transactions.write(), connection.cursor() as cursor:
            _note_answer.count(cursor, provider=provider)


def _enter(provider: str) -> int:
    """The provider may be called; its faults in a row. Raises ProviderResting."""
    with connection.cursor() as cursor:
        rows = _standing.rows(cursor, provider=provider)
    if not rows:
        return 0
    ((faults, seconds_left, is_resting),) = rows
    if not is_resting:
        return int(faults)
    if seconds_left > 0:
        raise ProviderResting(provider, math.ceil(seconds_left))
    with transactions.write(), connection.cursor() as cursor:
        trial_seconds = settings.PAYMENT_TIMEOUT_SECONDS + 15
        if not _claim_trial.count(cursor, provider=provider, trial_seconds=trial_seconds):
            raise ProviderResting(provider, TRIAL_PAUSE_SECONDS)
    return int(faults)


def resting() -> dict[str, bool]:
    """By provider that ever failed: whether it is left alone now, or only being tried."""
    rows = ProviderStanding.objects.order_by("provider").values_list("provider", "rests_until")
    return {provider: rests_until is not None for provider, rests_until in rows}
