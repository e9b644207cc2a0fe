"""Races for the entries that one access code may open in a presale: at most as many as it has uses left."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql
from apps.queue import facade as queue
from apps.queue.entries import presale
from apps.queue.models import QueueEntry
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation
from tests.support.factories import assert_audit_clean, make_access_code, make_event
from tests.support.queue.lobbies import make_lobby
from tests.support.races import rival_waiting_at, statements, storm, values
from tests.support.reservations.buyers import begin_payment, confirm

pytestmark = pytest.mark.django_db(transaction=True)

FLOOR = {"ga_section": "floor", "ga_quantity": 1}
USES = 3


@pytest.fixture
def event() -> events.EventView:
    """An event in a presale by code, which one code with three uses opens."""
    found = make_event(general_admission=50, presale=events.Presale("code", clock.now() + timedelta(hours=1)))
    make_access_code(found, code="CLUB", uses_max=USES)
    return found


def visitor(name: str) -> queue.Caller:
    return queue.Caller(visitor_id=name.rjust(32, "-"))


def access_of(event: events.EventView, caller: queue.Caller) -> queue.PresaleAccess:
    access = presale.get_access(event, caller, "CLUB", lambda: "192.0.2.1")
    assert access is not None
    return access


def request_of(event: events.EventView, name: str) -> queue.JoinRequest:
    return queue.JoinRequest(event, visitor(name), access=access_of(event, visitor(name)))


def join_all(event: events.EventView, *names: str) -> list[str]:
    """Join these visitors in one transaction; return the status of each entry, or the type of its refusal."""
    outcomes: list[Any] = queue.join_many([request_of(event, name) for name in names])
    return [one.status if isinstance(one, queue.EntryView) else one.type for one in outcomes]


def live_count() -> int:
    return QueueEntry.objects.filter(status__in=QueueEntry.LIVE).count()


def test_control_a_count_before_the_join_lets_every_visitor_in(event) -> None:
    """Each visitor: counts three uses left; then all join, since no join counts again."""
    key = access_of(event, visitor("one")).key
    all_have_counted = threading.Barrier(8)

    def count_and_join(number: int) -> queue.EntryView:
        with connection.cursor() as cursor:
            (done,) = sql.execute_batch(cursor, [presale.codes_left_call([key], [])])
        assert done.rows[0][1] == USES
        all_have_counted.wait(timeout=30)
        return queue.join(event, visitor(str(number)), access=queue.PresaleAccess())

    values(storm(8, count_and_join))
    assert live_count() == 8


def test_of_100_visitors_with_one_code_of_three_uses_three_join(event) -> None:
    """On the fast path's batches: those of one list count each other, later lists count what is committed."""
    requests = [request_of(event, str(number)) for number in range(100)]

    async def join(request: queue.JoinRequest) -> str:
        try:
            entry = await queue.join_async(event, request.caller, access=request.access)
        except queue.PresaleCodeInUse as problem:
            return problem.type
        return entry.status

    async def join_all_at_once() -> list[str]:
        return await asyncio.gather(*[join(request) for request in requests])

    outcomes = asyncio.run(join_all_at_once())
    assert sorted(outcomes) == ["presale-code-in-use"] * 97 + ["ready"] * USES
    assert live_count() == USES
    assert_audit_clean()


def test_of_8_transactions_with_one_code_of_three_uses_three_open_an_entry(event) -> None:
    requests = [request_of(event, str(number)) for number in range(8)]
    outcomes = values(storm(8, lambda number: queue.join_many([requests[number]])[0]))
    assert sum(isinstance(one, queue.EntryView) for one in outcomes) == live_count() == USES


def test_a_join_that_waits_for_the_room_counts_the_entry_that_was_committed_meanwhile(event) -> None:
    """A: has the room locked, counts one use left
    B: waits for the room
    A: opens its entry; COMMIT
    B: has the room locked, counts none left
    """
    assert join_all(event, "one", "two") == ["ready", "ready"]
    late = request_of(event, "late")
    with rival_waiting_at("access_codes_left", "after", lambda: queue.join_many([late])) as rival:
        assert join_all(event, "three") == ["ready"]
    (refused,) = rival.result()
    assert isinstance(refused, queue.PresaleCodeInUse)
    assert_audit_clean()


def test_a_visitor_counts_once_through_joins_hold_and_purchase_and_an_ended_entry_not_at_all(event) -> None:
    """One of three uses: waiting to hold, held, then bought. A second is returned by leaving, a third by lapsing."""
    assert join_all(event, "one", "one", "two", "three", "four") == ["ready"] * 4 + ["presale-code-in-use"]
    assert join_all(event, "one") == ["ready"], "a retry"
    first = QueueEntry.objects.get(visitor_id=visitor("one").visitor_id)
    entry = queue.entry_by_id(first.pk)
    assert entry is not None
    assert reservations.hold_one(event, entry, FLOOR | {"access_code": "CLUB"}, "key").status == 201
    assert join_all(event, "one", "four") == ["ready", "presale-code-in-use"]
    begin_payment(Reservation.objects.get().pk)
    confirm(Reservation.objects.get().pk, clock.now())
    first.refresh_from_db()
    assert first.status == "completed"
    assert join_all(event, "four") == ["presale-code-in-use"]
    QueueEntry.objects.filter(visitor_id=visitor("two").visitor_id).update(status="left", ended_at=clock.now())
    assert join_all(event, "four", "five") == ["ready", "presale-code-in-use"]
    lapsed = QueueEntry.objects.filter(visitor_id=visitor("three").visitor_id)
    lapsed.update(admission_expires_at=clock.now() - timedelta(seconds=1))
    assert join_all(event, "three", "five") == ["ready", "presale-code-in-use"], "the slot of an ended entry, once"
    assert sorted(lapsed.values_list("status", flat=True)) == ["expired", "ready"]
    assert_audit_clean(without_money=True)


def test_a_visitor_who_uses_the_last_use_up_still_gets_the_live_entry(event) -> None:
    """The code is used up by this visitor's own hold; the check before the join does not refuse the retry."""
    make_access_code(event, code="ONCE", uses_max=1)
    caller = visitor("one")

    def access() -> queue.PresaleAccess | None:
        return presale.get_access(event, caller, "ONCE", lambda: "192.0.2.1")

    entry = queue.join(event, caller, access=access())
    assert reservations.hold_one(event, entry, FLOOR | {"access_code": "ONCE"}, "key").status == 201
    assert queue.join(event, caller, access=access()).id == entry.id


def test_an_entry_that_returns_to_the_lobby_takes_a_use_of_its_new_code() -> None:
    until = clock.now() + timedelta(hours=2)
    lobby, _ = make_lobby(presale=events.Presale("code", until))
    make_access_code(lobby, code="OLD", uses_max=1)
    make_access_code(lobby, code="CLUB", uses_max=1)
    caller = visitor("one")
    queue.join(lobby, caller, access=presale.get_access(lobby, caller, "OLD", lambda: "192.0.2.1"))
    QueueEntry.objects.update(status="left", ended_at=clock.now())
    assert join_all(lobby, "one", "two") == ["waiting", "presale-code-in-use"]
    entry = QueueEntry.objects.get()
    assert bytes(entry.presale_key) == access_of(lobby, caller).key
    assert_audit_clean()


def test_a_join_without_a_code_counts_none() -> None:
    event = make_event(general_admission=50)
    with statements() as seen:
        queue.join_many([queue.JoinRequest(event, visitor("one"))])
    assert "access_codes_left" not in seen
    assert "insert_checked_entries" not in seen
    assert "insert_entries" in seen
