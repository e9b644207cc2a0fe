"""A payment made in time that arrives late, while its buyer has a newer hold."""

import pytest

from apps.kernel import clock
from apps.queue import facade as queue
from apps.queue.models import QueueEntry
from apps.reservations import facade as reservations
from tests.support.factories import (
    assert_audit_clean,
    backdate_deadline,
    hold,
    join_directly,
    make_event,
    make_hold_request,
)
from tests.support.reservations.buyers import begin_payment, cancel, confirm, is_held, problem_of, submit_hold

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("ends", ["released", "swept"])
def test_a_buyer_who_paid_late_and_releases_the_newer_hold_may_join_again_at_once(ends: str) -> None:
    """R1 expires | its buyer holds R2 | R1's payment, made in time, arrives late: R1 is sold, R2 keeps the entry | R2
    ends. The admission has been used: the entry is completed then, and joining again creates a new entry."""
    event = make_event()
    caller = queue.Caller(visitor_id=queue.new_visitor_secret())
    entry = join_directly(event, caller)
    first = begin_payment(hold(event, entry, seats=["hall-A-1"]).id)
    paid_at = clock.now()
    backdate_deadline(first.id)
    reservations.sweep()
    second = hold(event, entry, seats=["hall-A-2"])
    confirm(first.id, paid_at)
    # While the newer hold lives it prevents joining, and the error names it.
    assert problem_of(submit_hold(make_hold_request(event, entry, seats=["hall-A-3"]))).type == "reservation-exists"
    assert QueueEntry.objects.get(pk=entry.id).status == "ready"
    if ends == "released":
        cancel(second.id)
    else:
        backdate_deadline(second.id)
        reservations.sweep()
    assert QueueEntry.objects.get(pk=entry.id).status == "completed"
    assert problem_of(submit_hold(make_hold_request(event, entry, seats=["hall-A-3"]))).type == "admission-expired"
    assert is_held(submit_hold(make_hold_request(event, join_directly(event, caller), seats=["hall-A-3"])))
    assert_audit_clean(without_money=True)
