"""The queue of an event whose room is off: one entry per account or browser, and how an entry ends."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.events.facade import EventView
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.http import problems
from apps.queue import errors, facade
from apps.queue.entries import positions
from apps.queue.identity import caller as identity
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.room import admission
from tests.support.factories import close_sales, hold, join, join_directly, make_event
from tests.support.races import ConcurrentCall, rival_connection, storm, values

pytestmark = pytest.mark.django_db(transaction=True)

VISITOR = "a-visitor-of-the-line"


@pytest.fixture
def event() -> EventView:
    return make_event()


def caller(visitor: str = VISITOR) -> facade.Caller:
    return facade.Caller(visitor_id=visitor)


def entry_of(view: facade.EntryView) -> QueueEntry:
    return QueueEntry.objects.get(pk=view.id)


def lapse(view: facade.EntryView) -> None:
    QueueEntry.objects.filter(pk=view.id).update(admission_expires_at=clock.now())


def test_joining_a_room_that_is_off_gives_the_next_number_and_is_ready_at_once(event: EventView) -> None:
    first, second = join(event), join(event)
    assert (first.number, second.number) == (1, 2)
    assert first.is_ready
    assert entry_of(first).admission_expires_at - entry_of(first).joined_at == timedelta(seconds=300)  # type: ignore[operator]
    room = WaitingRoom.objects.get()
    assert (room.head, room.next_number) == (2, 3)


def test_joining_again_returns_the_same_entry(event: EventView) -> None:
    first = positions.join(event, caller())
    assert positions.join(event, caller()) == first
    assert QueueEntry.objects.count() == 1


def test_a_token_joins_for_its_own_visitor_or_account(event: EventView) -> None:
    first = positions.join(event, caller())
    assert positions.join(event, facade.Caller(entry_id=first.id)) == first
    positions.leave(event, facade.Caller(entry_id=first.id))
    second = positions.join(event, facade.Caller(entry_id=first.id))
    assert second.id != first.id
    assert second.visitor_id == VISITOR
    with pytest.raises(problems.TokenInvalid):
        positions.join(event, facade.Caller(entry_id=uuid4()))


def test_an_account_has_one_entry_in_every_browser(event: EventView) -> None:
    account = User.objects.create_user("ann").pk
    first = positions.join(event, facade.Caller(account_id=account, visitor_id="one-browser"))
    second = positions.join(event, facade.Caller(account_id=account, visitor_id="another-browser"))
    assert first == second
    assert (first.buyer, first.visitor_id) == (f"account:{account}", "")
    assert positions.join(event, caller("one-browser")).id != first.id


def test_a_join_without_an_identity_is_refused(event: EventView) -> None:
    with pytest.raises(problems.TokenMissing):
        positions.join(event, facade.Caller())
    with pytest.raises(problems.TokenMissing):
        positions.leave(event, facade.Caller())


def test_control_without_the_rooms_lock_two_first_tabs_of_one_browser_collide(event: EventView) -> None:
    """The naive way: read, then insert.

    A: no entry yet; takes number 1
    B: no entry yet, since A is not committed; takes number 1 too, and waits for A's key
    A: COMMIT
    B: refused by the database: an error for the buyer, where the first tab's entry was expected
    """

    def insert() -> None:
        assert not QueueEntry.objects.filter(visitor_id=VISITOR).exists()
        number = WaitingRoom.objects.get(event_id=event.id).next_number
        QueueEntry.objects.create(
            event_id=event.id, number=number, visitor_id=VISITOR, status="waiting", joined_at=clock.now()
        )

    with transaction.atomic():
        insert()
        rival = ConcurrentCall(insert).wait_until_blocked()
    refused = rival.outcome().error
    assert isinstance(refused, IntegrityError)
    assert transactions.violated_constraint(refused) in (
        "queue_entry_one_place_per_visitor",
        "queue_entry_number_once_per_event",
    )


def test_sixteen_tabs_of_one_browser_get_one_entry(event: EventView) -> None:
    entries = values(storm(16, lambda _: positions.join(event, caller())))
    assert len(set(entries)) == 1
    assert QueueEntry.objects.count() == 1


def test_thirty_two_concurrent_browsers_get_the_numbers_one_to_thirty_two(event: EventView) -> None:
    entries = values(storm(32, lambda number: positions.join(event, caller(f"visitor-{number:04}"))))
    assert sorted(entry.number for entry in entries) == list(range(1, 33))
    room = WaitingRoom.objects.get()
    assert (room.head, room.next_number) == (32, 33)


def test_joining_again_while_another_tab_leaves_creates_a_new_entry_not_the_one_that_ends(event: EventView) -> None:
    """L: has the entry locked, and leaves; not yet committed
    J: has the room's lock, waits for the entry
    L: COMMIT
    J: has the lock: left; creates a new entry
    """
    first = positions.join(event, caller())
    with transaction.atomic():
        QueueEntry.objects.filter(pk=first.id).update(status="left", ended_at=clock.now())
        rival = ConcurrentCall(lambda: join_directly(event, caller())).wait_until_blocked()
    second = rival.result()
    assert second.number == 2
    assert sorted(QueueEntry.objects.values_list("status", flat=True)) == ["left", "ready"]


def test_leaving_again_changes_nothing(event: EventView) -> None:
    first = positions.join(event, caller())
    for _ in range(2):
        assert positions.leave(event, caller()).status == "left"
    ended_at = entry_of(first).ended_at
    positions.leave(event, facade.Caller(entry_id=first.id))
    assert entry_of(first).ended_at == ended_at
    with pytest.raises(errors.EntryNotFound):
        positions.leave(event, caller("another-visitor"))


def test_an_expired_admission_reads_as_expired_before_the_sweep_ends_it(event: EventView) -> None:
    view = positions.join(event, caller())
    lapse(view)
    now = positions.claim_or_get_entry(event, caller())
    assert now is not None
    assert now.status == "expired"
    assert entry_of(view).status == "ready"
    with pytest.raises(errors.AdmissionExpired):
        facade.require_entry(event.id, now)
    again = positions.join(event, caller())
    assert (again.number, again.status) == (2, "ready")
    assert entry_of(view).status == "expired"


def test_a_live_reservation_keeps_the_entry_past_its_admission(event: EventView) -> None:
    entry = positions.join(event, caller())
    hold(event, entry, seats=["hall-A-1"])
    lapse(entry)
    assert admission.expire_admissions() == 0
    assert positions.join(event, caller()).id == entry.id
    now = positions.claim_or_get_entry(event, caller())
    assert now is not None
    assert now.status == "ready"


def test_expired_unused_admissions_are_ended_in_limited_batches(event: EventView) -> None:
    for _ in range(3):
        lapse(join(event))
    live = join(event)
    assert [admission.expire_admissions(limit=2) for _ in range(3)] == [2, 1, 0]
    assert entry_of(live).status == "ready"


def test_ending_admissions_skips_an_entry_that_is_holding(event: EventView) -> None:
    """H: has the entry locked, decided while its admission lasted
    E: the admission is over by now, but the entry is locked: skips it
    H: COMMIT: busy until its reservation ends
    E: does not change it
    """
    entry = positions.join(event, caller())
    lapse(entry)
    with rival_connection() as holder:
        holder.set_autocommit(False)
        with holder.cursor() as cursor:
            cursor.execute(
                "UPDATE queue_queueentry SET busy_until = clock_timestamp() + interval '10 min' WHERE id = %s",
                [entry.id],
            )
        assert admission.expire_admissions() == 0
        holder.commit()
    assert admission.expire_admissions() == 0
    assert entry_of(entry).status == "ready"
    QueueEntry.objects.update(busy_until=None)
    assert admission.expire_admissions() == 1


def test_two_concurrent_sweeps_end_each_admission_once(event: EventView) -> None:
    for _ in range(10):
        lapse(join(event))
    assert sum(values(storm(4, lambda _: admission.expire_admissions(limit=10)))) == 10


def test_an_entry_is_completed_once_and_its_account_may_join_again(event: EventView) -> None:
    def complete(entry_id: UUID) -> None:
        with transactions.write(), connection.cursor() as cursor:
            facade.lock_entries(cursor, [entry_id])
            facade.complete_entries(cursor, [entry_id])

    entry = positions.join(event, caller())
    complete(entry.id)
    ended_at = entry_of(entry).ended_at
    complete(entry.id)
    complete(uuid4())
    assert entry_of(entry).ended_at == ended_at
    assert entry_of(entry).busy_until is None
    assert positions.join(event, caller()).number == 2


def test_entries_are_locked_in_id_order_and_only_inside_a_transaction(event: EventView) -> None:
    entries = sorted(join(event).id for _ in range(4))
    with connection.cursor() as cursor:
        with pytest.raises(transactions.OutsideTransaction):
            facade.lock_entries(cursor, entries)
        with transactions.write():
            assert list(facade.lock_entries(cursor, entries[::-1])) == entries
            with pytest.raises(RuntimeError, match="1 of 2 entries"):
                facade.set_busy_until(cursor, {entries[0]: clock.now(), uuid4(): clock.now()})


def test_an_entry_belongs_to_its_token_its_account_or_its_browser(event: EventView) -> None:
    entry = positions.join(event, caller())
    other = join(event)
    assert facade.owns(facade.Caller(entry_id=entry.id), entry)
    assert facade.owns(caller(), entry)
    assert not facade.owns(caller(), other)
    assert not facade.owns(facade.Caller(entry_id=other.id, visitor_id=VISITOR), entry)
    assert not facade.owns(facade.Caller(), entry)
    with pytest.raises(problems.TokenMissing):
        facade.require_owner(facade.Caller(), entry)
    with pytest.raises(problems.NotOwner):
        facade.require_owner(caller("another-visitor"), entry)


def test_an_event_that_is_not_on_sale_cannot_be_joined() -> None:
    now = clock.now()
    upcoming = make_event("upcoming", opens_at=now + timedelta(hours=1))
    make_event("closed", venue="B")
    closed = close_sales("closed")
    with pytest.raises(errors.NotOnSale) as early:
        positions.join(upcoming, caller())
    assert "opens_at" in early.value.extra
    with pytest.raises(errors.NotOnSale, match="closed"):
        positions.join(closed, caller())
    assert QueueEntry.objects.count() == 0


@pytest.mark.parametrize(
    "value", ["", "short", "x" * 65, "with blank", "ümlaut-12", None, 7, "new\nline-123", "trailing-line\n"]
)
def test_an_invalid_visitor_id_is_refused(value: object) -> None:
    with pytest.raises(problems.Invalid):
        identity.check_visitor_secret(value)


def test_a_join_locks_the_room_before_the_entry(event: EventView) -> None:
    join_directly(event, caller())
    with CaptureQueriesContext(connection) as captured:
        join_directly(event, caller())
    locked = [query["sql"] for query in captured if "FOR NO KEY UPDATE" in query["sql"]]
    assert ["queue_waitingroom" in text for text in locked] == [True, False]
    for name in ("lock_entries", "lock_live_entries", "lock_visitor_entries"):
        assert "FOR NO KEY UPDATE" in sql.load("apps.queue", name).text
