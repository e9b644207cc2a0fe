"""The beacon: queried for the named round, trusted only if its response is valid, and awaited no longer than
promised."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.kernel import clock
from apps.queue.lobby import beacon, lobby
from apps.queue.lobby import draw as lobby_draw
from apps.queue.models import Draw, RoomAct
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean
from tests.support.queue.lobbies import (
    close_lobby,
    commit_to_beacon,
    draw_all,
    draw_of,
    drawn_numbers,
    entry_numbers,
    make_lobby,
)

ROUND = 4_711
SIGNATURE = b"a signature of many"
VALUE = hashlib.sha256(SIGNATURE).digest()
GOOD = {"round": ROUND, "randomness": VALUE.hex(), "signature": SIGNATURE.hex()}
HOUR = timedelta(hours=1)


@dataclass
class Source:
    """A beacon that responds as the test defines, and records the requested rounds."""

    address: str
    respond: Callable[[BaseHTTPRequestHandler], None]
    requested: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


def responding_with(body: bytes | dict[str, Any], status: int = 200) -> Callable[[BaseHTTPRequestHandler], None]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)

    return respond


@pytest.fixture
def source() -> Iterator[Source]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.requested.append(self.path)
            try:
                found.respond(self)
            except OSError:
                self.close_connection = True  # The client closed the connection.

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Source(f"http://127.0.0.1:{server.server_address[1]}/chain", responding_with(GOOD))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield found
    found.over.set()
    server.shutdown()
    server.server_close()


# --- the request ------------------------------------------------------------------------------------------------------


def test_the_round_is_requested_in_the_format_of_drand(source: Source) -> None:
    assert beacon.fetch(source.address, ROUND) == VALUE
    assert source.requested == [f"/chain/public/{ROUND}"]
    source.respond = responding_with({"round": ROUND, "randomness": "AB" * 32})
    assert beacon.fetch(source.address, ROUND) == b"\xab" * 32


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 200),
        (b"<html>maintenance</html>", 200),
        (b"[" * 5_000, 200),
        (b"[]", 200),
        (b"null", 200),
        (b'"\xff"', 200),
        (GOOD, 404),
        (GOOD, 500),
        (GOOD, 301),
        (GOOD | {"round": ROUND - 1}, 200),
        (GOOD | {"round": str(ROUND)}, 200),
        (GOOD | {"round": True}, 200),
        (GOOD | {"randomness": None}, 200),
        (GOOD | {"randomness": VALUE.hex()[:-2]}, 200),
        (GOOD | {"randomness": "zz" * 32}, 200),
        (GOOD | {"randomness": "00" * 32}, 200),
        (GOOD | {"signature": "not hex"}, 200),
        (GOOD | {"signature": 7}, 200),
        (b" " * (beacon.ANSWER_BYTES_MAX + 1), 200),
        (b"x" * 3_000_000, 200),
    ],
)
def test_an_invalid_response_counts_as_none(source: Source, body: Any, status: int) -> None:
    source.respond = responding_with(body, status)
    with pytest.raises(beacon.BeaconUnavailable):
        beacon.fetch(source.address, ROUND)


@pytest.mark.parametrize("part", ["headers", "body", "nothing"])
def test_a_source_that_sends_slowly_or_not_at_all_times_out(source: Source, part: str) -> None:
    """Each byte comes long before any timeout between bytes: only the limit on the whole response ends this."""

    def send_slowly(handler: BaseHTTPRequestHandler) -> None:
        if part == "body":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n")
        elif part == "headers":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not source.over.wait(0.01):
            if part != "nothing":
                handler.wfile.write(b"x")
                handler.wfile.flush()

    source.respond = send_slowly
    with pytest.raises(beacon.BeaconUnavailable, match=r"took too long|did not respond in time"):
        beacon.fetch(source.address, ROUND, within_ms=200)


def test_a_source_that_refuses_connections_is_unavailable() -> None:
    with pytest.raises(beacon.BeaconUnavailable, match="is unavailable"):
        beacon.fetch("http://127.0.0.1:1", ROUND)


def test_the_named_round_is_published_after_the_moment(settings: Any) -> None:
    settings.QUEUE_BEACON_URL = "https://beacon.example/chain/"
    settings.QUEUE_BEACON_GENESIS = 1_692_803_367
    settings.QUEUE_BEACON_PERIOD_SECONDS = 3
    begins = datetime.fromtimestamp(1_692_803_367, UTC)
    # Round 1 was published at the genesis: a round published at that very moment is not later than it.
    for seconds, number in ((0, 2), (1, 2), (2.999, 2), (3, 3), (3_000_000, 1_000_002)):
        found = beacon.round_after(begins + timedelta(seconds=seconds))
        assert found is not None
        assert (found.number, found.source) == (number, "https://beacon.example/chain")
        assert found.at == begins + timedelta(seconds=3 * (number - 1)) > begins + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "address",
    ["ftp://beacon.example", "beacon.example", "https://", "https://user:secret@beacon.example", "https://b.example?key=1",
     "https://b.example:99999", "https://b.example/a b", "https://[b", "https://b.example/" + "x" * 300],
)  # fmt: skip
def test_a_source_with_an_invalid_address_is_found_by_the_system_check(settings: Any, address: str) -> None:
    settings.QUEUE_BEACON_URL = address
    (error,) = lobby.check_beacon()
    assert error.id == "queue.E001"
    settings.QUEUE_BEACON_URL = ""
    assert lobby.check_beacon() == []


def test_a_period_that_no_network_has_is_found_too(settings: Any) -> None:
    settings.QUEUE_BEACON_URL, settings.QUEUE_BEACON_PERIOD_SECONDS = "https://b.example", 0
    assert len(lobby.check_beacon()) == 1


# --- in a draw --------------------------------------------------------------------------------------------------------

in_database = pytest.mark.django_db(transaction=True)


@in_database
def test_a_lobby_published_with_a_source_names_its_round(settings: Any) -> None:
    settings.QUEUE_BEACON_URL = "https://beacon.example/chain"
    event, _ = make_lobby()
    draw = draw_of(event)
    named = lobby_draw.named_round(draw.statement)
    assert named is not None
    assert named == beacon.round_after(event.policy.opens_at + timedelta(seconds=lobby.BEACON_AFTER_SECONDS))
    assert event.policy.opens_at < named.at < draw.reveal_by


@in_database
def test_with_the_beacons_value_the_draw_is_operator_proof(source: Source) -> None:
    """The digest is fixed; then the round is published, and only then is anything revealed."""
    event, _ = make_lobby(entrants=3)
    commit_to_beacon(event, source.address, ROUND, clock.now() + HOUR)
    event = close_lobby(event)
    draw_all()
    waiting = draw_of(event)
    assert waiting.digest is not None
    assert (waiting.revealed_at, source.requested) == (None, [])
    publish_round(event, source)
    draw_all()
    draw = draw_of(event)
    assert bytes(draw.beacon_value) == VALUE
    assert draw.is_operator_proof is True
    assert bytes(draw.seed) == hashlib.sha256(bytes(draw.secret) + bytes(draw.digest) + VALUE).digest()
    assert entry_numbers(event) == drawn_numbers(event)
    assert len(source.requested) == 1
    assert RoomAct.objects.filter(detail=f"secret revealed, with round {ROUND}").count() == 1
    assert_audit_clean()


def publish_round(event: Any, source: Source, *, reveal_by: datetime | None = None) -> None:
    """Publish the round: after the digest, and in the past."""
    digest_at = draw_of(event).digest_at
    assert digest_at is not None
    Draw.objects.filter(pk=event.id).update(digest_at=digest_at - HOUR, frozen_at=digest_at - HOUR)
    commit_to_beacon(event, source.address, ROUND, digest_at - timedelta(minutes=1), reveal_by=reveal_by)


@in_database
def test_a_failing_source_is_retried_until_it_responds(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    event, _ = make_lobby(entrants=2)
    event = close_lobby_with_round_ahead(event, source)
    publish_round(event, source)
    source.respond = responding_with(b"busy", 503)
    drawer = lobby_draw.DrawWorker(database_url())
    try:
        assert drawer.run_once() is False
        assert drawer.run_once() is False
        assert len(source.requested) == 1  # No second request in a row: there is a pause.
        drawer._next_fetch_at.clear()
        source.respond = responding_with(GOOD)
        drawer.run_until_idle()
    finally:
        drawer.close()
    assert draw_of(event).is_operator_proof is True


def close_lobby_with_round_ahead(event: Any, source: Source) -> Any:
    commit_to_beacon(event, source.address, ROUND, clock.now() + HOUR)
    event = close_lobby(event)
    draw_all()
    return event


@in_database
def test_without_a_value_by_the_deadline_it_is_drawn_without_one_and_states_so(source: Source) -> None:
    event, _ = make_lobby(entrants=2)
    event = close_lobby_with_round_ahead(event, source)
    source.respond = responding_with(b"gone", 410)
    publish_round(event, source, reveal_by=clock.now() + HOUR)
    draw_all()
    assert draw_of(event).revealed_at is None
    publish_round(event, source, reveal_by=clock.now() - timedelta(seconds=1))
    draw_all()
    draw = draw_of(event)
    assert (draw.is_operator_proof, draw.beacon_value) == (False, None)
    assert bytes(draw.seed) == hashlib.sha256(bytes(draw.secret) + bytes(draw.digest)).digest()
    assert RoomAct.objects.filter(detail__endswith=f"without round {ROUND}: no value of it by the deadline").exists()
    assert entry_numbers(event) == drawn_numbers(event)


@in_database
def test_a_round_published_before_the_digest_does_not_count(source: Source) -> None:
    event, _ = make_lobby(entrants=2)
    commit_to_beacon(event, source.address, ROUND, clock.now() - timedelta(seconds=1))
    event = close_lobby(event)
    draw_all()
    assert draw_of(event).revealed_at is None
    assert source.requested == []
    with pytest.raises(CommandError, match="was published before the digest"):
        enter_beacon(event, VALUE.hex())
    Draw.objects.update(reveal_by=clock.now() - timedelta(seconds=1))
    draw_all()
    assert draw_of(event).is_operator_proof is False
    assert RoomAct.objects.filter(detail__endswith="it was published before the digest").exists()


def enter_beacon(event: Any, value: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.conf.settings.DATABASE_DIRECT_URL", database_url())
        call_command("reveal_draw", event.slug, "--beacon", value, "--why", "the source is down")


@in_database
def test_a_value_can_be_entered_by_hand_once_and_only_after_its_publication(
    source: Source, capsys: pytest.CaptureFixture
) -> None:
    event, _ = make_lobby(entrants=2)
    event = close_lobby_with_round_ahead(event, source)
    source.respond = responding_with(b"", 503)
    with pytest.raises(CommandError, match=f"round {ROUND} is published at"):
        enter_beacon(event, VALUE.hex())
    publish_round(event, source)
    for wrong in ("", "00", "zz" * 32, "00" * 33, "٠" * 64):
        with pytest.raises(CommandError, match="hexadecimal"):
            enter_beacon(event, wrong)
    enter_beacon(event, VALUE.hex())
    draw = draw_of(event)
    assert (bytes(draw.beacon_value), draw.is_operator_proof) == (VALUE, True)
    assert capsys.readouterr().out.splitlines()[-1] == "concert: all entrants of the lobby have a number"
    act = RoomAct.objects.get(detail=f"beacon value {VALUE.hex()}")
    assert act.why == "the source is down"
    with pytest.raises(CommandError, match="has a value"):
        enter_beacon(event, "11" * 32)
    assert bytes(draw_of(event).beacon_value) == VALUE
