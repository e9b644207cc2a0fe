"""A new admission for a visitor whose last one has expired while no visitor waited for the slot."""

from collections.abc import Callable

from apps.events import facade as events
from apps.kernel.http import problems
from apps.queue.entries.positions import EntryView, join
from apps.queue.identity.caller import Caller
from apps.queue.identity.networks import recorded_network
from apps.queue.models import WaitingRoom
from apps.queue.screening.policy import policies
from apps.queue.snapshot import room_snapshot


def rejoin_without_line(event: events.EventView, caller: Caller, address: Callable[[], str]) -> EntryView | None:
    """Join again for the account or browser if that takes no turn from another visitor and needs no proof of work. None
    if the visitor has to join again by the form."""
    if caller.account_id is None and not caller.visitor_id:
        return None
    if not policies.read(event.id).is_off or not _has_no_line(event.id):
        return None
    try:
        return join(event, caller, network=recorded_network(event, address))
    except problems.Problem:
        return None  # For example during a presale, whose condition the form asks for.


def _has_no_line(event_id: int) -> bool:
    try:
        snapshot = room_snapshot.get_snapshot(event_id)
    except WaitingRoom.DoesNotExist:
        return True
    if snapshot.state == WaitingRoom.State.OFF:
        return True
    is_empty = snapshot.head == snapshot.next_number - 1 and snapshot.active < snapshot.active_max
    return snapshot.state == WaitingRoom.State.OPEN and is_empty
