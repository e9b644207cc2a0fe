"""The chains that joins write verify: one by one, concurrently, from the lobby, and with entries that left."""

import pytest

from apps.queue import facade
from apps.queue.entries import positions
from apps.queue.fairness import receipts
from apps.queue.models import QueueEntry, WaitingRoom
from tests.support.factories import assert_audit_clean, join
from tests.support.queue.proven_rooms import verification_error
from tests.support.queue.rooms import make_room, tick
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)


def test_concurrent_joins_leave_one_unbroken_chain() -> None:
    event = make_room("concert", active=2)
    entries = values(storm(12, lambda number: join(event)))
    assert verification_error("concert") == ""
    positions.leave(event, facade.Caller(entry_id=entries[3].id))
    tick(event)
    join(event)
    assert verification_error("concert") == ""
    room = WaitingRoom.objects.get(event_id=event.id)
    assert room.next_number == 14
    receipt = receipts.issue(event, QueueEntry.objects.get(number=13))
    assert receipt["as_of"] == {"next_number": 14, "chain_head": bytes(room.chain_head).hex()}
    assert_audit_clean()


def test_joining_again_adds_no_link() -> None:
    event = make_room("concert", active=1)
    first = join(event, visitor_id="visitor-one")
    before = bytes(WaitingRoom.objects.get(event_id=event.id).chain_head)
    assert join(event, visitor_id="visitor-one").id == first.id
    assert bytes(WaitingRoom.objects.get(event_id=event.id).chain_head) == before != b""
    assert verification_error("concert") == ""
