"""The draw killed at every line, run by two processes, and beside joins: the drawn numbers are always the same."""

import threading
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from apps.kernel import clock
from apps.kernel.db import sql
from apps.kernel.db.leader_election import Leadership
from apps.queue import facade
from apps.queue.entries import positions
from apps.queue.lobby import draw as lobby_draw
from apps.queue.lobby.draw import DrawWorker
from apps.queue.models import Draw, RoomAct
from apps.queue.room import admission
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean, join
from tests.support.queue.lobbies import (
    backdate_sale_start,
    close_lobby,
    commit_to_beacon,
    draw_all,
    draw_of,
    drawn_numbers,
    entry_numbers,
    make_lobby,
    room_of,
)
from tests.support.queue.rooms import EPOCH, row, tick
from tests.support.races import ConcurrentCall, rival_at, statements, storm, values

pytestmark = pytest.mark.django_db(transaction=True)
SMALL_CHUNK = 2


class Killed(BaseException):
    """The process is killed: nothing after this line runs, and its session ends."""


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lobby_draw, "CHUNK", SMALL_CHUNK)


def run_and_be_killed(nth: int, moment: str) -> bool:
    """Run a draw worker that is killed right before or after its nth statement. Return whether it ran that far."""
    count = 0
    watched = threading.get_ident()

    def watch(name: str, when: str) -> None:
        nonlocal count
        if threading.get_ident() != watched or when != moment:
            return
        count += 1
        if count == nth:
            raise Killed(name)

    worker = DrawWorker(database_url())
    try:
        with sql.observe(watch):
            worker.run_until_idle()
    except Killed:
        return True
    finally:
        worker.close()
    return False


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_draw_killed_at_any_line_resumes_with_the_same_result(moment: str) -> None:
    """Killed at its first statement, the next worker at its second, and so on: each continues from what is
    committed."""
    event, _ = make_lobby(entrants=5)
    event = close_lobby(event)
    late = join(event)
    first: dict[str, Any] = {}
    for nth in range(1, 200):
        was_killed = run_and_be_killed(nth, moment)
        draw = draw_of(event)
        # A published value stays: a reader in between must never see a different one.
        for name in ("digest", "digest_at", "revealed_at", "seed", "drawn_at", "numbered_at"):
            value = getattr(draw, name)
            if value is not None:
                assert first.setdefault(name, value) == value
        drawn = drawn_numbers(event)
        if drawn:
            assert first.setdefault("numbers", drawn) == drawn
        through = room_of(event).numbered_through
        given = sorted(number for number in entry_numbers(event).values() if number is not None)
        assert given == list(range(1, len(given) + 1))
        if through is not None:
            assert through <= len(given)
        if not was_killed:
            break
    assert draw_of(event).numbered_at is not None
    assert nth > 3
    assert entry_numbers(event) == drawn_numbers(event)
    details = list(RoomAct.objects.filter(what="draw").values_list("detail", flat=True))
    assert len(details) == len(set(details)) == 5
    assert room_of(event).numbered_through is None
    assert tick(event) == 3
    assert row(late).status == "waiting"
    assert_audit_clean()


@pytest.mark.slow
def test_the_next_worker_completes_a_draw_killed_at_any_line() -> None:
    """One kill at every third line of a whole draw, each in its own lobby."""
    event, _ = make_lobby("whole", entrants=3)
    close_lobby(event)
    with statements() as seen:
        draw_all()
    for nth in range(1, len(seen) + 1, 3):
        slug = f"cut-{nth}"
        event, _ = make_lobby(slug, entrants=3, rows=1, seats_per_row=1, venue=slug)
        close_lobby(event)
        run_and_be_killed(nth, "after")
        draw_all()
        assert draw_of(event).numbered_at is not None, f"cut at {seen[nth - 1]}"
        assert entry_numbers(event) == drawn_numbers(event)
    assert_audit_clean()


def test_of_two_workers_one_draws_and_the_other_takes_over_when_its_session_ends() -> None:
    event, _ = make_lobby(entrants=5)
    close_lobby(event)
    first, second = DrawWorker(database_url()), DrawWorker(database_url())
    try:
        assert first.run_once() is True
        assert second.run_once() is False
        assert draw_of(event).revealed_at is None
        first.close()
        # The server may take a moment to notice that the session has ended.
        pause = threading.Event()
        for _ in range(600):
            if second.run_once():
                break
            pause.wait(0.05)
        second.run_until_idle()
    finally:
        first.close()
        second.close()
    assert entry_numbers(event) == drawn_numbers(event)
    assert_audit_clean()


def test_workers_without_leader_election_still_draw_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The advisory lock only saves work; correctness comes from each step's own lock and condition."""
    event, _ = make_lobby(entrants=6)
    close_lobby(event)

    def always_lead(self: Leadership) -> bool:
        if self.session is None:
            self.session = psycopg.connect(self._conninfo, autocommit=True)
        return True

    monkeypatch.setattr(Leadership, "holds", always_lead)

    def act(number: int) -> None:
        worker = DrawWorker(database_url())
        try:
            for _ in range(40):
                worker.run_once()
        finally:
            worker.close()

    values(storm(4, act))
    draw_all()
    assert entry_numbers(event) == drawn_numbers(event)
    assert sorted(drawn_numbers(event).values()) == list(range(1, 7))
    details = list(RoomAct.objects.filter(what="draw").values_list("detail", flat=True))
    assert len(details) == len(set(details))
    assert_audit_clean()


def test_concurrent_closings_close_the_lobby_once() -> None:
    event, _ = make_lobby(entrants=4)
    event = backdate_sale_start(event)

    def act(number: int) -> Any:
        return join(event) if number % 2 else admission.tick(event.id, EPOCH)

    values(storm(6, act))
    assert RoomAct.objects.filter(detail="lobby closed: 4 entrants").count() == 1
    room = room_of(event)
    assert (room.next_number, room.lobby_count, room.numbered_through) == (8, 4, 0)
    draw_all()
    assert_audit_clean()


def test_an_entry_that_joins_during_the_draw_is_behind_the_lobby() -> None:
    """New entries join and ticks run before each statement of the draw, in other connections: the room's lock is never
    held across steps, and no entry of the lobby is overtaken."""
    event, _ = make_lobby(entrants=4, active=50)
    event = close_lobby(event)
    late: list[facade.EntryView] = []
    admitted_counts: list[int] = []
    watched = threading.get_ident()

    def watch(name: str, when: str) -> None:
        if threading.get_ident() == watched and when == "before" and name in ("assign_drawn_numbers", "number_entries"):
            late.append(ConcurrentCall(lambda: join(event)).result())
            admitted_counts.append(ConcurrentCall(lambda: tick(event)).result())

    with sql.observe(watch):
        draw_all()
    assert [entry.number for entry in late] == list(range(5, 5 + len(late)))
    assert admitted_counts == [0, 0, SMALL_CHUNK]
    assert {entry.status for entry in late} == {"waiting"}
    tick(event)
    assert {row(entry).status for entry in late} == {"ready"}
    assert_audit_clean()


def test_an_entry_that_leaves_during_the_draw_still_gets_its_number() -> None:
    """D: draws
    L: leaves, before the chunk with its entry is written
    D: writes the number into the entry that has left
    """
    event, entries = make_lobby(entrants=2)
    event = close_lobby(event)
    leaving = entries[1]
    with rival_at("number_entries", "before", lambda: positions.leave(event, facade.Caller(entry_id=leaving.id))):
        draw_all()
    assert row(leaving).status == "left"
    assert row(leaving).number == drawn_numbers(event)[leaving.id]
    assert tick(event) == 1
    assert_audit_clean()


def test_a_tick_before_the_room_advances_admits_no_entry_of_the_new_chunk() -> None:
    """D: writes a chunk's numbers; COMMIT
    T: the entries have their numbers, but the room has not advanced: admits none
    D: advances the room
    T: admits them
    """
    event, entries = make_lobby(entrants=2, active=9)
    event = close_lobby(event)
    # The room is locked after the chunk's commit: by then its numbers are visible to every transaction.
    seen: list[tuple[int, int]] = []
    watched = threading.get_ident()
    numbered = False

    def watch(name: str, when: str) -> None:
        nonlocal numbered
        if threading.get_ident() != watched or when == "after":
            return
        if name == "number_entries":
            numbered = True
        elif name == "lock_rooms" and numbered and not seen:
            admitted = ConcurrentCall(lambda: tick(event)).result()
            seen.append((admitted, len([one for one in entry_numbers(event).values() if one])))

    with sql.observe(watch):
        draw_all()
    assert seen == [(0, 2)]
    assert tick(event) == 2
    assert {row(entry).status for entry in entries} == {"ready"}
    assert_audit_clean()


def test_the_shape_of_a_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are never locked with the room: first the numbers, then the room in its own transaction."""
    monkeypatch.setattr(lobby_draw, "ANALYZED_MIN", 1)
    event, _ = make_lobby(entrants=SMALL_CHUNK + 1)
    close_lobby(event)
    with statements() as seen:
        draw_all()
    work = [
        name
        for name in seen
        if name not in ("try_leadership", "keep_session_alive", "draws_under_way", "release_leadership")
    ]
    assert work == [
        "digest_entrants", "lock_draw", "fix_digest", "record_act",
        "lock_draw", "reveal_draw", "record_act",
        "lock_draw", "assign_drawn_numbers", "analyze_drawn_numbers", "note_drawn",
        "number_entries", "lock_rooms", "save_room",
        "number_entries", "lock_rooms", "save_room",
        "refresh_entries", "lock_rooms", "save_room", "lock_draw", "note_numbered", "record_act",
    ]  # fmt: skip


def test_a_long_draw_blocks_no_other_operation() -> None:
    """No conflict: with the whole draw's INSERT uncommitted, joins, leaves and ticks of the same room complete."""
    event, entries = make_lobby(entrants=3)
    event = close_lobby(event)
    results: list[Any] = []
    watched = threading.get_ident()

    def watch(name: str, when: str) -> None:
        if threading.get_ident() == watched and (name, when) == ("assign_drawn_numbers", "after"):
            results.append(ConcurrentCall(lambda: join(event)).result().number)
            results.append(ConcurrentCall(lambda: tick(event)).result())
            results.append(
                ConcurrentCall(lambda: positions.leave(event, facade.Caller(entry_id=entries[0].id))).result().status
            )

    with sql.observe(watch):
        draw_all()
    assert results == [4, 0, "left"]
    assert entry_numbers(event) == drawn_numbers(event)


def test_a_terminated_session_costs_one_round() -> None:
    event, _ = make_lobby(entrants=3)
    close_lobby(event)
    worker = DrawWorker(database_url())
    try:
        assert worker.run_once() is True
        assert worker.lead.session is not None
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [worker.lead.session.info.backend_pid])
        assert worker.run_once() is False
        worker.run_until_idle()
    finally:
        worker.close()
    assert entry_numbers(event) == drawn_numbers(event)


def test_the_draw_thread_draws_and_stops_on_request() -> None:
    event, _ = make_lobby(entrants=3)
    close_lobby(event)
    stopping = threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.conf.settings.DATABASE_DIRECT_URL", database_url())
        worker = ConcurrentCall(lambda: lobby_draw.loop(stopping))
        pause = threading.Event()
        for _ in range(600):
            if Draw.objects.filter(numbered_at__isnull=False).exists():
                break
            pause.wait(0.05)
        stopping.set()
        worker.outcome()
    assert entry_numbers(event) == drawn_numbers(event)


def test_a_second_lobby_does_not_wait_for_the_first_one_s_beacon() -> None:
    waiting, _ = make_lobby("waits", entrants=2)
    other, _ = make_lobby("goes", entrants=2, venue="B")
    commit_to_beacon(waiting, "http://127.0.0.1:1", 5, clock.now() + timedelta(hours=1))
    close_lobby(waiting)
    close_lobby(other)
    draw_all()
    assert draw_of(other).numbered_at is not None
    assert draw_of(waiting).revealed_at is None
