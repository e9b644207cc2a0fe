"""The proof over HTTP: paged, cacheable and anonymous; and the page that explains it."""

import json
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.events.facade import EventView
from apps.queue.fairness import published
from apps.queue.models import Draw, QueueEntry, RoomAct
from tests.support.factories import join
from tests.support.queue.proven_rooms import (
    SECRET,
    close_lobby,
    draw_numbers,
    drawn_room,
    entries_of,
    join_entries,
    leaf_of,
    open_lobby,
    record_admissions,
    reveal,
    verification_error,
)
from tests.support.queue.rooms import make_room

pytestmark = pytest.mark.django_db
PROOF = "/api/events/concert/queue/proof"


@pytest.fixture
def room() -> EventView:
    event = make_room("concert")
    join_entries(event, 8)
    record_admissions(event)
    return event


def all_pages(client: Client, address: str = PROOF) -> str:
    """Return all published data of the proof, page by page."""
    first = client.get(address)
    assert first.status_code == 200
    text = [first.content.decode()]
    for part in published.PARTS:
        after: int | None = 0
        while after is not None:
            response = client.get(address, {"part": part, "after": after})
            text.append(response.content.decode())
            after = response.json().get("next")
    return "".join(text)


def test_the_proof_of_a_small_room_is_one_response(client: Client, room: EventView) -> None:
    proof = client.get(PROOF).json()
    assert proof["places"] == {"from": 1, "leaves": [leaf_of(entry).hex() for entry in entries_of(room)], "next": None}
    assert proof["room"]["next_number"] == 9
    assert proof["draw"] is None
    assert proof["marked"]["items"] == [{"number": 3, "by": "vip"}]
    assert [item["reason"] for item in proof["admissions"]["items"]] == ["tick", "marked"]
    assert [(item["by"], item["what"], item["detail"]) for item in proof["acts"]["items"]] == [
        ("operator", "state", "open → paused"),
        ("operator", "vip link", ""),
    ]


def test_the_proof_identifies_no_visitor(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It contains neither visitors nor accounts, neither ids nor nonces, neither operators nor their reasons."""
    monkeypatch.setattr(published, "LEAVES_PER_PAGE", 3)
    event = drawn_room(lobby=4, late=3)
    account = get_user_model().objects.create_user("ada@example.org", email="ada@example.org", password="x" * 12)
    join(event, account_id=account.pk)
    RoomAct.objects.create(
        event_id=event.id, at=Draw.objects.get().committed_at, who="system", what="draw", detail="drawn", why="its time"
    )
    text = all_pages(client) + client.get("/events/concert/fairness").content.decode()
    forbidden = ["ada.", "lovelace", "printer", "a friend", "its time", "Grace Hopper", "@"]
    for entry in entries_of(event):
        forbidden += [str(entry.pk), entry.pk.hex, bytes(entry.nonce).hex()] + (
            [entry.visitor_id] * bool(entry.visitor_id)
        )
    for word in forbidden:
        assert word not in text, word


def test_the_secret_is_published_nowhere_before_it_is_revealed(client: Client) -> None:
    event = make_room("concert")
    open_lobby(event, 4)
    for act in (lambda: None, lambda: close_lobby(event)):
        act()
        Draw.objects.update(beacon_value=b"b" * 32, seed=b"e" * 32)
        text = all_pages(client) + client.get("/events/concert/fairness").content.decode()
        for secret in (SECRET, b"b" * 32, b"e" * 32):
            assert secret.hex() not in text
    reveal(event)
    assert SECRET.hex() in all_pages(client)


def test_entrants_are_published_with_the_digest(client: Client) -> None:
    event = make_room("concert")
    lobby = open_lobby(event, 4)
    assert client.get(PROOF).json()["entrants"] is None
    assert client.get(PROOF, {"part": "entrants"}).json()["type"] == "not-found"
    close_lobby(event)
    leaves = sorted(leaf_of(entry).hex() for entry in lobby)
    assert client.get(PROOF).json()["entrants"] == {"items": leaves, "next": None}


def test_entrants_of_many_pages_are_each_listed_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "ENTRANTS_PAGE", 2)
    event = make_room("concert")
    lobby = open_lobby(event, 30)
    close_lobby(event)
    page = client.get(PROOF).json()["entrants"]
    items = list(page["items"])
    while page["next"] is not None:
        page = client.get(PROOF, {"part": "entrants", "after": page["next"]}).json()
        items += page["items"]
    assert sorted(items) == sorted(leaf_of(entry).hex() for entry in lobby)
    assert client.get(PROOF, {"part": "entrants", "after": 10**14}).json()["items"] == []


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"after": "-1"}, "after"),
        ({"after": "x"}, "after"),
        ({"after": ""}, "after"),
        ({"after": "1.5"}, "after"),
        ({"after": "٣"}, "after"),
        ({"after": "\0"}, "after"),
        ({"after": "9" * 16}, "after"),
        ({"after": "9" * 5000}, "after"),
        ({"part": "secrets"}, "part"),
        ({"part": ""}, "part"),
        ({"page": "2"}, "page"),
    ],
)
def test_an_invalid_page_is_refused_by_name(client: Client, room: EventView, query: dict[str, str], named: str) -> None:
    response = client.get(PROOF, query)
    assert response.status_code == 422
    assert response.headers["Content-Type"] == "application/problem+json"
    assert list(response.json()["errors"]) == [named]


def test_a_page_past_the_end_is_empty_and_no_error(client: Client, room: EventView) -> None:
    for after in (8, 9, 10**14):
        page = client.get(PROOF, {"after": after}).json()
        assert (page["leaves"], page["next"]) == ([], None)
    assert client.get("/api/events/nothing/queue/proof").json()["type"] == "not-found"


def test_pages_are_bounded_and_immutable_pages_may_be_cached(
    client: Client, room: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "LEAVES_PER_PAGE", 3)
    full, last = client.get(PROOF, {"after": 3}), client.get(PROOF, {"after": 6})
    assert (full.json()["from"], len(full.json()["leaves"]), full.json()["next"]) == (4, 3, 6)
    assert "immutable" in full.headers["Cache-Control"]
    assert (last.json()["from"], len(last.json()["leaves"]), last.json()["next"]) == (7, 2, None)
    assert last.headers["Cache-Control"] == "public, max-age=2"
    again = client.get(PROOF, {"after": 3}, headers={"If-None-Match": full.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    join_entries(room, 1)
    assert client.get(PROOF, {"after": 3}).content == full.content
    assert client.get(PROOF, {"after": 6}).headers["ETag"] != last.headers["ETag"]


def test_the_documents_etag_changes_with_the_queue_and_not_with_the_clock(client: Client, room: EventView) -> None:
    first, second = client.get(PROOF), client.get(PROOF)
    assert first.headers["ETag"] == second.headers["ETag"]
    join_entries(room, 1)
    assert client.get(PROOF).headers["ETag"] != first.headers["ETag"]


def test_a_page_from_before_the_draw_is_not_cached_past_it(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "LEAVES_PER_PAGE", 2)
    event = make_room("concert")
    open_lobby(event, 4)
    close_lobby(event)
    join_entries(event, 4)
    before = client.get(PROOF, {"after": 0})
    assert (before.json()["from"], before.headers["Cache-Control"]) == (5, "public, max-age=2")
    reveal(event)
    draw_numbers(event)
    assert client.get(PROOF, {"after": 0}).json()["from"] == 1


def test_a_page_takes_the_same_few_queries_for_any_length_of_the_queue(client: Client, room: EventView) -> None:
    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            client.get(PROOF)
        return len(queries)

    before = count()
    join_entries(room, 200)
    assert count() == before


@pytest.mark.django_db(transaction=True)
def test_the_command_verifies_the_public_data_over_http(
    live_site: str, room: EventView, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("LEAVES_PER_PAGE", "LIST_PAGE"):
        monkeypatch.setattr(published, name, 3)
    saved = tmp_path / "kept.json"
    call_command("verify_queue", "concert", url=live_site, save=saved, verbosity=0)
    assert json.loads(saved.read_text())["places"]["leaves"] == [leaf_of(entry).hex() for entry in entries_of(room)]
    QueueEntry.objects.filter(number=5).delete()
    assert verification_error("concert", "--url", live_site) == "number 5: there is no entry"
    assert "returned status 404" in verification_error("nothing", "--url", live_site)
    assert "not an http or https URL" in verification_error("concert", "--url", "file:///etc")
    assert "cannot be read" in verification_error("concert", "--url", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"", "not JSON"), (b"\xff", "not JSON"), (b"[1]", "not of event"), (b"[" * 10**5, "not JSON")],
)
def test_a_file_that_is_no_proof_is_refused_with_an_explanation(
    room: EventView, tmp_path: Path, content: bytes, text: str
) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content)
    assert text in verification_error("concert", "--file", str(file))
    assert "cannot be read" in verification_error("concert", "--file", str(tmp_path / "nothing"))
    assert "There is no such event" in verification_error("nothing")


# --- the page --------------------------------------------------------------------------------------------------------
def page_of(client: Client) -> str:
    response = client.get("/events/concert/fairness")
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def test_the_page_shows_what_was_promised_and_what_was_drawn(client: Client) -> None:
    event = make_room("concert")
    assert "No one has joined yet." in page_of(client)
    open_lobby(event, 4)
    draw = Draw.objects.get()
    text = page_of(client)
    assert bytes(draw.commitment).hex() in text
    assert "The lobby is open, with <strong>4</strong>" in text
    assert "Consistent, not operator-proof." in text
    close_lobby(event)
    reveal(event)
    draw_numbers(event)
    text = page_of(client)
    assert bytes(Draw.objects.get().seed or b"").hex() in text
    assert SECRET.hex() in text
    assert "Consistent, not operator-proof." in text


def test_a_draw_with_a_beacon_is_described_as_such(client: Client) -> None:
    drawn_room(beacon=True)
    text = page_of(client)
    assert "Drawn with an outside beacon." in text
    assert "not operator-proof" not in text


def test_an_unreadable_statement_does_not_break_the_page(client: Client) -> None:
    event = make_room("concert")
    open_lobby(event, 2)
    for statement in ("", "{", "[]", "null", '{"beacon": 7}'):
        Draw.objects.update(statement=statement)
        page_of(client)
    assert client.get("/events/nothing/fairness").status_code == 404
