"""Actions of buyers in races: hold once, retry when asked to, read the result."""

from collections.abc import Iterable
from typing import Any

from django.db import connection

from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.reservations import facade as reservations
from apps.reservations.models import GeneralAdmissionInventory, SeatInventory

ATTEMPTS_MAX = 60


def submit_hold(request: reservations.HoldRequest) -> reservations.HoldOutcome:
    """Decide one request once."""
    (outcome,) = reservations.hold([request])
    return outcome


def hold_with_retries(request: reservations.HoldRequest) -> reservations.HoldOutcome:
    """Repeat the request as long as the answer is "try again", as a client would."""
    for _ in range(ATTEMPTS_MAX):
        outcome = submit_hold(request)
        if not is_retryable(outcome):
            return outcome
    raise AssertionError(f"still {outcome} after {ATTEMPTS_MAX} attempts")


def is_retryable(outcome: reservations.HoldOutcome) -> bool:
    return isinstance(outcome, reservations.Refused) and outcome.problem.retry_after_seconds is not None


def problem_of(outcome: reservations.HoldOutcome) -> problems.Problem:
    assert isinstance(outcome, reservations.Refused), outcome
    return outcome.problem


def is_held(outcome: reservations.HoldOutcome) -> bool:
    return isinstance(outcome, reservations.Held)


def outcome_types(outcomes: Iterable[reservations.HoldOutcome]) -> list[str]:
    """Return the type of each outcome, sorted."""
    return sorted("held" if isinstance(outcome, reservations.Held) else outcome.problem.type for outcome in outcomes)


def seat(guid: str) -> SeatInventory:
    return SeatInventory.objects.get(seat__guid=guid)


def get_general_admission() -> GeneralAdmissionInventory:
    return GeneralAdmissionInventory.objects.get()


def run_sql(sql: str, params: Any = (), *, using: Any = connection) -> list[tuple[Any, ...]]:
    """Run a handwritten statement, as the naive versions do."""
    with using.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


def begin_payment(reservation_id: Any, email: str = "buyer@example.org") -> reservations.ReservationView:
    with transactions.write():
        reservations.begin_payment(reservation_id, email=email, who="test")
        return reservations.get_reservation(reservation_id)


def confirm(reservation_id: Any, occurred_at: Any) -> reservations.ReservationView:
    with transactions.write():
        return reservations.confirm(reservation_id, occurred_at=occurred_at, who="provider:test", why="test")


def cancel(reservation_id: Any) -> reservations.ReservationView:
    with transactions.write():
        reservations.cancel(reservation_id, who="test", why="test")
        return reservations.get_reservation(reservation_id)
