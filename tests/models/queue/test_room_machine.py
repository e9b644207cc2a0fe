"""Join, leave, tick, claim, miss, expire, complete, log in, staff actions and changing supply, in any order: I9 holds
after every step."""

from contextlib import suppress
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from apps.accounts.models import User
from apps.kernel.http import problems
from apps.queue import facade
from apps.queue.entries import positions
from apps.queue.errors import ActRefused, RoomDrained
from apps.queue.identity import guest_merge
from apps.queue.models import AdmissionBatch, QueueEntry, WaitingRoom
from apps.queue.room import admission, operations
from apps.queue.status.estimates import estimate
from tests.support.factories import audit_breaches, join_directly
from tests.support.queue.rooms import (
    backdate_admissions,
    backdate_claims,
    claim_or_get_entry,
    complete_admission,
    make_room,
    tick,
)

pytestmark = pytest.mark.django_db(transaction=True)

VISITORS = st.integers(0, 7)
_slugs = count()


class Room(RuleBasedStateMachine):
    """A room of three slots and eight visitors, with the entry that each visitor saw last."""

    def __init__(self) -> None:
        super().__init__()
        number = next(_slugs)
        self.event = make_room(f"room-{number}", venue=f"venue-{number}", rate=20, active=3, rows=1)
        self.accounts = [User.objects.create(username=f"{one}-{number}").pk for one in ("ann", "bob")]
        self.seen: dict[int, facade.EntryView] = {}
        self.positions: dict[object, int] = {}

    def caller(self, visitor: int) -> facade.Caller:
        return facade.Caller(visitor_id=f"visitor-{visitor}")

    def note(self, visitor: int, view: facade.EntryView) -> None:
        self.seen[visitor] = view
        if QueueEntry.objects.filter(pk=view.id).exclude(marked="").exists():
            return  # Admitted ahead of its number, and back behind it if the claim is missed.
        ahead = estimate(view).ahead
        assert ahead <= self.positions.get(view.id, ahead), "a position rose"
        self.positions[view.id] = ahead

    @rule(visitor=VISITORS)
    def join(self, visitor: int) -> None:
        before = WaitingRoom.objects.get(event_id=self.event.id).next_number
        try:
            view = join_directly(self.event, self.caller(visitor))
        except problems.Problem:
            return
        assert view.number < before or view.number == before
        self.note(visitor, view)

    @rule(first=VISITORS, second=VISITORS)
    def join_in_one_batch(self, first: int, second: int) -> None:
        requests = [facade.JoinRequest(self.event, self.caller(visitor)) for visitor in (first, second)]
        for visitor, view in zip((first, second), facade.join_many(requests), strict=True):
            if self.state() == "drained" and not isinstance(view, facade.EntryView):
                assert isinstance(view, RoomDrained)
                continue
            assert isinstance(view, facade.EntryView)
            self.note(visitor, view)

    @rule(visitor=VISITORS, account=st.integers(0, 1))
    def log_in(self, visitor: int, account: int) -> None:
        """The browser's entry becomes the account's; if both had one, the other has left."""
        guest_merge.merge_entries(self.event.id, f"visitor-{visitor}", self.accounts[account])

    @rule(account=st.integers(0, 1))
    def join_signed_in(self, account: int) -> None:
        try:
            self.note(-1 - account, join_directly(self.event, facade.Caller(account_id=self.accounts[account])))
        except problems.Problem:
            return

    def state(self) -> str:
        return WaitingRoom.objects.get(event_id=self.event.id).state

    @rule(seconds=st.sampled_from([0, 0.05, 1]))
    def tick(self, seconds: float) -> None:
        rows = QueueEntry.objects.filter(event_id=self.event.id, status="waiting")
        waiting = sorted(rows, key=lambda entry: (entry.marked == "", entry.number))
        if not WaitingRoom.objects.filter(event_id=self.event.id, ticked_at=None).exists():
            admitted = tick(self.event, seconds=seconds)
            first = [entry.pk for entry in waiting[:admitted]]
            in_now = QueueEntry.objects.filter(pk__in=first, status="ready").count()
            assert in_now == admitted, "an entry was passed over"

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def poll(self, data: st.DataObject) -> None:
        visitor = data.draw(st.sampled_from(sorted(self.seen)))
        self.note(visitor, claim_or_get_entry(self.seen[visitor]))

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), what=st.sampled_from(["leave", "complete", "miss", "lapse", "long gone", "sweep", "remove"]))
    def end(self, data: st.DataObject, what: str) -> None:
        visitor = data.draw(st.sampled_from(sorted(self.seen)))
        entry = self.seen[visitor]
        if what == "leave":
            positions.leave(self.event, facade.Caller(entry_id=entry.id))
        elif what == "complete":
            if claim_or_get_entry(entry).is_ready:
                complete_admission(entry.id)
        elif what == "remove":
            operations.remove(entry.id, who="staff")
        elif what == "sweep":
            admission.expire_admissions()
        else:
            row = QueueEntry.objects.get(pk=entry.id)
            if what == "lapse" and row.admission_expires_at is not None:
                backdate_admissions(entry)
            elif row.status == "ready" and row.admission_expires_at is None:
                backdate_claims(entry, seconds=1 if what == "miss" else admission.RETURN_SECONDS + 1)

    @rule(state=st.sampled_from(["paused", "open", "open", "drained", "off"]))
    def move(self, state: str) -> None:
        with suppress(ActRefused):
            operations.set_state(self.event.id, state, who="staff")

    @rule(number=st.integers(1, 4))
    def admit_now(self, number: int) -> None:
        with suppress(ActRefused):
            operations.admit_now(self.event.id, number, who="staff")

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def let_through(self, data: st.DataObject) -> None:
        with suppress(ActRefused):
            operations.let_through(self.seen[data.draw(st.sampled_from(sorted(self.seen)))].id, who="staff")

    @rule(available=st.integers(0, 3), held=st.integers(0, 1))
    def stock(self, available: int, held: int) -> None:
        """Report what is free and what is held; with neither the room is drained."""
        if self.state() in ("open", "paused"):
            facade.report_supplies({self.event.id: (available, held)})

    @rule(active_max=st.integers(0, 4))
    def cap(self, active_max: int) -> None:
        operations.set_limits(self.event.id, rate_per_second=20, active_max=active_max, who="staff")

    @invariant()
    def i9_holds(self) -> None:
        assert audit_breaches() == []
        assert not AdmissionBatch.objects.filter(event_id=self.event.id, active_count__gt=4).exists()


def test_i9_holds_after_any_sequence_of_operations() -> None:
    run_state_machine_as_test(
        Room, settings=settings(max_examples=12, stateful_step_count=25, deadline=None, derandomize=True)
    )
