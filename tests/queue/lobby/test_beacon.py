"""The beacon: queried for the named round, trusted only if its response is valid, and awaited no longer than
promised."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.kernel import clock
from apps.queue import proofs
from apps.queue.beacon_chains import CHAINED, DEFAULT_NETWORK, QUICKNET
from apps.queue.lobby import beacon, beacon_fetches, lobby
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
from tests.support.queue.proven_rooms import verification_error
from tests.support.queue.signed_rounds import (
    DEFAULT_PREVIOUS,
    DEFAULT_ROUND,
    DEFAULT_SIGNATURE,
    DEFAULT_VALUE,
    QUICKNET_ROUND,
    QUICKNET_SIGNATURE,
    QUICKNET_VALUE,
    chain_for_tests,
    make_round,
    sign,
)

ROUND = 4_711
SIGNATURE = sign(ROUND).signature
VALUE = sign(ROUND).value
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
    fetched = beacon.fetch(make_round(source.address, ROUND))
    assert (fetched.value, fetched.signature, fetched.previous) == (VALUE, SIGNATURE, b"")
    assert source.requested == [f"/chain/public/{ROUND}"]
    source.respond = responding_with({"round": ROUND, "signature": SIGNATURE.hex().upper()})
    assert beacon.fetch(make_round(source.address, ROUND)).value == VALUE


@pytest.mark.parametrize(
    ("network", "number", "signature", "previous", "value"),
    [
        (QUICKNET, QUICKNET_ROUND, QUICKNET_SIGNATURE, b"", QUICKNET_VALUE),
        (DEFAULT_NETWORK, DEFAULT_ROUND, DEFAULT_SIGNATURE, DEFAULT_PREVIOUS, DEFAULT_VALUE),
    ],
    ids=["quicknet", "the default network"],
)
def test_published_rounds_of_drand_are_accepted(
    source: Source, network: Any, number: int, signature: bytes, previous: bytes, value: str
) -> None:
    answer = {"round": number, "randomness": value, "signature": signature.hex()}
    source.respond = responding_with(answer | ({"previous_signature": previous.hex()} if previous else {}))
    fetched = beacon.fetch(make_round(source.address, number, network.chain))
    assert (fetched.value.hex(), fetched.previous) == (value, previous)
    with pytest.raises(beacon.BeaconUnavailable, match="not valid for this round and the committed key"):
        beacon.fetch(make_round(source.address, number))  # Another chain.
    if previous:
        source.respond = responding_with(answer)
        with pytest.raises(beacon.BeaconUnavailable, match="not valid for this round"):
            beacon.fetch(make_round(source.address, number, network.chain))


def test_a_consistent_response_that_the_key_has_not_signed_is_refused(source: Source) -> None:
    """The value is the digest of its signature, as the gatekeeper once checked, but the source has made up both."""
    chosen = make_round(source.address, ROUND)
    for forged in (sign(ROUND + 1), sign(ROUND, secret=2), beacon.Signed(bytes(48)), beacon.Signed(b"a" * 48)):
        source.respond = responding_with(
            {"round": ROUND, "randomness": forged.value.hex(), "signature": forged.signature.hex()}
        )
        with pytest.raises(beacon.BeaconUnavailable, match="not valid for this round and the committed key"):
            beacon.fetch(chosen)
    source.respond = responding_with(GOOD)
    with pytest.raises(beacon.BeaconUnavailable, match="not valid"):
        beacon.fetch(replace(chosen, chain=None))


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
        (GOOD | {"signature": None}, 200),
        (GOOD | {"previous_signature": "00" * 97}, 200),
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
        beacon.fetch(make_round(source.address, ROUND))


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
        beacon.fetch(make_round(source.address, ROUND), within_ms=200)


def test_a_source_that_refuses_connections_is_unavailable() -> None:
    with pytest.raises(beacon.BeaconUnavailable, match="is unavailable"):
        beacon.fetch(make_round("http://127.0.0.1:1", ROUND))


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
        assert found.chain == QUICKNET.chain
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


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"QUEUE_BEACON_PUBLIC_KEY": "zz"}, "is not hexadecimal"),
        ({"QUEUE_BEACON_PUBLIC_KEY": "00" * 96}, "is not a key of the scheme"),
        ({"QUEUE_BEACON_PUBLIC_KEY": DEFAULT_NETWORK.chain.public_key.hex()}, "is not a key of the scheme"),
        ({"QUEUE_BEACON_SCHEME": "bls"}, "QUEUE_BEACON_SCHEME must be one of"),
        ({"QUEUE_BEACON_GENESIS": 1}, "the key is that of drand's quicknet, so QUEUE_BEACON_GENESIS must be"),
        ({"QUEUE_BEACON_PERIOD_SECONDS": 30}, "QUEUE_BEACON_PERIOD_SECONDS 3"),
        ({"QUEUE_BEACON_URL": f"https://api.drand.sh/{DEFAULT_NETWORK.hash}"}, "names drand's default network"),
        ({"QUEUE_BEACON_PUBLIC_KEY": chain_for_tests().public_key.hex()}, "names drand's quicknet"),
    ],
)
def test_a_key_of_another_network_is_found_by_the_system_check(
    settings: Any, changed: dict[str, Any], expected: str
) -> None:
    settings.QUEUE_BEACON_URL = f"https://api.drand.sh/{QUICKNET.hash}"
    assert lobby.check_beacon() == []
    for name, value in changed.items():
        setattr(settings, name, value)
    (error,) = lobby.check_beacon()
    assert expected in error.msg


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
    assert (bytes(draw.beacon_value), bytes(draw.beacon_signature)) == (VALUE, SIGNATURE)
    assert draw.is_operator_proof is True
    assert verification_error(event.slug) == ""
    assert bytes(draw.seed) == hashlib.sha256(bytes(draw.secret) + bytes(draw.digest) + VALUE).digest()
    assert entry_numbers(event) == drawn_numbers(event)
    assert len(source.requested) == 1
    assert RoomAct.objects.filter(detail=f"secret revealed, with round {ROUND}").count() == 1
    assert_audit_clean()


def publish_round(event: Any, source: Source, *, reveal_by: datetime | None = None) -> None:
    """Publish the round: after the digest, and in the past."""
    digest_at = draw_of(event).digest_at
    assert digest_at is not None
    Draw.objects.filter(pk=event.id).update(
        committed_at=digest_at - 2 * HOUR, frozen_at=digest_at - HOUR, digest_at=digest_at - HOUR
    )
    commit_to_beacon(event, source.address, ROUND, digest_at - timedelta(minutes=1), reveal_by=reveal_by)


@in_database
def test_a_failing_source_is_retried_until_it_responds(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    event, _ = make_lobby(entrants=2)
    event = close_lobby_with_round_ahead(event, source)
    publish_round(event, source)
    source.respond = responding_with(b"busy", 503)
    drawer = lobby_draw.DrawWorker(database_url())
    try:
        drawer.run_until_idle()
        drawer.run_until_idle()
        assert len(source.requested) == 1  # No second request in a row: there is a pause.
        monkeypatch.setattr(beacon_fetches, "PAUSE_SECONDS", 0)
        drawer._beacon_fetches.close()
        source.respond = responding_with(GOOD)
        drawer.run_until_idle()
    finally:
        drawer.close()
    assert draw_of(event).is_operator_proof is True


@in_database
def test_draws_that_name_one_round_fetch_it_once_and_a_slow_source_delays_no_other(source: Source) -> None:
    """Before: each draw had a request of its own, one after the other, in the loop that advances all draws."""
    named = [make_lobby(f"named-{number}", entrants=1)[0] for number in range(3)]
    published_at = clock.now() - timedelta(minutes=2)
    for event in [close_lobby_with_round_ahead(event, source) for event in named]:
        publish_round(event, source)
        commit_to_beacon(event, source.address, ROUND, published_at)
    other = close_lobby(make_lobby("other", entrants=2)[0])
    reached, going_on = threading.Event(), threading.Event()

    def respond_late(handler: BaseHTTPRequestHandler) -> None:
        reached.set()
        going_on.wait(beacon.FETCH_MS_MAX / 1_000)
        responding_with(GOOD)(handler)

    source.respond = respond_late
    drawer = lobby_draw.DrawWorker(database_url())
    try:
        while drawer.run_once():
            pass
        assert reached.wait(beacon.FETCH_MS_MAX / 1_000)
        assert draw_of(other).numbered_at is not None, "while the source has not responded"
        assert [draw_of(event).revealed_at for event in named] == [None] * 3
        going_on.set()
        drawer.run_until_idle()
    finally:
        drawer.close()
    assert [draw_of(event).is_operator_proof for event in named] == [True] * 3
    assert len(source.requested) == 1
    assert_audit_clean()


@in_database
def test_after_the_deadline_the_value_is_asked_for_once_before_the_draw_goes_on(source: Source) -> None:
    """As after an outage of our own: the beacon has the value."""
    event, _ = make_lobby(entrants=2)
    publish_round(close_lobby_with_round_ahead(event, source), source, reveal_by=clock.now() - timedelta(seconds=1))
    draw_all()
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
        enter_beacon(event, SIGNATURE.hex())
    Draw.objects.update(reveal_by=clock.now() - timedelta(seconds=1))
    draw_all()
    assert draw_of(event).is_operator_proof is False
    assert RoomAct.objects.filter(detail__endswith="it was published before the digest").exists()


def enter_beacon(event: Any, signature: str, previous: str = "") -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.conf.settings.DATABASE_DIRECT_URL", database_url())
        by_hand = ("--beacon", signature, "--previous", previous, "--why", "the source is down")
        call_command("reveal_draw", event.slug, *by_hand)


@in_database
def test_a_signature_can_be_entered_by_hand_once_and_only_after_its_publication(
    source: Source, capsys: pytest.CaptureFixture
) -> None:
    event, _ = make_lobby(entrants=2)
    event = close_lobby_with_round_ahead(event, source)
    source.respond = responding_with(b"", 503)
    with pytest.raises(CommandError, match=f"round {ROUND} is published at"):
        enter_beacon(event, SIGNATURE.hex())
    publish_round(event, source)
    for wrong in ("", "00", "zz" * 48, "00" * 49, "٠" * 96, VALUE.hex()):
        with pytest.raises(CommandError, match="hexadecimal"):
            enter_beacon(event, wrong)
    for forged in (sign(ROUND - 1), sign(ROUND, secret=2)):
        with pytest.raises(CommandError, match=f"not the signature of round {ROUND} by the committed key"):
            enter_beacon(event, forged.signature.hex())
    refused = RoomAct.objects.filter(what="draw").exclude(refusal="")
    assert refused.count() == 9
    assert {act.why for act in refused} == {"the source is down"}
    enter_beacon(event, SIGNATURE.hex())
    draw = draw_of(event)
    assert (bytes(draw.beacon_value), draw.is_operator_proof) == (VALUE, True)
    assert capsys.readouterr().out.splitlines()[-1] == "concert: all entrants of the lobby have a number"
    act = RoomAct.objects.get(detail=f"beacon value {VALUE.hex()}")
    assert act.why == "the source is down"
    with pytest.raises(CommandError, match="has a value"):
        enter_beacon(event, SIGNATURE.hex())
    assert bytes(draw_of(event).beacon_value) == VALUE


@in_database
def test_a_round_of_a_chained_network_is_verified_with_the_previous_signature(source: Source) -> None:
    previous = sign(ROUND - 1, CHAINED, previous=b"an earlier one").signature
    signed = sign(ROUND, CHAINED, previous=previous)
    event, _ = make_lobby(entrants=2)
    commit_to_beacon(event, source.address, ROUND, clock.now() + HOUR, scheme=CHAINED)
    event = close_lobby(event)
    draw_all()
    digest_at = draw_of(event).digest_at
    assert digest_at is not None
    Draw.objects.filter(pk=event.id).update(
        committed_at=digest_at - 2 * HOUR, frozen_at=digest_at - HOUR, digest_at=digest_at - HOUR
    )
    commit_to_beacon(event, source.address, ROUND, digest_at - timedelta(minutes=1), scheme=CHAINED)
    with pytest.raises(CommandError, match="not the signature of round"):
        enter_beacon(event, signed.signature.hex())
    source.respond = responding_with(
        {"round": ROUND, "signature": signed.signature.hex(), "previous_signature": previous.hex()}
    )
    draw_all()
    draw = draw_of(event)
    assert bytes(draw.beacon_previous_signature) == previous
    assert draw.is_operator_proof is True
    assert verification_error(event.slug) == ""


@in_database
def test_a_source_that_answers_with_a_forged_round_never_decides_a_draw(source: Source) -> None:
    event, _ = make_lobby(entrants=2)
    event = close_lobby_with_round_ahead(event, source)
    forged = sign(ROUND, secret=2)
    source.respond = responding_with(
        {"round": ROUND, "randomness": forged.value.hex(), "signature": forged.signature.hex()}
    )
    publish_round(event, source, reveal_by=clock.now() + HOUR)
    draw_all()
    assert (draw_of(event).beacon_value, draw_of(event).revealed_at) == (None, None)
    publish_round(event, source, reveal_by=clock.now() - timedelta(seconds=1))
    draw_all()
    assert draw_of(event).is_operator_proof is False
    assert verification_error(event.slug) == ""


@in_database
def test_a_commitment_without_a_key_is_drawn_without_its_beacon(source: Source) -> None:
    event, _ = make_lobby(entrants=2)
    event = close_lobby_with_round_ahead(event, source)
    publish_round(event, source, reveal_by=clock.now() - timedelta(seconds=1))
    draw = draw_of(event)
    statement = json.loads(draw.statement)
    del statement["beacon"]["public_key"], statement["beacon"]["scheme"]
    text = proofs.canonical(statement)
    Draw.objects.update(statement=text.decode(), commitment=proofs.sha256(text))
    with pytest.raises(CommandError, match="names no key of the beacon"):
        enter_beacon(event, SIGNATURE.hex())
    draw_all()
    assert (draw_of(event).is_operator_proof, source.requested) == (False, [])
    assert RoomAct.objects.filter(detail__endswith="names no key that signs it").exists()
    assert verification_error(event.slug) == ""
