"""The proof verifies for every honest room, and detects every tampering with stored data."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models import F

from apps.events.facade import EventView
from apps.kernel import clock
from apps.queue import proofs
from apps.queue.fairness import published, verification
from apps.queue.models import Draw, QueueEntry, WaitingRoom
from tests.support.queue.proven_rooms import (
    BEACON,
    close_lobby,
    draw_numbers,
    drawn_room,
    entries_of,
    join_entries,
    leaf_of,
    new_entry,
    open_lobby,
    record_admissions,
    reveal,
    verification_error,
)
from tests.support.queue.rooms import make_room

pytestmark = pytest.mark.django_db


def tamper(statement: str, *values: Any) -> None:
    """Change the data as an attacker with the database's password could."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


@pytest.fixture
def room() -> EventView:
    """Numbers 1 to 8, first come, first served."""
    event = make_room("concert")
    join_entries(event, 8)
    record_admissions(event)
    return event


@pytest.fixture
def drawn() -> EventView:
    """Numbers 1 to 6 drawn, 7 to 10 first come, first served."""
    return drawn_room()


@pytest.fixture(params=[3, 10_000], ids=["many pages", "one page"])
def _page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEAVES_PER_PAGE", "ENTRANTS_PAGE", "LIST_PAGE"):
        monkeypatch.setattr(published, name, request.param)


# --- rooms that verify -----------------------------------------------------------------------------------------------
def test_an_empty_room_verifies() -> None:
    make_room("concert")
    assert verification_error("concert") == ""


@pytest.mark.usefixtures("_page")
def test_a_first_come_queue_verifies(room: EventView, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("verify_queue", "concert")
    output = capsys.readouterr().out
    assert "First come: 8 numbers, 1 to 8, without a gap" in output
    assert "ahead of their turn: 1 (3)" in output
    assert "All published data is consistent." in output


@pytest.mark.usefixtures("_page")
def test_a_drawn_lobby_verifies_at_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    event = make_room("concert")
    output = []

    def verify_now() -> None:
        call_command("verify_queue", "concert")
        output.append(capsys.readouterr().out)

    open_lobby(event, 7)
    verify_now()
    Draw.objects.update(frozen_at=published.read_header(event.id).at)
    verify_now()
    close_lobby(event)
    join_entries(event, 4)
    verify_now()
    reveal(event)
    verify_now()
    draw_numbers(event, write_them=False)
    verify_now()
    Draw.objects.update(drawn_at=None)
    connection.cursor().execute("DELETE FROM queue_drawnplace")
    draw_numbers(event)
    join_entries(event, 1)
    verify_now()
    assert [
        re.findall(r"Lobby: open|digest is not published|published digest;|not drawn yet|Draw:", one) for one in output
    ] == [
        ["Lobby: open"],
        ["digest is not published"],
        ["published digest;"],
        ["not drawn yet"],
        ["Draw:"],
        ["Draw:"],
    ]
    assert all("Consistent, not operator-proof" in one for one in output)
    assert "First come: 5 numbers, 8 to 12" in output[-1]


def test_an_outside_beacon_makes_it_operator_proof(capsys: pytest.CaptureFixture[str]) -> None:
    drawn_room(beacon=True)
    call_command("verify_queue", "concert")
    output = capsys.readouterr().out
    assert "Operator-proof" in output
    assert "is not one of drand's public networks" in output
    assert "not operator-proof" not in output


def test_pages_fetched_while_others_join_verify_too(room: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "LEAVES_PER_PAGE", 2)
    monkeypatch.setattr(published, "LIST_PAGE", 1)
    cursors: list[int] = []

    def fetch(part: str, after: int) -> dict[str, Any]:
        join_entries(room, 1)
        record_admissions(room)
        cursors.append(after)
        return published.page(room, part, after).body

    verified = verification.verify(published.document(room), fetch)
    assert isinstance(verified, verification.Verified), verified
    assert (verified.next_number, verified.admissions_count) == (9, 2)
    assert cursors[:3] == [2, 4, 6]


def test_while_a_lobby_is_being_numbered_its_leaves_are_published_already() -> None:
    event = make_room("concert")
    open_lobby(event, 5)
    close_lobby(event)
    assert published.document(event)["places"] == {"from": 6, "leaves": [], "next": None}
    reveal(event)
    draw_numbers(event, write_them=False)
    before = published.document(event)["places"]
    connection.cursor().execute("DELETE FROM queue_drawnplace")
    draw_numbers(event)
    assert published.document(event)["places"] == before
    assert [entry.hex() for entry in map(leaf_of, entries_of(event))] == before["leaves"]


# --- tampered rooms --------------------------------------------------------------------------------------------------
def swap(one: int, other: int) -> None:
    tamper("UPDATE queue_queueentry SET number = 1000000 WHERE number = %s", one)
    tamper("UPDATE queue_queueentry SET number = %s WHERE number = %s", one, other)
    tamper("UPDATE queue_queueentry SET number = %s WHERE number = 1000000", other)


def add(number: int | None, *, in_lobby: bool = False) -> None:
    new_entry(EVENT[0], number, in_lobby=in_lobby).save()


EVENT: list[EventView] = []

FIRST_COME: list[tuple[str, Callable[[], None], str]] = [
    (
        "another nonce",
        lambda: tamper("UPDATE queue_queueentry SET nonce = %s WHERE number = 5", b"x" * 16),
        "the chain over numbers 1 to 8 ends in",
    ),
    (
        "another id",
        lambda: tamper("UPDATE queue_queueentry SET id = gen_random_uuid() WHERE number = 8"),
        "the chain over numbers 1 to 8 ends in",
    ),
    (
        "an entry dropped",
        lambda: tamper("DELETE FROM queue_queueentry WHERE number = 5"),
        "number 5: there is no entry",
    ),
    (
        "the last entry dropped",
        lambda: tamper("DELETE FROM queue_queueentry WHERE number = 8"),
        "number 8: there is no entry",
    ),
    ("an entry added", lambda: add(9), "number 9: an entry has this number, but the next number is 9"),
    (
        "an entry added and the room updated",
        lambda: (add(9), tamper("UPDATE queue_waitingroom SET next_number = 10")),  # type: ignore[func-returns-value]
        "the chain over numbers 1 to 9 ends in",
    ),
    ("two numbers swapped", lambda: swap(2, 7), "the chain over numbers 1 to 8 ends in"),
    (
        "another chain head",
        lambda: tamper("UPDATE queue_waitingroom SET chain_head = %s", b"h" * 32),
        "one of these numbers or the chain head was changed",
    ),
    (
        "no chain head",
        lambda: tamper("UPDATE queue_waitingroom SET chain_head = ''"),
        "but nothing is published",
    ),
    (
        "numbers removed",
        lambda: tamper("UPDATE queue_waitingroom SET next_number = 7"),
        "the chain over numbers 1 to 6 ends in",
    ),
    ("a head ahead of the line", lambda: tamper("UPDATE queue_admissionbatch SET to_number = 5"), "the head is at 1"),
    (
        "an entry made one of the lobby",
        lambda: tamper("UPDATE queue_queueentry SET in_lobby = true WHERE number = 5"),
        "1 entries joined in the lobby, but the room counts 0",
    ),
    ("a lobby without a draw", lambda: tamper("UPDATE queue_waitingroom SET lobby_count = 2"), "without a draw"),
    (
        "an invalid mark",
        lambda: tamper("UPDATE queue_queueentry SET marked = 'x' WHERE number = 4"),
        "number 4: marked",
    ),
    (
        "an entry admitted ahead of the turn",
        lambda: tamper(
            "UPDATE queue_queueentry SET status = 'ready', ready_at = now(), claim_expires_at = now() WHERE number = 7"
        ),
        "number 7: its entry is ready with the head at 1, and is not marked",
    ),
    (
        "an entry passed over",
        lambda: tamper("UPDATE queue_waitingroom SET head = 2"),
        "number 2: its entry is waiting with the head at 2",
    ),
]


@pytest.mark.usefixtures("_page")
@pytest.mark.parametrize(("change", "output"), [case[1:] for case in FIRST_COME], ids=[case[0] for case in FIRST_COME])
def test_tampering_with_a_first_come_number_is_detected(
    room: EventView, change: Callable[[], None], output: str
) -> None:
    EVENT[:] = [room]
    assert verification_error("concert") == ""
    change()
    assert output in verification_error("concert")


DRAWN: list[tuple[str, Callable[[], None], str]] = [
    (
        "another nonce",
        lambda: tamper("UPDATE queue_queueentry SET nonce = %s WHERE number = 5", b"x" * 16),
        "the digest over the 6 drawn leaves is",
    ),
    (
        "another id",
        lambda: (
            tamper("UPDATE queue_queueentry SET id = %s WHERE number = 5", "0" * 32),  # type: ignore[func-returns-value]
            tamper("UPDATE queue_drawnplace SET entry_id = %s WHERE number = 5", "0" * 32),  # type: ignore[func-returns-value]
        ),
        "the digest over the 6 drawn leaves is",
    ),
    (
        "an entrant dropped",
        lambda: tamper("DELETE FROM queue_queueentry WHERE number = 5"),
        "number 5: there is no entry",
    ),
    ("an entrant added", lambda: add(None, in_lobby=True), "7 entries joined in the lobby, but the room counts 6"),
    (
        "an entrant added and counted",
        lambda: (
            add(None, in_lobby=True),
            tamper("UPDATE queue_waitingroom SET lobby_count = 7"),  # type: ignore[func-returns-value]
        ),
        "the digest over the 7 drawn leaves is",
    ),
    ("two numbers swapped", lambda: swap(2, 5), "number 2: the seed draws leaf"),
    ("neighbors swapped", lambda: swap(5, 6), "number 5: the seed draws leaf"),
    (
        "a drawn number given to a late arrival",
        lambda: swap(6, 7),
        "the digest over the 6 drawn leaves is",
    ),
    (
        "another order in the draw alone",
        lambda: (
            tamper("UPDATE queue_drawnplace SET number = number + 100 WHERE number IN (1, 2)"),  # type: ignore[func-returns-value]
            tamper("UPDATE queue_drawnplace SET number = 103 - number WHERE number > 100"),  # type: ignore[func-returns-value]
        ),
        "number 1: its entry is not the one that drew it",
    ),
    (
        "a drawn number dropped",
        lambda: tamper("DELETE FROM queue_drawnplace WHERE number = 6"),
        "5 numbers were drawn for 6",
    ),
    ("another seed", lambda: tamper("UPDATE queue_draw SET seed = %s", b"e" * 32), "the seed is"),
    ("another digest", lambda: tamper("UPDATE queue_draw SET digest = %s", b"d" * 32), "the seed is"),
    (
        "another secret",
        lambda: tamper("UPDATE queue_draw SET secret = %s", b"t" * 32),
        "the revealed secret is not the one",
    ),
    (
        "another commitment",
        lambda: tamper("UPDATE queue_draw SET commitment = %s", b"c" * 32),
        "the commitment is not the SHA-256 of the statement",
    ),
    (
        "another statement",
        lambda: tamper("UPDATE queue_draw SET statement = replace(statement, 'sort', 'like')"),
        "the commitment is not the SHA-256 of the statement",
    ),
    (
        "a beacon that was not promised",
        lambda: tamper("UPDATE queue_draw SET beacon_value = %s, is_operator_proof = true", b"v" * 32),
        "a beacon value was mixed in without a commitment to a beacon",
    ),
    (
        "a claim without a beacon",
        lambda: tamper("UPDATE queue_draw SET is_operator_proof = true"),
        "claims an outside beacon, but no value",
    ),
    (
        "a digest after the reveal",
        lambda: tamper("UPDATE queue_draw SET digest_at = drawn_at"),
        "is before digest_at",
    ),
    ("fewer entrants", lambda: tamper("UPDATE queue_waitingroom SET lobby_count = 5"), "the digest over the 5 drawn"),
]


@pytest.mark.usefixtures("_page")
@pytest.mark.parametrize(("change", "output"), [case[1:] for case in DRAWN], ids=[case[0] for case in DRAWN])
def test_tampering_with_a_drawn_number_is_detected(drawn: EventView, change: Callable[[], None], output: str) -> None:
    EVENT[:] = [drawn]
    assert verification_error("concert") == ""
    change()
    assert output in verification_error("concert")


@pytest.mark.usefixtures("_page")
@pytest.mark.parametrize(
    ("change", "output"),
    [
        (lambda: tamper("UPDATE queue_queueentry SET nonce = %s WHERE number IS NULL", b"x" * 16), "digest over the 6"),
        (lambda: add(None, in_lobby=True), "more than 6 entrants are published"),
        (
            lambda: tamper(
                "DELETE FROM queue_queueentry WHERE id = (SELECT id FROM queue_queueentry WHERE number IS NULL LIMIT 1)"
            ),
            "5 entrants of 6 are published",
        ),
        (lambda: tamper("UPDATE queue_draw SET digest = %s", b"d" * 32), "digest over the 6 published entrants"),
    ],
    ids=["changed", "added", "dropped", "another digest"],
)
def test_changing_an_entrant_between_digest_and_draw_is_detected(change: Callable[[], None], output: str) -> None:
    event = make_room("concert")
    EVENT[:] = [event]
    open_lobby(event, 6)
    close_lobby(event)
    assert verification_error("concert") == ""
    change()
    assert output in verification_error("concert")


@pytest.mark.parametrize(("seconds", "output"), [(0, ""), (60, "without the promised beacon before its deadline")])
def test_a_promised_beacon_may_be_missing_only_after_its_deadline(seconds: int, output: str) -> None:
    event = make_room("concert")
    open_lobby(event, 3, beacon="https://beacon.example", reveal_in_seconds=seconds)
    close_lobby(event)
    assert verification_error("concert") == ""
    reveal(event)
    assert output in verification_error("concert")
    assert bool(output) == bool(verification_error("concert"))
    Draw.objects.update(reveal_by=F("reveal_by") - timedelta(seconds=120))
    assert "the secret was to be revealed by" in verification_error("concert")


def test_a_beacon_published_before_the_entrants_were_fixed_proves_nothing() -> None:
    event = make_room("concert")
    open_lobby(event, 3, beacon="https://beacon.example", beacon_at=clock.iso(clock.now() + timedelta(hours=1)))
    close_lobby(event)
    reveal(event, BEACON)
    assert verification_error("concert") == ""
    Draw.objects.update(
        digest_at=F("digest_at") + timedelta(hours=2), revealed_at=F("revealed_at") + timedelta(hours=3)
    )
    assert "before the entrants were fixed" in verification_error("concert")


def test_rewriting_the_whole_chain_is_detected_by_a_copy_kept_before(room: EventView, tmp_path: Any) -> None:
    """A chain that was rewritten whole is consistent with today's published data, but not with a copy kept before: the
    copy shows the changed number."""
    saved = tmp_path / "kept.json"
    call_command("verify_queue", "concert", save=saved, verbosity=0)
    join_entries(room, 3)
    assert verification_error("concert", "--earlier", str(saved)) == ""
    swap(4, 9)
    chain = proofs.genesis("concert")
    for entry in entries_of(room):
        chain = proofs.link(chain, entry.number, leaf_of(entry))
    WaitingRoom.objects.update(chain_head=chain)
    assert verification_error("concert") == ""
    assert verification_error("concert", "--earlier", str(saved)).startswith("number 4: the leaf is")


@pytest.mark.usefixtures("_page")
@pytest.mark.parametrize(
    ("statement", "output"),
    [
        ("UPDATE queue_queueentry SET marked = '' WHERE number = 3", "number 3: it was marked in the earlier copy"),
        ("DELETE FROM queue_admissionbatch WHERE reason = 'marked'", "there were 2 admissions in the earlier copy"),
        ("UPDATE queue_admissionbatch SET reason = 'operator' WHERE to_number = 1", "admissions, number 1: "),
        ("UPDATE queue_roomact SET who = 'system' WHERE what = 'state'", "acts, number 1: "),
        ("DELETE FROM queue_roomact WHERE what = 'state'", "there were 2 acts in the earlier copy"),
    ],
)
def test_an_earlier_copy_detects_removed_admissions_acts_and_marks(
    room: EventView, tmp_path: Any, statement: str, output: str
) -> None:
    saved = tmp_path / "kept.json"
    call_command("verify_queue", "concert", save=saved, verbosity=0)
    tamper(statement)
    assert verification_error("concert") == ""
    assert output in verification_error("concert", "--earlier", str(saved))


def test_a_kept_document_verifies_offline(drawn: EventView, tmp_path: Any, monkeypatch: Any) -> None:
    for name in ("LEAVES_PER_PAGE", "LIST_PAGE"):
        monkeypatch.setattr(published, name, 2)
    monkeypatch.setattr(published, "ENTRANTS_PAGE", 2)
    saved = tmp_path / "kept.json"
    call_command("verify_queue", "concert", save=saved, verbosity=0)
    QueueEntry.objects.all().delete()
    assert verification_error("concert", "--file", str(saved)) == ""
    assert "is not of event" in verification_error("another", "--file", str(saved))
    document = json.loads(saved.read_text())
    assert all(document[part]["next"] is None for part in published.PARTS)
    assert len(document["entrants"]["items"]) == 6


def test_a_kept_document_with_a_leaf_after_its_last_number_is_refused(drawn: EventView, tmp_path: Any) -> None:
    saved = tmp_path / "kept.json"
    call_command("verify_queue", "concert", save=saved, verbosity=0)
    whole = saved.read_text()
    saved.write_text(whole.replace('"next_number":11', '"next_number":10'))
    output = verification_error("concert", "--file", str(saved))
    assert output == "number 10: a leaf is published after the last number of the document"
    document = json.loads(whole)
    document["places"]["leaves"].append("00" * 32)
    saved.write_text(json.dumps(document))
    assert verification_error("concert", "--file", str(saved)).startswith("number 11: a leaf is published after")


@pytest.mark.parametrize("part", published.PARTS)
def test_a_file_with_a_part_that_does_not_state_its_end_is_refused(drawn: EventView, tmp_path: Any, part: str) -> None:
    saved = tmp_path / "kept.json"
    call_command("verify_queue", "concert", save=saved, verbosity=0)
    document = json.loads(saved.read_text())
    document[part]["next"] = 4
    saved.write_text(json.dumps(document))
    assert verification_error("concert", "--file", str(saved)) == f"{part}.next is 4: this is not a whole document"
    del document[part]["next"]
    saved.write_text(json.dumps(document))
    output = verification_error("concert", "--file", str(saved))
    assert output == f"{part}.next is missing: in a whole document it is null"


def test_a_document_saved_while_others_join_ends_where_it_states(
    room: EventView, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page but the first is read after another join, so that the last page has leaves after the document's
    end."""
    monkeypatch.setattr(published, "LEAVES_PER_PAGE", 3)
    page = published.page

    def page_after_a_join(*args: Any) -> published.Page:
        join_entries(room, 1)
        return page(*args)

    monkeypatch.setattr(published, "page", page_after_a_join)
    document = published.document(room)
    seen: dict[str, list[Any]] = {}

    def fetch(part: str, after: int) -> Any:
        seen.setdefault(part, []).append(published.page(room, part, after).body)
        return seen[part][-1]

    assert isinstance(verification.verify(document, fetch), verification.Verified)
    whole = published.merge_pages(document, seen)
    assert (
        len(whole["places"]["leaves"]) == 8 < sum(len(one["leaves"]) for one in (document["places"], *seen["places"]))
    )
    saved = tmp_path / "kept.json"
    saved.write_text(json.dumps(whole))
    assert verification_error("concert", "--file", str(saved)) == ""


# --- untrusted input -------------------------------------------------------------------------------------------------
def everything_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, (dict, list)):
        for name in value if isinstance(value, dict) else range(len(value)):
            yield from everything_in(value[name], (*path, name))


def with_other(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = with_other(document[path[0]], path[1:], value)
    return copy


@pytest.mark.parametrize("junk", [None, True, -1, 10**40, 0.5, "", "zz", "ab", [], {}, [None], "é", "00" * 32])
def test_invalid_data_anywhere_is_a_mismatch_or_harmless_and_never_an_error(drawn: EventView, junk: Any) -> None:
    document = published.document(drawn)

    def fetch(part: str, after: int) -> Any:
        return junk

    for path in everything_in(document):
        outcome = verification.verify(with_other(document, path, junk), fetch)
        assert isinstance(outcome, (verification.Verified, verification.Mismatch)), path


def test_pages_that_lead_in_circles_end(room: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "LEAVES_PER_PAGE", 2)
    monkeypatch.setattr(published, "LIST_PAGE", 1)
    document = published.document(room)
    first_page = {"event": "concert", **document["places"]}
    assert isinstance(verification.verify(document, lambda part, after: first_page), verification.Mismatch)
    endless = {"event": "concert", "items": [], "next": 1}
    whole = {**document, "marked": endless}
    outcome = verification.verify(
        whole, lambda part, after: published.page(room, part, after).body if part == "places" else endless
    )
    assert "circles" in str(outcome)
