"""Guests in the queue who log in: one entry is left, the better one, and it belongs to the account."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.events.facade import EventView
from apps.events.models import OnSale
from apps.kernel import clock
from apps.queue import facade
from apps.queue.entries import positions
from apps.queue.identity import guest_merge
from apps.queue.identity.caller import visitor_id_of_secret
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.room import admission
from tests.support.api_client import Api, assert_problem
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, join, make_event
from tests.support.queue.rooms import (
    EPOCH,
    backdate_tick,
    claim_or_get_entry,
    join_waiting_entries,
    make_room,
    open_now,
    row,
    tick,
)
from tests.support.races import rival_at, rival_waiting_at, run_at, storm, values

pytestmark = pytest.mark.django_db(transaction=True)
OWN = {"sec-fetch-site": "same-origin"}
PASSWORD = "correct horse battery staple"
GUEST = "a-browser-of-mine"


@pytest.fixture
def event() -> EventView:
    """A room that admits no visitor for now."""
    event = make_room()
    open_now(event)
    WaitingRoom.objects.update(state="paused")
    return event


@pytest.fixture
def ann() -> User:
    return User.objects.create_user("ann@example.org", password=PASSWORD)


def guest_joins(event: EventView) -> facade.EntryView:
    return join(event, visitor_id=GUEST)


def joins(event: EventView, **caller: Any) -> facade.EntryView:
    """Start a join on its own thread and connection, so that a race can watch it."""
    (outcome,) = positions.join_many([positions.JoinRequest(event, facade.Caller(**caller))])
    assert isinstance(outcome, facade.EntryView), outcome
    return outcome


def live_entries() -> list[tuple[int | None, int | None, str]]:
    """Return number, account and status of every live entry."""
    rows = QueueEntry.objects.filter(status__in=QueueEntry.LIVE).order_by("number")
    return [(entry.number, entry.account_id, entry.status) for entry in rows]


def admit(entry: facade.EntryView, **changes: Any) -> None:
    """Admit the entry and claim its admission."""
    now = clock.now()
    QueueEntry.objects.filter(pk=entry.id).update(
        status="ready", ready_at=now, admission_expires_at=now + timedelta(minutes=5), **changes
    )
    WaitingRoom.objects.update(head=entry.number)


def test_a_guests_entry_becomes_the_accounts(event: EventView, ann: User) -> None:
    place = guest_joins(event)
    assert guest_merge.merge_guest_entries(GUEST, ann.pk) == 1
    entry = row(place)
    assert (entry.account_id, entry.visitor_id, entry.status, entry.number) == (ann.pk, "", "waiting", 1)
    assert join(event, account_id=ann.pk).id == place.id
    assert guest_merge.merge_guest_entries(GUEST, ann.pk) == 0, "a second call changes nothing"
    assert_audit_clean()


@pytest.mark.parametrize("first", ["guest", "account"])
def test_the_lower_of_two_numbers_stays_and_the_other_entry_has_left(event: EventView, ann: User, first: str) -> None:
    if first == "guest":
        staying, leaving = guest_joins(event), join(event, account_id=ann.pk)
    else:
        staying, leaving = join(event, account_id=ann.pk), guest_joins(event)
    assert guest_merge.merge_guest_entries(GUEST, ann.pk) == 1
    assert live_entries() == [(1, ann.pk, "waiting")]
    assert row(staying).status == "waiting"
    assert (row(leaving).status, row(leaving).ended_at is not None) == ("left", True)
    assert_audit_clean()


def test_entries_of_other_browsers_other_accounts_and_other_events_are_not_touched(event: EventView, ann: User) -> None:
    other = make_room("opera")
    guest_joins(event)
    others = [join(event), join(event, account_id=User.objects.create_user("bob").pk), join(other)]
    mine = guest_joins(other)
    assert guest_merge.merge_guest_entries(GUEST, ann.pk) == 2
    assert [(row(one).account_id, row(one).visitor_id) for one in others] == [
        (one.account_id, one.visitor_id) for one in others
    ]
    assert row(mine).account_id == ann.pk


@pytest.mark.parametrize("ended", ["completed", "expired", "left"])
def test_ended_entries_are_not_brought_back(event: EventView, ann: User, ended: str) -> None:
    place = guest_joins(event)
    QueueEntry.objects.filter(pk=place.id).update(status=ended, ended_at=clock.now())
    assert guest_merge.merge_guest_entries(GUEST, ann.pk) == 0
    assert row(place).account_id is None


def test_a_claimed_admission_stays_before_a_lower_number_that_waits(event: EventView, ann: User) -> None:
    guest = guest_joins(event)
    own = join(event, account_id=ann.pk)
    admit(own)
    QueueEntry.objects.filter(pk=guest.id).update(status="away", claim_expires_at=clock.now())
    guest_merge.merge_guest_entries(GUEST, ann.pk)
    assert live_entries() == [(2, ann.pk, "ready")]
    assert row(guest).status == "left"


def test_an_entry_with_a_hold_stays(ann: User) -> None:
    event = make_event()
    own = join(event, account_id=ann.pk)
    guest = guest_joins(event)
    reservation = hold(event, guest, seats=["hall-A-1"])
    assert guest_merge.merge_guest_entries(GUEST, ann.pk) == 1
    assert live_entries() == [(2, ann.pk, "ready")]
    assert row(own).status == "left"
    api = Client(headers=OWN)
    api.force_login(ann)
    assert api.get(f"/api/reservations/{reservation.id}").status_code == 200, "it belongs to the account now"
    assert_audit_clean()


def test_two_entries_with_holds_both_stay_until_one_of_the_holds_ends(ann: User) -> None:
    event = make_event()
    own, guest = join(event, account_id=ann.pk), guest_joins(event)
    first = hold(event, own, seats=["hall-A-1"])
    hold(event, guest, seats=["hall-A-2"])
    assert guest_merge.merge_guest_entries(GUEST, ann.pk) == 0
    assert [status for _, _, status in live_entries()] == ["ready", "ready"]
    backdate_deadline(first.id)
    QueueEntry.objects.filter(pk=own.id).update(busy_until=None)
    caller = facade.Caller(account_id=ann.pk, visitor_id=GUEST)
    assert guest_merge.merge_guest_entry(event.id, caller)
    assert live_entries() == [(2, ann.pk, "ready")]


def test_an_entry_let_through_stays_before_a_lower_number_that_waits(event: EventView, ann: User) -> None:
    own, guest = join(event, account_id=ann.pk), guest_joins(event)
    QueueEntry.objects.filter(pk=guest.id).update(marked="vip")
    guest_merge.merge_guest_entries(GUEST, ann.pk)
    assert live_entries() == [(2, ann.pk, "waiting")]
    assert row(own).status == "left"


def in_lobby(*entries: facade.EntryView) -> None:
    QueueEntry.objects.filter(pk__in=[entry.id for entry in entries]).update(in_lobby=True, number=None)


def test_in_the_lobby_the_accounts_own_entry_stays(event: EventView, ann: User) -> None:
    guest, own = guest_joins(event), join(event, account_id=ann.pk)
    in_lobby(guest, own)
    WaitingRoom.objects.update(state="lobby", lobby_count=2)
    assert guest_merge.merge_guest_entries(GUEST, ann.pk) == 1
    assert (row(guest).status, row(own).status) == ("left", "waiting")


def test_while_two_entries_are_being_drawn_both_wait_and_the_lower_number_stays_afterwards(
    event: EventView, ann: User
) -> None:
    guest, own = guest_joins(event), join(event, account_id=ann.pk)
    in_lobby(guest, own)
    WaitingRoom.objects.update(state="open", lobby_count=2, numbered_through=0)
    assert guest_merge.merge_guest_entries(GUEST, ann.pk) == 0
    QueueEntry.objects.filter(pk=guest.id).update(number=1)
    QueueEntry.objects.filter(pk=own.id).update(number=2)
    assert guest_merge.merge_guest_entries(GUEST, ann.pk) == 1
    assert (row(guest).status, row(own).status) == ("waiting", "left")
    assert row(guest).account_id == ann.pk


def test_an_entrant_of_the_draw_stays_before_a_late_arrival(event: EventView, ann: User) -> None:
    guest, own = guest_joins(event), join(event, account_id=ann.pk)
    in_lobby(guest)
    guest_merge.merge_guest_entries(GUEST, ann.pk)
    assert (row(guest).account_id, row(own).status) == (ann.pk, "left")


def naive_merge(event: EventView, account_id: int) -> None:
    """Reads, decides and writes correctly, but without locking the room."""
    with guest_merge.transactions.write():
        guest, own = guest_merge._lock_both(event.id, GUEST, account_id)
        with guest_merge.connection.cursor() as cursor:
            guest_merge._rooms_of_guest.rows(cursor, visitor_id=GUEST)  # The rival runs here.
        if guest is None:
            return
        if own is not None:
            leaving = own if (guest.number or 0) < (own.number or 0) else guest
            leaving.status, leaving.ended_at = "left", clock.now()
            leaving.save(update_fields=["status", "ended_at"])
            if leaving is guest:
                return
        guest.account_id, guest.visitor_id = account_id, ""
        guest.save(update_fields=["account", "visitor_id"])


def test_control_without_the_rooms_lock_a_join_of_the_account_fails_the_log_in(event: EventView, ann: User) -> None:
    """L: finds the guest's entry, and none of the account
    J: the account joins in another tab: an entry of its own; COMMIT
    L: assigns the guest's entry to the account: two live entries, which the constraint refuses
    """
    guest_joins(event)
    with (
        pytest.raises(guest_merge.DatabaseError),
        rival_at("rooms_of_guest", "before", lambda: join(event, account_id=ann.pk)),
    ):
        naive_merge(event, ann.pk)
    assert len(live_entries()) == 2


def test_a_join_of_the_account_waits_for_the_log_in_of_its_browser(event: EventView, ann: User) -> None:
    """L: has locked the room
    J: the account joins in another tab, and waits for the room
    L: the guest's entry is the account's; COMMIT
    J: finds that entry
    """
    place = guest_joins(event)
    with rival_waiting_at("lock_rooms", "after", lambda: joins(event, account_id=ann.pk)) as joining:
        assert guest_merge.merge_guest_entries(GUEST, ann.pk) == 1
    assert joining.result().id == place.id
    assert live_entries() == [(1, ann.pk, "waiting")]
    assert_audit_clean()


def test_an_uncommitted_join_of_the_guest_is_merged_on_the_accounts_next_join(event: EventView, ann: User) -> None:
    """J: a first tab joins as a guest, not yet committed
    L: logs in: finds no entry of the guest
    J: COMMIT: a guest's entry, in a browser that is logged in
    """
    merging_at = facade.Caller(account_id=ann.pk, visitor_id=GUEST)
    with run_at(
        "lock_rooms", "before", lambda: values(storm(1, lambda _: guest_merge.merge_guest_entries(GUEST, ann.pk)))
    ):
        place = joins(event, visitor_id=GUEST)
    assert live_entries() == [(1, None, "waiting")]
    assert guest_merge.merge_guest_entry(event.id, merging_at)
    assert positions.join(event, merging_at).id == place.id
    assert live_entries() == [(1, ann.pk, "waiting")]
    assert not guest_merge.merge_guest_entry(event.id, merging_at)
    assert_audit_clean()


def test_two_concurrent_log_ins_leave_one_entry(event: EventView, ann: User) -> None:
    guest_joins(event)
    join(event, account_id=ann.pk)
    changed = values(storm(4, lambda _: guest_merge.merge_guest_entries(GUEST, ann.pk)))
    assert sum(changed) == 1
    assert live_entries() == [(1, ann.pk, "waiting")]
    assert_audit_clean()


def test_two_accounts_that_log_in_concurrently_do_not_share_the_guests_entry(event: EventView, ann: User) -> None:
    place = guest_joins(event)
    bob = User.objects.create_user("bob@example.org")
    accounts = [ann.pk, bob.pk]
    assert sum(values(storm(2, lambda number: guest_merge.merge_guest_entries(GUEST, accounts[number])))) == 1
    assert row(place).account_id in accounts
    assert_audit_clean()


def test_concurrent_joins_and_log_ins_leave_one_entry_of_the_account(event: EventView, ann: User) -> None:
    callers = [
        facade.Caller(visitor_id=GUEST),
        facade.Caller(account_id=ann.pk),
        facade.Caller(account_id=ann.pk, visitor_id=GUEST),
    ]

    def act(number: int) -> None:
        if number % 4 == 3:
            guest_merge.merge_guest_entries(GUEST, ann.pk)
        else:
            positions.join(event, callers[number % 4])

    values(storm(8, act))
    last = callers[2]
    guest_merge.merge_guest_entry(event.id, last)
    positions.join(event, last)
    assert [account for _, account, _ in live_entries()] == [ann.pk]
    assert_audit_clean()


def test_a_tick_waits_for_the_log_in_and_admits_the_entry_that_stays(ann: User) -> None:
    """L: has locked the room; the account has 1, the guest 2
    T: waits for the room
    L: 2 has left; COMMIT
    T: admits 1 and 3
    """
    event = make_room(active=2)
    open_now(event)
    WaitingRoom.objects.update(state="paused")
    join(event, account_id=ann.pk)
    guest_joins(event)
    join(event)
    WaitingRoom.objects.update(state="open")
    backdate_tick(event)
    with rival_waiting_at("lock_rooms", "after", lambda: admission.tick(event.id, EPOCH)) as ticking:
        assert guest_merge.merge_guest_entries(GUEST, ann.pk) == 1
    assert ticking.result() == 2
    assert [(number, status) for number, _, status in live_entries()] == [(1, "ready"), (3, "ready")]
    assert_audit_clean()


def test_an_uncommitted_hold_keeps_the_entry_that_would_leave(ann: User) -> None:
    """H: has locked the guest's entry, holds a seat; not yet committed
    L: has locked the room, waits for the entry
    H: COMMIT
    L: the entry has a hold: it stays, the account's own entry leaves
    """
    event = make_event()
    own = join(event, account_id=ann.pk)
    guest = guest_joins(event)
    with rival_waiting_at(
        "insert_reservations", "after", lambda: guest_merge.merge_guest_entries(GUEST, ann.pk)
    ) as log_in:
        hold(event, guest, seats=["hall-A-1"])
    assert log_in.result() == 1
    assert (row(own).status, row(guest).account_id) == ("left", ann.pk)
    assert_audit_clean()


def browser_of(event: EventView) -> Client:
    client = Client(headers=OWN)
    assert client.post(f"/events/{event.slug}/join", follow=True).status_code == 200
    return client


@pytest.mark.parametrize("path", ["log-in", "sign-up"])
def test_logging_in_keeps_the_entry(event: EventView, path: str) -> None:
    if path == "log-in":
        User.objects.create_user("ann@example.org", password=PASSWORD)
    join_waiting_entries(event, 1)
    browser = browser_of(event)
    assert browser.get("/api/events/concert/queue/status").json()["status"] == "waiting"
    response = browser.post(f"/accounts/{path}", {"username": "ann@example.org", "password": PASSWORD})
    assert response.status_code == 302
    user = User.objects.get(username="ann@example.org")
    assert QueueEntry.objects.get(number=2).account_id == user.pk
    assert browser.get("/api/events/concert/queue/status").json()["position_in_queue"] >= 1
    elsewhere = Client()
    elsewhere.force_login(user)
    assert elsewhere.get("/api/events/concert/queue/status").status_code == 200
    browser.post("/accounts/log-out")
    assert browser.get("/api/events/concert/queue/status").status_code == 404, (
        "it belongs to the account, not to the browser"
    )
    assert_audit_clean()


def test_a_token_of_the_entry_that_left_is_refused_and_one_of_the_entry_that_stays_works(
    event: EventView, ann: User
) -> None:
    api = Api()
    queue = "/events/concert/queue"
    join(event, account_id=ann.pk)
    leaving = api.join("concert", visitor_id=GUEST)["queue_token"]
    guest_merge.merge_guest_entries(visitor_id_of_secret(GUEST), ann.pk)
    assert api.get(f"{queue}/status", token=leaving).json()["status"] == "left"
    refused = api.post("/events/concert/reservations", {"seats": ["hall-A-1"]}, token=leaving, key="k")
    assert_problem(refused, 410, "admission-expired")
    bob = User.objects.create_user("bob@example.org")
    staying = api.join("concert", visitor_id="another-browser")["queue_token"]
    guest_merge.merge_guest_entries(visitor_id_of_secret("another-browser"), bob.pk)
    assert api.get(f"{queue}/status", token=staying).json()["status"] == "paused"


def test_the_entry_that_stays_is_admitted_like_any_other(event: EventView, ann: User) -> None:
    place = guest_joins(event)
    guest_merge.merge_guest_entries(GUEST, ann.pk)
    WaitingRoom.objects.update(state="open")
    assert tick(event) == 1
    of_ann = replace(place, account_id=ann.pk)
    assert claim_or_get_entry(of_ann).is_ready
    hold(event, claim_or_get_entry(of_ann), seats=["hall-A-1"])
    assert_audit_clean()


def test_after_the_sale_is_over_an_entry_stays_the_guests(event: EventView, ann: User) -> None:
    """The published report says how many entries had an account."""
    entry = guest_joins(event)
    OnSale.objects.update(closes_at=clock.now() - timedelta(seconds=1))
    assert guest_merge.merge_guest_entries(GUEST, ann.pk) == 0
    assert row(entry).account_id is None
    OnSale.objects.update(closes_at=None)
    assert guest_merge.merge_guest_entries(GUEST, ann.pk) == 1
    assert row(entry).account_id == ann.pk
    assert_audit_clean()
