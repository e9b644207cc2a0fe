"""Polls of waiting visitors: answered from the snapshot and the token, always as PostgreSQL would."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.events.facade import EventView
from apps.events.models import Event, OnSale
from apps.kernel import clock
from apps.kernel.fastpath import cache
from apps.kernel.tokens import jwt
from apps.queue import facade
from apps.queue.entries import positions
from apps.queue.identity.caller import issue_queue_token
from apps.queue.models import Draw, DrawnPlace, QueueEntry, WaitingRoom
from apps.queue.room import operations
from apps.queue.snapshot import exceptions, room_snapshot
from apps.queue.status import estimates, status
from tests.support.factories import join
from tests.support.queue.rooms import (
    backdate_admissions,
    backdate_claims,
    claim_or_get_entry,
    join_waiting_entries,
    make_room,
    open_now,
    tick,
)
from tests.support.queue.snapshots import (
    caller_of_entry,
    fresh_process,
    keep_caches_fresh,
    poll_status,
    position,
    status_from_database,
)
from tests.support.races import rival_connection
from tests.support.tiers import examples

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def event() -> EventView:
    return make_room()


def test_a_poll_of_a_waiting_visitor_makes_no_query(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = join_waiting_entries(event, 6)
    tick(event)
    keep_caches_fresh(monkeypatch)
    header = {"authorization": f"Bearer {issue_queue_token(entries[5].id, event.slug, entries[5].number)}"}
    client = Client()
    client.get("/api/events/concert/queue/status", headers=header)
    with CaptureQueriesContext(connection) as captured:
        answer = client.get("/api/events/concert/queue/status", headers=header)
    assert [query["sql"] for query in captured] == []
    assert (answer.json()["status"], answer.json()["position_in_queue"]) == ("waiting", 3)


def test_a_poll_from_the_head_down_reads_the_database_and_claims_the_admission(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = join_waiting_entries(event, 4)
    keep_caches_fresh(monkeypatch)
    assert position(event, entries[0]) == 1
    tick(event)
    room_snapshot.invalidate(event.id)
    place = poll_status(event, entries[0])
    assert (place.is_ready, place.estimate.status) == (True, "ready")
    assert QueueEntry.objects.get(pk=entries[0].id).admission_expires_at is not None
    assert position(event, entries[3]) == 1


def test_a_visitor_who_joins_after_the_snapshot_was_read_does_not_get_an_old_status(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P: the snapshot is read: next number 1, head 0
    J: joins the empty line in another process, has number 1 and is admitted by the same transaction
    P: number 1 is above the cached head, but the snapshot does not cover the number: it is read again
    """
    open_now(event)
    keep_caches_fresh(monkeypatch, copy=True)
    assert room_snapshot.get_snapshot(event.id).head == 0
    with fresh_process():
        entry = join(event)
    assert entry.is_ready
    assert poll_status(event, entry).is_ready


def test_an_entry_admitted_between_the_join_and_its_response_is_ready(event: EventView) -> None:
    """J: joins and has to wait; COMMIT
    T: admits it: the head is at its number
    J: gets its response: not that it waits at position 0, like an entry that missed its turn
    """
    *_, joined = join_waiting_entries(event, 3)
    assert joined.waits
    assert tick(event) == 3
    cache.clear_all()
    assert estimates.estimate(joined).ahead == 0, "the position it would have reported"
    place = status.status_of_entry(event, joined)
    assert place.is_ready
    assert QueueEntry.objects.get(pk=joined.id).admission_expires_at is not None


def test_a_visitor_who_left_gets_that_status_at_once_here_and_elsewhere_with_the_next_feed(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_here, left_elsewhere, staying = join_waiting_entries(event, 3)
    keep_caches_fresh(monkeypatch)
    assert [poll_status(event, entry).entry for entry in (left_here, left_elsewhere, staying)] == [None] * 3
    positions.leave(event, caller_of_entry(left_here))
    with fresh_process():
        positions.leave(event, caller_of_entry(left_elsewhere))
    assert poll_status(event, left_here).estimate.status == "left"
    assert poll_status(event, left_elsewhere).estimate.status == "waiting"
    monkeypatch.setattr(exceptions, "FEED_SECONDS", 0.0)
    exceptions._feeds[event.id].due_at = 0.0
    assert poll_status(event, left_elsewhere).estimate.status == "left"
    assert poll_status(event, staying).entry is None


def test_a_removed_or_marked_entry_above_the_head_is_read_from_the_database(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, through, stays = join_waiting_entries(event, 3)
    operations.remove(removed.id, who="staff")
    QueueEntry.objects.filter(pk=through.id).update(
        marked="vip", status="ready", ready_at=clock.now(), claim_expires_at=clock.now() + timedelta(minutes=2)
    )
    keep_caches_fresh(monkeypatch)
    assert poll_status(event, removed).estimate.status == "left"
    assert poll_status(event, through).is_ready
    assert poll_status(event, stays).entry is None


def test_until_a_process_has_read_all_endings_it_reads_the_database(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = join_waiting_entries(event, 6)
    for entry in entries[:5]:
        positions.leave(event, caller_of_entry(entry))
    keep_caches_fresh(monkeypatch)
    monkeypatch.setattr(exceptions, "SLICE_MAX", 2)
    read_from_database = [poll_status(event, entries[5]).entry is not None for _ in range(4)]
    assert read_from_database == [True, True, False, False]
    assert [poll_status(event, entry).estimate.status for entry in entries[:5]] == ["left"] * 5


def test_more_simultaneous_endings_than_one_page_holds_are_all_read(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = join_waiting_entries(event, 6)
    ended = [entry.id for entry in entries[:5]]
    QueueEntry.objects.filter(pk__in=ended).update(status="left", ended_at=clock.now())
    keep_caches_fresh(monkeypatch)
    monkeypatch.setattr(exceptions, "SLICE_MAX", 2)
    while poll_status(event, entries[5]).entry is not None:
        pass
    assert [poll_status(event, entry).estimate.status for entry in entries[:5]] == ["left"] * 5


def test_an_ending_that_commits_late_is_read_too(event: EventView) -> None:
    """L: leaves, dated now; not yet committed
    M: leaves, dated later, committed
    F: reads up to M's ending
    L: COMMIT
    F: reads back beyond M, and finds L
    """
    late, punctual = join_waiting_entries(event, 2)
    with rival_connection() as rival:
        rival.set_autocommit(False)
        with rival.cursor() as cursor:
            cursor.execute(
                "UPDATE queue_queueentry SET status = 'left', ended_at = clock_timestamp() WHERE id = %s", [late.id]
            )
        with fresh_process():
            positions.leave(event, caller_of_entry(punctual))
        assert poll_status(event, late).estimate.status == "waiting"
        assert poll_status(event, punctual).estimate.status == "left"
        rival.commit()
    assert poll_status(event, late).estimate.status == "left"


def test_another_entrys_number_shows_no_position(event: EventView) -> None:
    (entry,) = join_waiting_entries(event, 1)
    QueueEntry.objects.all().delete()
    WaitingRoom.objects.update(next_number=1)
    assert status.get_status(event, caller_of_entry(entry)) is None


def test_a_token_with_an_invalid_number_reads_the_database(event: EventView) -> None:
    (entry,) = join_waiting_entries(event, 1)
    for number in ("1", -1, True, 1.5, None):
        token = jwt.issue("queue", str(entry.id), timedelta(hours=1), event.slug, num=number)
        answer = Client().get("/api/events/concert/queue/status", headers={"authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.json()["position_in_queue"]) == (200, 1)


# --- the lobby -------------------------------------------------------------------------------------------------------


@pytest.fixture
def lobby(event: EventView) -> list[facade.EntryView]:
    """Four entries in a lobby an hour before the opening."""
    now = clock.now()
    entries = [
        QueueEntry(
            event_id=event.id, in_lobby=True, visitor_id=f"in-the-lobby-{number}", status="waiting", joined_at=now
        )
        for number in range(4)
    ]
    QueueEntry.objects.bulk_create(entries)
    WaitingRoom.objects.filter(event_id=event.id).update(
        state="lobby", lobby_opens_at=now - timedelta(hours=1), lobby_count=4, next_number=5
    )
    OnSale.objects.filter(event_id=event.id).update(opens_at=now + timedelta(hours=1))
    Draw.objects.create(
        event_id=event.id, statement="{}", commitment=b"c", committed_at=now, secret=b"s", reveal_by=now
    )
    views = [facade.entry_by_id(entry.pk) for entry in entries]
    return [view for view in views if view is not None]


def open_lobby(event: EventView) -> None:
    OnSale.objects.filter(event_id=event.id).update(opens_at=clock.now())
    WaitingRoom.objects.filter(event_id=event.id).update(state="open", numbered_through=0)
    Draw.objects.filter(event_id=event.id).update(frozen_at=clock.now())


def draw(event: EventView, entries: list[facade.EntryView]) -> None:
    """Draw the numbers 1, 2, … for the entries in this order; none of them is written to its entry yet."""
    DrawnPlace.objects.bulk_create(
        DrawnPlace(event_id=event.id, number=number, entry_id=entry.id) for number, entry in enumerate(entries, 1)
    )
    Draw.objects.filter(event_id=event.id).update(drawn_at=clock.now())


def test_a_lobby_status_gives_the_opening_time_without_a_query(
    event: EventView, lobby: list[facade.EntryView], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_caches_fresh(monkeypatch)
    poll_status(event, lobby[0])
    with CaptureQueriesContext(connection) as captured:
        seen = poll_status(event, lobby[1]).estimate
    assert len(captured) == 0
    assert (seen.status, seen.ahead, seen.stage) == ("lobby", None, "lobby")
    assert 3_000 < seen.wait_seconds <= 3_600
    assert seen.opens_at is not None


def test_the_lobby_of_a_canceled_event_reports_that_it_is_over(event: EventView, lobby: list[facade.EntryView]) -> None:
    Event.objects.update(status=Event.Status.CANCELED)
    for seen in (poll_status(event, lobby[0]), status_from_database(event, lobby[1])):
        assert (seen.estimate.status, seen.estimate.stage, seen.estimate.opens_at) == ("drained", "", None)


def test_a_lobby_token_gets_a_number_once_it_is_drawn(event: EventView, lobby: list[facade.EntryView]) -> None:
    open_lobby(event)
    token = issue_queue_token(lobby[0].id, event.slug, None)

    def ask(token: str) -> dict[str, object]:
        response = Client().get("/api/events/concert/queue/status", headers={"authorization": f"Bearer {token}"})
        assert response.status_code == 200
        return dict(response.json())

    drawing = ask(token)
    assert (drawing["status"], drawing["stage"], drawing["position_in_queue"]) == ("lobby", "drawing", None)
    draw(event, lobby[::-1])
    drawn = ask(token)
    assert (drawn["status"], drawn["position_in_queue"]) == ("waiting", 4)
    assert "stage" not in drawn
    claims = jwt.verify(str(drawn["queue_token"]), frozenset({"queue"}), event.slug)
    assert (claims.subject, claims.values["num"]) == (str(lobby[0].id), 4)
    again = ask(str(drawn["queue_token"]))
    assert again["position_in_queue"] == 4
    assert "queue_token" not in again
    # The same by account or browser, though the entry has no number of its own yet.
    seen = status.get_status(event, facade.Caller(visitor_id="in-the-lobby-0"))
    assert seen is not None
    assert seen.estimate.ahead == 4


def test_a_visitor_who_left_the_lobby_gets_that_status_before_and_after_the_draw(
    event: EventView, lobby: list[facade.EntryView], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_caches_fresh(monkeypatch)
    assert poll_status(event, lobby[0]).estimate.status == "lobby"
    positions.leave(event, facade.Caller(entry_id=lobby[0].id))
    assert poll_status(event, lobby[0]).estimate.status == "left"
    open_lobby(event)
    draw(event, lobby)
    with fresh_process():
        assert poll_status(event, lobby[0]).estimate.status == "left"
        assert position(event, lobby[1]) == 2


def test_polls_of_a_lobby_are_spread_after_the_opening_and_in_time_to_claim() -> None:
    assert all(240_000 <= estimates.lobby_poll_ms(7_200, 10, 120) <= 300_000 for _ in range(50))
    assert all(60_000 <= estimates.lobby_poll_ms(60, 10, 120) <= 62_000 for _ in range(50))
    polls = [estimates.lobby_poll_ms(10, 1_000_000, 120) for _ in range(200)]
    assert min(polls) >= 10_000
    assert max(polls) <= 10_000 + 60_000
    assert max(polls) - min(polls) > 20_000
    assert all(estimates.lobby_poll_ms(0, 5, 1) >= 1_000 for _ in range(50))


# --- the two paths to the same response ------------------------------------------------------------------------------

ACTS = ["join", "join", "leave", "remove", "tick", "claim", "miss", "lapse", "pause", "open", "cap", "drain"]


@pytest.mark.slow
def test_the_snapshot_and_the_database_agree_for_any_room_and_no_position_rises() -> None:
    made = iter(range(1_000))

    @settings(max_examples=examples(10), deadline=None)
    @given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 30)), min_size=5, max_size=20))
    def check(acts: list[tuple[str, int]]) -> None:
        number = next(made)
        event = make_room(f"room-{number}", venue=f"venue-{number}", rows=1)
        entries = join_waiting_entries(event, 5)
        last: dict[object, int] = {}
        for act, which in acts:
            entry = entries[which % len(entries)]
            state = WaitingRoom.objects.get(event_id=event.id).state
            if act == "join" and state != "drained":
                entries.append(join(event))
            elif act == "leave":
                positions.leave(event, caller_of_entry(entry))
            elif act == "remove":
                operations.remove(entry.id, who="staff")
            elif act == "tick" and state == "open":
                tick(event, seconds=which / 10)
            elif act == "claim":
                claim_or_get_entry(entry)
            elif act in ("miss", "lapse"):
                unclaimed = QueueEntry.objects.filter(pk=entry.id, status="ready", admission_expires_at=None).exists()
                (backdate_claims if unclaimed else backdate_admissions)(entry)
            elif act in ("pause", "open", "drain"):
                wanted = {"pause": "paused", "open": "open", "drain": "drained"}[act]
                if wanted in operations.STATE_TRANSITIONS[state]:
                    operations.set_state(event.id, wanted, who="staff")
            elif act == "cap":
                operations.set_limits(event.id, rate_per_second=1 + which, active_max=which % 5, who="staff")
            for entry in entries:
                with fresh_process():
                    fast = poll_status(event, entry).estimate
                    true = status_from_database(event, entry).estimate
                assert (fast.status, fast.ahead) == (true.status, true.ahead)
                # The room was observed for some milliseconds longer.
                assert fast.wait_range == pytest.approx(true.wait_range, abs=2, rel=0.05)
                assert fast.ahead is not None
                assert fast.ahead <= last.get(entry.id, fast.ahead), "a position rose"
                last[entry.id] = fast.ahead

    check()
