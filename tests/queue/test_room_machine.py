"""Join, leave, tick, claim, no-show, expiry, completion, in any order: I9 holds after every step."""

from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from apps.queue import admitting, facade, line, rooms
from apps.queue.models import AdmissionBatch, QueueEntry, WaitingRoom
from apps.queue.outlook import outlook
from tests.factories import audit_breaches, join_as
from tests.queue.rooms import come, complete, let_admission_lapse, let_claim_lapse, make_room, tick
from ticketing.kernel import problems

pytestmark = pytest.mark.django_db(transaction=True)

VISITORS = st.integers(0, 7)
_slugs = count()


class Room(RuleBasedStateMachine):
    """A room of three slots and eight visitors; what each visitor saw last."""

    def __init__(self) -> None:
        super().__init__()
        number = next(_slugs)
        self.event = make_room(f"room-{number}", venue=f"venue-{number}", rate=20, active=3, rows=1)
        self.active_max = 3
        self.seen: dict[int, facade.EntryView] = {}
        self.positions: dict[object, int] = {}

    def caller(self, visitor: int) -> facade.Caller:
        return facade.Caller(visitor_id=f"visitor-{visitor}")

    def note(self, visitor: int, view: facade.EntryView) -> None:
        ahead = outlook(view).ahead
        assert ahead <= self.positions.get(view.id, ahead), "a position rose"
        self.positions[view.id] = ahead
        self.seen[visitor] = view

    @rule(visitor=VISITORS)
    def join(self, visitor: int) -> None:
        before = WaitingRoom.objects.get(event_id=self.event.id).next_number
        try:
            view = join_as(self.event, self.caller(visitor))
        except problems.Problem:
            return
        assert view.number < before or view.number == before
        self.note(visitor, view)

    @rule(first=VISITORS, second=VISITORS)
    def join_together(self, first: int, second: int) -> None:
        asked = [facade.JoinRequest(self.event, self.caller(visitor)) for visitor in (first, second)]
        for visitor, view in zip((first, second), facade.join_many(asked), strict=True):
            assert isinstance(view, facade.EntryView)
            self.note(visitor, view)

    @rule(seconds=st.sampled_from([0, 0.05, 1]))
    def tick(self, seconds: float) -> None:
        waiting = list(
            QueueEntry.objects.filter(event_id=self.event.id, status="waiting").order_by("number").values_list("pk")
        )
        if not WaitingRoom.objects.filter(event_id=self.event.id, ticked_at=None).exists():
            admitted = tick(self.event, seconds=seconds)
            in_now = QueueEntry.objects.filter(pk__in=[pk for (pk,) in waiting[:admitted]], status="ready").count()
            assert in_now == admitted, "somebody was passed over"

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def poll(self, data: st.DataObject) -> None:
        visitor = data.draw(st.sampled_from(sorted(self.seen)))
        self.note(visitor, come(self.seen[visitor]))

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), what=st.sampled_from(["leave", "complete", "miss", "lapse", "long gone", "sweep", "remove"]))
    def end(self, data: st.DataObject, what: str) -> None:
        visitor = data.draw(st.sampled_from(sorted(self.seen)))
        entry = self.seen[visitor]
        if what == "leave":
            line.leave(self.event, facade.Caller(entry_id=entry.id))
        elif what == "complete":
            if come(entry).is_ready:
                complete(entry.id)
        elif what == "remove":
            rooms.remove(entry.id, who="staff")
        elif what == "sweep":
            admitting.expire_admissions()
        else:
            unclaimed = QueueEntry.objects.filter(pk=entry.id, status="ready", admission_expires_at=None).exists()
            if what == "lapse" and not unclaimed:
                let_admission_lapse(entry)
            elif unclaimed:
                let_claim_lapse(entry, seconds=1 if what == "miss" else admitting.RETURN_SECONDS + 1)

    @rule(state=st.sampled_from(["paused", "open"]))
    def pause(self, state: str) -> None:
        if WaitingRoom.objects.get(event_id=self.event.id).state in ("paused", "open"):
            rooms.set_state(self.event.id, state, who="staff")

    @rule(number=st.integers(1, 4))
    def admit_now(self, number: int) -> None:
        if WaitingRoom.objects.get(event_id=self.event.id).state in ("paused", "open"):
            rooms.admit_now(self.event.id, number, who="staff")

    @rule(active_max=st.integers(0, 4))
    def cap(self, active_max: int) -> None:
        rooms.set_limits(self.event.id, rate_per_second=20, active_max=active_max, who="staff")

    @invariant()
    def i9_holds(self) -> None:
        assert audit_breaches() == []
        assert not AdmissionBatch.objects.filter(event_id=self.event.id, active_count__gt=4).exists()


def test_whatever_happens_in_whatever_order_i9_holds() -> None:
    run_state_machine_as_test(Room, settings=settings(max_examples=12, stateful_step_count=25, deadline=None))
