"""Entries of a lobby have no number yet: they are not in line, and their room is not ticked."""

import pytest

from apps.events.facade import EventView
from apps.kernel import clock
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.room import admission
from tests.support.factories import assert_audit_clean, audit_breaches
from tests.support.queue.rooms import join_waiting_entries, make_room, row, tick

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def event() -> EventView:
    return make_room()


def test_an_entry_without_a_number_is_not_in_line_and_the_tick_stops_at_the_last_number(event: EventView) -> None:
    """Three entries were in the lobby; the draw has written one number so far; two entries joined late."""
    entries = join_waiting_entries(event, 5)
    QueueEntry.objects.filter(number__lte=3).update(in_lobby=True)
    QueueEntry.objects.filter(number__in=(2, 3)).update(number=None)
    WaitingRoom.objects.update(lobby_count=3, numbered_through=1)
    assert tick(event) == 1
    assert row(entries[0]).status == "ready"
    assert tick(event) == 0
    QueueEntry.objects.filter(pk=entries[4].id).update(marked="operator")
    assert tick(event) == 1, "let through ahead of its turn, regardless of the draw"
    assert row(entries[4]).status == "ready"
    for number in (2, 3):
        QueueEntry.objects.filter(pk=entries[number - 1].id).update(number=number)
    WaitingRoom.objects.update(numbered_through=None)
    assert tick(event) == 1
    assert row(entries[1]).status == "ready"
    assert_audit_clean()
    QueueEntry.objects.filter(pk=entries[3].id).update(in_lobby=True)
    assert audit_breaches() == ["I9: concert: number 4 is waiting with the head at 2, next number 6"]


def test_a_room_whose_entries_are_all_still_in_the_lobby_is_not_ticked(event: EventView) -> None:
    join_waiting_entries(event, 1)
    QueueEntry.objects.update(in_lobby=True, number=None)
    WaitingRoom.objects.update(lobby_count=1)
    assert admission.due_rooms() == []
    assert_audit_clean()
    QueueEntry.objects.update(status="ready", ready_at=clock.now(), claim_expires_at=clock.now())
    assert audit_breaches() == ["I9: concert: number None is ready with the head at 0, next number 2"]
