"""What a change of a published event means for its waiting room."""

from collections.abc import Iterator
from datetime import datetime

from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.queue.models import QueueEntry, RoomAct, WaitingRoom
from apps.queue.room_row import Room, lock_room, record_act, save_room
from apps.queue.snapshot import room_snapshot

_State = WaitingRoom.State
ON_SALE_AGAIN = "on sale again"
_TIMES = frozenset({"starts_at", "opens_at", "closes_at"})


class RoomChange:
    """The waiting room's part in a change: it reopens if its event is on sale again, and records a moved opening."""

    def describe(self, proposal: events.Proposal) -> Iterator[str]:
        if not proposal.changed & _TIMES:
            return
        rows = QueueEntry.objects.filter(event_id=proposal.event.id)
        waiting = rows.filter(status=QueueEntry.Status.WAITING).count()
        if waiting:
            yield f"{waiting:,} {'visitor is' if waiting == 1 else 'visitors are'} in the waiting room."
        room = WaitingRoom.objects.filter(pk=proposal.event.id).first()
        if room is not None and _reopens(room, proposal, proposal.now):
            yield "The waiting room opens again."

    def apply(self, proposal: events.Proposal, change_id: int) -> None:
        if not proposal.changed & _TIMES:
            return
        # The event's row is locked already; no code locks it while it has a room locked.
        with connection.cursor() as cursor:
            room = lock_room(cursor, proposal.event.id)
            now = clock.now_on(cursor)
            if "opens_at" in proposal.changed:
                moved = f"on-sale: {clock.iso(proposal.before['opens_at'])} → {clock.iso(proposal.after['opens_at'])}"
                record_act(cursor, room.event_id, now, proposal.who, RoomAct.What.STATE, moved, proposal.why)
            # Judged by a time read under the lock: the room may have been drained while this waited for it.
            if _is_sold_again(proposal, now):
                # Also of a room that stays as it is: a report that was published before is compared with this state.
                state = _State.OPEN if _reopens(room, proposal, now) else room.state
                marked = QueueEntry.objects.filter(event_id=room.event_id, number__isnull=False).exclude(marked="")
                line = f"{room.next_number - 1} numbers, {marked.count()} with priority, chain {room.chain_head.hex()}"
                detail = f"{room.state} → {state}: {ON_SALE_AGAIN}, after {line}"
                record_act(cursor, room.event_id, now, proposal.who, RoomAct.What.STATE, detail, proposal.why)
                room.state = state
            save_room(cursor, room)
        room_snapshot.renew_after_commit(proposal.event.id)


def _reopens(room: WaitingRoom | Room, proposal: events.Proposal, now: datetime) -> bool:
    """Return whether the room was drained because sales had ended, and the change puts the event on sale again."""
    if room.state != _State.DRAINED or (room.supply_available, room.supply_held) == (0, 0):
        return False
    return _is_sold_again(proposal, now)


def _is_sold_again(proposal: events.Proposal, now: datetime) -> bool:
    """Return whether the sale had ended, and the change opens it again."""
    event, after = proposal.event, proposal.after
    state = events.selling_state(
        event.status,
        after.get("starts_at", event.starts_at),
        after.get("opens_at", event.policy.opens_at),
        after.get("closes_at", event.policy.closes_at),
        now,
    )
    return event.is_over(now) and state == "on_sale"
