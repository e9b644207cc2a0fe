"""Entries of a lobby have no number yet: they are not in line, and their room is not ticked."""

import pytest
from django.db import IntegrityError, connection

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
    assert admission.due_rooms() == ([], [])
    assert_audit_clean()
    QueueEntry.objects.update(status="ready", ready_at=clock.now(), claim_expires_at=clock.now())
    assert audit_breaches() == ["I9: concert: number None is ready with the head at 0, next number 2"]


def test_an_entry_outside_the_lobby_cannot_lack_its_number(event: EventView) -> None:
    """The constraint once accepted it, because a check of NULL is not false."""
    (entry,) = join_waiting_entries(event, 1)
    for number in (None, 0):
        with pytest.raises(IntegrityError, match="queue_entry_has_number"):
            QueueEntry.objects.filter(pk=entry.id).update(number=number)
    QueueEntry.objects.filter(pk=entry.id).update(number=None, in_lobby=True)
    with pytest.raises(IntegrityError, match="queue_entry_has_number"):
        QueueEntry.objects.filter(pk=entry.id).update(number=0)


def test_one_index_serves_look_ups_of_an_event_s_entries() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE tablename = 'queue_queueentry' ORDER BY indexdef")
        whole = [found for (found,) in cursor.fetchall() if "(event_id" in found and "WHERE" not in found]
    assert len(whole) == 1
    assert "(event_id, number)" in whole[0]
