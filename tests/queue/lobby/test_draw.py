"""A lobby and its draw: committed to beforehand, closed at the opening, drawn from the published data."""

import hashlib
import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import reverse
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.events.models import Event, OnSale
from apps.kernel import clock
from apps.kernel.fastpath import cache
from apps.queue import errors, facade
from apps.queue.entries import positions
from apps.queue.identity.caller import issue_queue_token
from apps.queue.lobby import draw as lobby_draw
from apps.queue.lobby import lobby
from apps.queue.models import AdmissionBatch, Draw, DrawnPlace, QueueEntry, RoomAct, WaitingRoom
from apps.queue.room import admission, operations
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean, audit_breaches, join, make_event
from tests.support.queue.lobbies import (
    backdate_sale_start,
    close_lobby,
    draw_all,
    draw_of,
    drawn_numbers,
    entry_numbers,
    make_lobby,
    room_of,
)
from tests.support.queue.rooms import EPOCH, make_room, row, tick
from tests.support.races import statements
from tests.support.tiers import examples

pytestmark = pytest.mark.django_db(transaction=True)


def acts(what: str = "draw") -> list[str]:
    return list(RoomAct.objects.filter(what=what).order_by("id").values_list("detail", flat=True))


# --- before the draw -------------------------------------------------------------------------------------------------


def test_the_draw_is_committed_to_before_any_visitor_can_enter() -> None:
    later = clock.now() + timedelta(hours=1)
    room = room_settings(lobby_opens_at=later)
    event = make_event(room=room, opens_at=later + timedelta(hours=1))
    draw = draw_of(event)
    statement = json.loads(draw.statement)
    assert hashlib.sha256(draw.statement.encode()).digest() == bytes(draw.commitment)
    assert statement["secret_sha256"] == hashlib.sha256(bytes(draw.secret)).hexdigest()
    assert statement["event"] == event.slug
    assert statement["opens_at"] == clock.iso(event.policy.opens_at)
    assert statement["beacon"] == {"source": "none", "round": None, "at": None, "scheme": None, "public_key": None}
    assert "not operator-proof" in statement["fallback"]
    assert draw.committed_at < room_of(event).lobby_opens_at
    assert acts() == [f"committed to {bytes(draw.commitment).hex()}"]
    assert room_of(event).state == "closed"


def room_settings(**more: Any) -> Any:
    from apps.events.facade import WaitingRoomSettings

    return WaitingRoomSettings(rate_per_second=10, active_max=3, **more)


def test_two_lobbies_have_two_secrets_and_a_room_without_a_lobby_has_no_draw() -> None:
    make_room("plain")
    assert not Draw.objects.exists()
    make_lobby("first", venue="A")
    make_lobby("second", venue="B")
    assert len({bytes(draw.secret) for draw in Draw.objects.all()}) == 2


def test_a_lobby_opens_by_itself_and_not_before_its_time() -> None:
    later = clock.now() + timedelta(hours=1)
    event = make_event(room=room_settings(lobby_opens_at=later), opens_at=later + timedelta(hours=1))
    assert admission.due_rooms() == ([], [])
    assert admission.tick(event.id, EPOCH) == 0
    assert room_of(event).state == "closed"
    WaitingRoom.objects.update(lobby_opens_at=clock.now() - timedelta(seconds=1))
    assert admission.due_rooms() == ([event.id], [])
    assert admission.tick(event.id, EPOCH) == 0
    assert room_of(event).state == "lobby"
    assert admission.due_rooms() == ([], [])
    assert acts("state") == ["closed → lobby"]


def test_a_published_on_sale_cannot_be_moved(client: Client, django_user_model: Any) -> None:
    """The commitment names the opening: it holds because a published on-sale cannot be edited."""
    event, _ = make_lobby()
    client.force_login(django_user_model.objects.create_superuser("boss"))
    before = OnSale.objects.values().get()
    moved = clock.now() + timedelta(days=2)
    page = client.get(reverse("admin:events_event_change", args=[event.id])).content.decode()
    assert 'name="on_sale-0-opens_at"' not in page
    fields = {
        "name": "Moved", "description": "", "on_sale-TOTAL_FORMS": 1, "on_sale-INITIAL_FORMS": 1,
        "on_sale-0-event": event.id, "on_sale-0-opens_at": f"{moved:%Y-%m-%dT%H:%M}",
        "categories-TOTAL_FORMS": 0, "categories-INITIAL_FORMS": 0,
        "sections-TOTAL_FORMS": 0, "sections-INITIAL_FORMS": 0,
    }  # fmt: skip
    client.post(reverse("admin:events_event_change", args=[event.id]), fields)
    assert OnSale.objects.values().get() == before


@pytest.mark.parametrize("state", ["off", "open", "paused", "drained", "closed"])
def test_a_lobby_ends_with_the_opening_and_not_by_an_operator(state: str) -> None:
    event, _ = make_lobby(entrants=2)
    with pytest.raises(errors.ActRefused, match="lobby"):
        operations.set_state(event.id, state, who="staff")
    with pytest.raises(errors.ActRefused, match="the room is lobby"):
        operations.admit_now(event.id, 1, who="staff")
    assert tick(event) == 0
    assert room_of(event).state == "lobby"


def test_the_lobby_of_a_canceled_event_stays_closed_and_draws_nothing() -> None:
    event, entries = make_lobby(entrants=2)
    Event.objects.update(status="canceled")
    event = backdate_sale_start(event)
    assert admission.tick(event.id, EPOCH) == 0
    assert room_of(event).state == "lobby"
    with pytest.raises(errors.NotOnSale, match="canceled"):
        join(event)
    draw_all()
    assert draw_of(event).frozen_at is None
    assert row(entries[0]).number is None


# --- the closing -----------------------------------------------------------------------------------------------------


def test_at_the_opening_the_lobby_closes_and_late_arrivals_follow_it() -> None:
    event, entries = make_lobby(entrants=3)
    event = backdate_sale_start(event)
    late = join(event)
    room = room_of(event)
    assert (room.state, room.lobby_count, room.next_number, room.numbered_through) == ("open", 3, 5, 0)
    assert (late.number, late.status) == (4, "waiting")
    assert draw_of(event).frozen_at is not None
    assert acts()[-1] == "lobby closed: 3 entrants"
    assert tick(event) == 0
    draw_all()
    assert sorted(entry_numbers(event).values()) == [1, 2, 3]
    assert tick(event) == 3
    assert row(late).status == "waiting"
    assert {row(entry).status for entry in entries} == {"ready"}
    assert_audit_clean()


def test_an_empty_lobby_delays_no_visitor() -> None:
    event, _ = make_lobby()
    event = backdate_sale_start(event)
    assert join(event).is_ready
    assert room_of(event).numbered_through is None
    draw_all()
    draw = draw_of(event)
    assert bytes(draw.digest) == hashlib.sha256(b"").digest()
    assert draw.numbered_at is not None
    assert not DrawnPlace.objects.exists()
    assert join(event).number == 2
    assert_audit_clean()


def test_a_lobby_that_was_not_opened_in_time_opens_as_an_empty_one() -> None:
    later = clock.now() + timedelta(hours=1)
    event = make_event(room=room_settings(lobby_opens_at=later), opens_at=later + timedelta(hours=1))
    event = backdate_sale_start(event)
    assert join(event).is_ready
    assert acts("state") == ["closed → open"]
    draw_all()
    assert draw_of(event).numbered_at is not None


def test_a_lobby_of_one_entrant_is_drawn() -> None:
    event, (only,) = make_lobby(entrants=1)
    event = close_lobby(event)
    draw_all()
    assert drawn_numbers(event) == entry_numbers(event) == {only.id: 1}
    assert tick(event) == 1
    assert acts()[-1] == "numbered: 1 entrant"
    assert_audit_clean()


@pytest.mark.parametrize("is_large", [True, False])
def test_only_a_large_draw_renews_the_statistics(is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """This takes longer than the rest of a small draw, and other draws wait for it."""
    monkeypatch.setattr(lobby_draw, "ANALYZED_MIN", 2 if is_large else 3)
    event, _ = make_lobby(entrants=2)
    close_lobby(event)
    with statements() as seen:
        draw_all()
    assert {"analyze_drawn_numbers", "refresh_entries"} & set(seen) == (
        {"analyze_drawn_numbers", "refresh_entries"} if is_large else set()
    )


def test_without_its_draw_a_lobby_does_not_close() -> None:
    event, _ = make_lobby(entrants=1)
    Draw.objects.all().delete()
    event = backdate_sale_start(event)
    with pytest.raises(RuntimeError, match="no draw"):
        admission.tick(event.id, EPOCH)
    assert room_of(event).state == "lobby"


# --- the order -------------------------------------------------------------------------------------------------------


def recompute_order(event: Any, ids: dict[UUID, bytes]) -> list[UUID]:
    """Return the order, computed from the published data and the entrants' own ids and nonces alone: a second
    implementation, which shares no line with the first."""
    draw = draw_of(event)
    stated = json.loads(draw.statement)
    assert hashlib.sha256(bytes(draw.secret)).hexdigest() == stated["secret_sha256"]
    by_leaf = {hashlib.sha256(entry_id.bytes + nonce).digest(): entry_id for entry_id, nonce in ids.items()}
    digest = hashlib.new("sha256")
    for leaf in sorted(by_leaf):
        digest.update(leaf)
    assert digest.digest() == bytes(draw.digest)
    seed = hashlib.new("sha256", bytes(draw.secret) + digest.digest() + bytes(draw.beacon_value or b"")).digest()
    assert seed == bytes(draw.seed)
    ranked = []
    for leaf, entry_id in by_leaf.items():
        key = hashlib.new("sha256", seed)
        key.update(leaf)
        ranked.append((key.hexdigest(), leaf.hex(), entry_id))
    return [entry_id for _, _, entry_id in sorted(ranked)]


@given(data=st.data())
@settings(max_examples=examples(8))
def test_the_order_can_be_recomputed_from_the_published_data(data: st.DataObject) -> None:
    """For any lobby: entries that leave before the closing, between it and the draw, and after it stay as holes."""
    slug = f"concert-{Event.objects.count()}"
    count = data.draw(st.integers(1, 9))
    event, entries = make_lobby(slug, count, venue=slug)
    chunk = data.draw(st.integers(1, 4))
    leavers = data.draw(st.lists(st.sampled_from(entries), unique=True, max_size=3))
    moments = [data.draw(st.sampled_from(["lobby", "closed", "numbered"])) for _ in leavers]

    def leave_at(moment: str) -> None:
        for entry, when in zip(leavers, moments, strict=True):
            if when == moment:
                positions.leave(event, facade.Caller(entry_id=entry.id))

    leave_at("lobby")
    event = close_lobby(event)
    leave_at("closed")
    late = [join(event) for _ in range(data.draw(st.integers(0, 2)))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lobby_draw, "CHUNK", chunk)
        draw_all()
    leave_at("numbered")
    nonces = {
        entry.pk: bytes(entry.nonce) for entry in QueueEntry.objects.filter(pk__in=[entry.id for entry in entries])
    }
    order = recompute_order(event, nonces)
    assert [entry_id for entry_id, _ in sorted(drawn_numbers(event).items(), key=lambda item: item[1])] == order
    assert entry_numbers(event) == drawn_numbers(event)
    assert sorted(drawn_numbers(event).values()) == list(range(1, count + 1))
    assert [row(entry).number for entry in late] == list(range(count + 1, count + 1 + len(late)))
    assert {row(entry).status for entry in leavers} <= {"left"}
    assert_audit_clean()


@pytest.mark.parametrize(
    ("size", "seconds", "then"),
    [(2_000, 4.4, 1_000), (2_000, 0.01, 2_000), (1_000, 0.1, 1_000), (1_000, 0.04, 2_000), (250, 4.4, 250)],
)
def test_a_slow_chunk_is_followed_by_a_smaller_one(size: int, seconds: float, then: int) -> None:
    assert lobby_draw.next_chunk(size, seconds) == then


def test_control_numbers_cannot_be_permuted_in_place() -> None:
    """The naive draw: every entry has its number of arrival, and one UPDATE permutes the numbers."""
    event, _ = make_lobby(entrants=5)
    arrived = list(QueueEntry.objects.order_by("joined_at", "id"))
    for number, entry in enumerate(arrived, 1):
        QueueEntry.objects.filter(pk=entry.pk).update(number=number)
    with connection.cursor() as cursor, pytest.raises(Exception, match="queue_entry_number_once_per_event"):
        cursor.execute("UPDATE queue_queueentry SET number = 6 - number WHERE event_id = %s", [event.id])


def test_an_entry_that_left_in_the_lobby_keeps_a_hole_that_the_queue_skips() -> None:
    event, entries = make_lobby(entrants=4, active=2)
    event = close_lobby(event)
    left = entries[0]
    positions.leave(event, facade.Caller(entry_id=left.id))
    operations.remove(entries[1].id, who="staff", why="twice here")
    draw_all()
    assert sorted(entry_numbers(event).values()) == [1, 2, 3, 4]
    assert row(left).status == row(entries[1]).status == "left"
    assert tick(event) == 2
    assert {row(entries[2]).status, row(entries[3]).status} == {"ready"}
    assert_audit_clean()


def status_of(event: Any, entry: facade.EntryView) -> dict[str, Any]:
    """Return the API's response to the lobby's token."""
    cache.clear_all()
    token = issue_queue_token(entry.id, event.slug, None)
    response = Client().get(
        reverse("queue_api_status", args=[event.slug]), headers={"Authorization": f"Bearer {token}"}
    )
    assert response.status_code == 200, response.content
    return dict(response.json())


def test_a_lobby_token_gets_its_number_as_soon_as_it_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the draw and the chunk with its entry the row has no number yet, but the response has."""
    event, entries = make_lobby(entrants=4, rate=1, active=1)
    document = status_of(event, entries[0])
    assert (document["status"], document["position_in_queue"]) == ("lobby", None)
    event = close_lobby(event)
    document = status_of(event, entries[0])
    assert (document["status"], document["position_in_queue"]) == ("lobby", None)
    drawer = lobby_draw.DrawWorker(database_url())
    try:
        while draw_of(event).drawn_at is None:
            assert drawer.run_once()
    finally:
        drawer.close()
    assert set(entry_numbers(event).values()) == {None}
    for entry in entries:
        document = status_of(event, entry)
        assert (document["status"], document["position_in_queue"]) == ("waiting", drawn_numbers(event)[entry.id])
    draw_all()
    for entry in entries:
        assert status_of(event, entry)["position_in_queue"] == drawn_numbers(event)[entry.id]


def test_the_auditor_finds_a_number_that_was_not_drawn() -> None:
    event, entries = make_lobby(entrants=2)
    assert_audit_clean()
    event = close_lobby(event)
    assert_audit_clean()
    draw_all()
    assert_audit_clean()
    one, other = (row(entry) for entry in entries)
    QueueEntry.objects.filter(pk=one.pk).update(number=None)
    assert audit_breaches() == [f"I9: concert: number {one.number} was drawn, the entry has none"]
    QueueEntry.objects.filter(pk=other.pk).update(number=one.number)
    QueueEntry.objects.filter(pk=one.pk).update(number=other.number)
    assert audit_breaches() == [
        "I9: concert: number 1 was drawn, the entry has number 2",
        "I9: concert: number 2 was drawn, the entry has number 1",
    ]


# --- rooms in other states while it is drawn -------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["paused", "drained", "off"])
def test_the_draw_continues_in_any_state_of_the_room(state: str) -> None:
    event, entries = make_lobby(entrants=3)
    event = close_lobby(event)
    operations.set_state(event.id, state, who="staff")
    draw_all()
    assert entry_numbers(event) == drawn_numbers(event)
    assert room_of(event).state == state
    assert room_of(event).numbered_through is None
    if state == "off":
        assert tick(event) == 3
        assert {row(entry).status for entry in entries} == {"ready"}
    else:
        assert tick(event) == 0
        operations.set_state(event.id, "open", who="staff")
        assert tick(event) == 3
    assert_audit_clean()


def test_an_event_canceled_during_its_draw_gets_its_order_too() -> None:
    event, _ = make_lobby(entrants=3)
    event = close_lobby(event)
    Event.objects.update(status="canceled")
    draw_all()
    assert entry_numbers(event) == drawn_numbers(event)
    assert draw_of(event).numbered_at is not None


def test_manually_changed_entrants_are_not_drawn(caplog: pytest.LogCaptureFixture) -> None:
    event, entries = make_lobby(entrants=3)
    fine, _ = make_lobby("fine", entrants=2, venue="B")
    event, fine = close_lobby(event), close_lobby(fine)
    QueueEntry.objects.filter(pk=entries[0].id).delete()
    drawer = lobby_draw.DrawWorker(database_url())
    try:
        for _ in range(9):
            drawer.run_once()
    finally:
        drawer.close()
    assert draw_of(event).digest is None
    assert "2 entrants, the room has counted 3" in caplog.text
    assert draw_of(fine).numbered_at is not None


# --- the command -----------------------------------------------------------------------------------------------------


def reveal(*args: str, capsys: Any) -> str:
    call_command("reveal_draw", *args)
    return str(capsys.readouterr().out)


def test_without_a_gatekeeper_the_draw_can_be_made_by_hand(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.DATABASE_DIRECT_URL = database_url()
    event, _ = make_lobby(entrants=3)
    with pytest.raises(CommandError, match="has not closed yet"):
        reveal(event.slug, capsys=capsys)
    event = close_lobby(event)
    output = reveal(event.slug, capsys=capsys)
    assert output == "concert: all entrants of the lobby have a number; consistent, not operator-proof\n"
    assert reveal(event.slug, capsys=capsys) == output
    with pytest.raises(CommandError, match="names no beacon"):
        reveal(event.slug, "--beacon", "00" * 48, capsys=capsys)
    with pytest.raises(CommandError, match="there is no published event"):
        reveal("nowhere", capsys=capsys)
    make_room("plain", venue="B")
    with pytest.raises(CommandError, match="plain has no lobby"):
        reveal("plain", capsys=capsys)
    assert acts() == [
        acts()[0],
        "lobby closed: 3 entrants",
        f"entrants' digest {bytes(draw_of(event).digest).hex()}",
        "secret revealed, no beacon was named",
        "numbered: 3 entrants",
        "beacon signature",
    ]
    assert RoomAct.objects.exclude(refusal="").get().refusal == "the commitment names no beacon: a value would break it"


def test_the_published_rule_is_the_implemented_one() -> None:
    for words in ("sorted", "seed = SHA-256(secret, digest, beacon value", "numbered from 1"):
        assert words in lobby.RULE
    assert AdmissionBatch.objects.count() == 0
