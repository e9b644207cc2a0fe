"""The draw after a lobby has closed: digest, beacon, reveal, permutation, numbers.

Each step first determines what is left to do, so it can be interrupted at any line and repeated by any process. One
process draws at a time: it holds an advisory lock in the session that does the work, so losing the session also loses
the lock. No step holds the room's lock for longer than one update of the room's row. The steps:

1. Publish the digest of all entries that were in the lobby when it closed, including those that left since.
2. Fetch the beacon's round, if one was named; continue without it after the deadline.
3. Reveal the secret, which determines the seed.
4. Draw all numbers with one INSERT … SELECT into a separate table. From here on every visitor can see their number.
5. Copy the numbers to the entries in chunks, lowest first. A separate transaction after each chunk advances the room's
   `numbered_through`, above which no number is admitted. (Rooms must be locked before entries, and only briefly.)
"""

import json
import logging
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
from django.conf import settings
from django.db import close_old_connections
from psycopg import Connection

from apps.kernel.db import sql, transactions
from apps.kernel.db.leader_election import Leadership
from apps.kernel.observability import heartbeats
from apps.kernel.observability.repeated_errors import RepeatedErrors
from apps.queue import proofs
from apps.queue.beacon_chains import Chain
from apps.queue.errors import ActRefused
from apps.queue.lobby import beacon
from apps.queue.lobby.beacon_fetches import BeaconFetches
from apps.queue.models import RoomAct
from apps.queue.room_row import lock_room, record_act, save_room

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.5
CHUNK = 2_000
"""Largest number of entries that receive their number in one transaction."""
CHUNK_MIN = 250
ANALYZED_MIN = 1_000
"""The planner's statistics are renewed after a draw of at least this many entries: hundreds of small draws at once
would take seconds for that alone."""
CHUNK_SECONDS = 0.15
"""Target duration of a chunk. If a visitor of the lobby joins again, the whole batch of joins waits for the chunk
that contains the visitor's entry. Chunks therefore become smaller on a busy machine."""
STATEMENT_MS_MAX = 600_000
"""The digest and the draw each process the whole lobby in one statement."""
ROUND_SECONDS_MAX = STATEMENT_MS_MAX / 1_000 + 60
"""A longer round hangs."""
LOCK_KEY = b"fairdraw"
SESSION_OPTIONS = (
    "-c client_connection_check_interval=1000 -c tcp_keepalives_idle=5 "
    "-c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
)
"""If the process is killed during a long statement, the server notices within a second and releases the lock."""
AWAY = "draw: the database is unavailable or ended the session"

_PACKAGE = "apps.queue"
_draws_under_way = sql.load(_PACKAGE, "draws_under_way")
_digest_entrants = sql.load(_PACKAGE, "digest_entrants")
_fix_digest = sql.load(_PACKAGE, "fix_digest")
_lock_draw = sql.load(_PACKAGE, "lock_draw")
_keep_beacon_value = sql.load(_PACKAGE, "keep_beacon_value")
_reveal_draw = sql.load(_PACKAGE, "reveal_draw")
_assign_drawn_numbers = sql.load(_PACKAGE, "assign_drawn_numbers")
_note_drawn = sql.load(_PACKAGE, "note_drawn")
_number_entries = sql.load(_PACKAGE, "number_entries")
_note_numbered = sql.load(_PACKAGE, "note_numbered")
_analyze_drawn_numbers = sql.load(_PACKAGE, "analyze_drawn_numbers")
_refresh_entries = sql.load(_PACKAGE, "refresh_entries")


class DrawBroken(RuntimeError):
    """The number of entrants differs from the room's count: rows were changed manually. Nothing is drawn."""


@dataclass(frozen=True, slots=True)
class _DrawState:
    """A draw and the time of the read; fields in the order of `lock_draw.sql`."""

    statement: str
    secret: bytes = field(repr=False)
    reveal_by: datetime
    digest: bytes | None
    digest_at: datetime | None
    beacon_value: bytes | None
    revealed_at: datetime | None
    seed: bytes | None
    drawn_at: datetime | None
    now: datetime


@dataclass(frozen=True, slots=True)
class _PendingDraw(_DrawState):
    """A draw in progress with its room; fields in the order of `draws_under_way.sql`."""

    event_id: int
    lobby_count: int
    numbered_through: int | None


def named_round(statement: str) -> beacon.Round | None:
    """Return the beacon's round that the statement names, or None."""
    named = json.loads(statement)["beacon"]
    if named["source"] == beacon.NONE:
        return None
    chain = Chain(named["scheme"], bytes.fromhex(named["public_key"])) if named.get("public_key") else None
    return beacon.Round(named["source"], named["round"], datetime.fromisoformat(named["at"]), chain)


class DrawWorker:
    """Runs the steps of all draws, in the session that holds the lock."""

    def __init__(self, conninfo: str = "") -> None:
        self.lead = Leadership("drawer", LOCK_KEY, conninfo=conninfo, options=SESSION_OPTIONS)
        self._beacon_fetches = BeaconFetches(logger)
        self._repeated_errors = RepeatedErrors(logger)
        self._chunk = CHUNK

    def run_once(self) -> bool:
        """Advance every draw in progress by one step if possible; return whether any advanced. Does nothing while
        another process holds the lock."""
        try:
            if not self.lead.holds():
                self._repeated_errors.over(AWAY)
                return False
            session = self.lead.session
            assert session is not None
            with session.cursor() as cursor:
                draws = [_PendingDraw(*row) for row in _draws_under_way.rows(cursor)]
        except psycopg.Error as error:
            self._repeated_errors.record_failure(AWAY, error)
            self.close()
            return False
        self._repeated_errors.over(AWAY)
        has_advanced = False
        for draw in draws:
            failing = f"draw of event {draw.event_id}: a step failed and will be retried"
            try:
                has_advanced = self._advance(session, draw) or has_advanced
                self._repeated_errors.over(failing)
            except (psycopg.Error, DrawBroken) as error:
                # One draw's error (a lock timeout, for example) delays no other.
                self._repeated_errors.record_failure(failing, error)
                if session.closed:
                    self.close()
                    return False
        return has_advanced

    def advance(self) -> bool:
        """`run_once`; if no draw has advanced, wait for a request to the beacon to end. Return False if no draw can
        advance further now."""
        return self.run_once() or self._beacon_fetches.wait()

    def run_until_idle(self) -> None:
        """Advance all draws until none can advance further now."""
        while self.advance():
            pass

    def close(self) -> None:
        """Release the lock, so that another process can draw."""
        self.lead.resign()
        self._beacon_fetches.close()

    def _advance(self, session: Connection[Any], draw: _PendingDraw) -> bool:
        if draw.digest is None:
            return _publish_digest(session, draw)
        if draw.revealed_at is None:
            return self._reveal(session, draw)
        if draw.drawn_at is None:
            return _draw_numbers(session, draw)
        if draw.numbered_through is None or draw.numbered_through >= draw.lobby_count:
            return _finish(session, draw)
        begun = time.monotonic()
        _assign_numbers(session, draw, draw.numbered_through, self._chunk)
        self._chunk = next_chunk(self._chunk, time.monotonic() - begun)
        return True

    def _reveal(self, session: Connection[Any], draw: _PendingDraw) -> bool:
        """Store the named round's value, if it is published, valid and available; then reveal the secret. While the
        first request for the value is under way, nothing is revealed, not even after the deadline."""
        chosen = named_round(draw.statement)
        is_wanted = chosen is not None and draw.beacon_value is None and _is_valid_round(chosen, draw.digest_at)
        if chosen is not None and is_wanted and draw.now >= chosen.at:
            fetch = self._beacon_fetches.ask(chosen)
            if fetch.signed is not None and _save_beacon_value(session, draw.event_id, fetch.signed, who=None):
                return True
            if not fetch.has_ended:
                return False
        return _reveal(session, draw.event_id)


def _is_valid_round(chosen: beacon.Round, digest_at: datetime | None) -> bool:
    """Return whether the round is after the digest and its key is known. If its value was known before the digest was
    published, entrants could have been added to influence the draw."""
    return digest_at is not None and chosen.at > digest_at and chosen.chain is not None


def _publish_digest(session: Connection[Any], draw: _PendingDraw) -> bool:
    with transactions.write_on(session, statement_ms=STATEMENT_MS_MAX) as cursor:
        ((digest, count),) = _digest_entrants.rows(cursor, event_id=draw.event_id)
        if count != draw.lobby_count:
            raise DrawBroken(f"{count} entrants, the room has counted {draw.lobby_count}")
    with transactions.write_on(session) as cursor:
        locked = _lock(cursor, draw.event_id)
        if _fix_digest.count(cursor, event_id=draw.event_id, digest=digest):
            record_act(
                cursor, draw.event_id, locked.now, None, RoomAct.What.DRAW, f"entrants' digest {bytes(digest).hex()}"
            )
    return True


def _save_beacon_value(
    session: Connection[Any], event_id: int, signed: beacon.Signed, *, who: str | None, why: str = ""
) -> bool:
    value = signed.value
    with transactions.write_on(session) as cursor:
        locked = _lock(cursor, event_id)
        kept = _keep_beacon_value.count(
            cursor, event_id=event_id, value=value, signature=signed.signature, previous=signed.previous or None
        )
        if kept:
            record_act(cursor, event_id, locked.now, who, RoomAct.What.DRAW, f"beacon value {value.hex()}", why)
    return kept == 1


def _reveal(session: Connection[Any], event_id: int) -> bool:
    """Reveal the secret, unless the draw still waits for the beacon's value. Return whether the secret is revealed."""
    with transactions.write_on(session) as cursor:
        draw = _lock(cursor, event_id)
        assert draw.digest is not None, "nothing is revealed before the digest is published"
        chosen = named_round(draw.statement)
        if draw.revealed_at is not None:
            return True
        if chosen is not None and draw.beacon_value is None and draw.now < draw.reveal_by:
            return False
        value = b"" if draw.beacon_value is None else bytes(draw.beacon_value)
        seed = proofs.seed_of(bytes(draw.secret), bytes(draw.digest), value)
        _reveal_draw.count(cursor, event_id=event_id, seed=seed, is_operator_proof=bool(value))
        if chosen is None:
            how = "no beacon was named"
        elif value:
            how = f"with round {chosen.number}"
        elif _is_valid_round(chosen, draw.digest_at):
            how = f"without round {chosen.number}: no value of it by the deadline"
        elif chosen.chain is None:
            how = f"without round {chosen.number}: the commitment names no key that signs it"
        else:
            how = f"without round {chosen.number}: it was published before the digest"
        record_act(cursor, event_id, draw.now, None, RoomAct.What.DRAW, f"secret revealed, {how}")
    return True


def _draw_numbers(session: Connection[Any], draw: _PendingDraw) -> bool:
    with transactions.write_on(session, statement_ms=STATEMENT_MS_MAX) as cursor:
        locked = _lock(cursor, draw.event_id)
        if locked.drawn_at is not None:
            return True
        count = _assign_drawn_numbers.count(cursor, event_id=draw.event_id, seed=locked.seed)
        if count != draw.lobby_count:
            raise DrawBroken(f"{count} entrants, the room has counted {draw.lobby_count}")
        if draw.lobby_count >= ANALYZED_MIN:
            _analyze_drawn_numbers.count(cursor)
        _note_drawn.count(cursor, event_id=draw.event_id)
    return True


def next_chunk(size: int, seconds: float) -> int:
    """Return the size of the next chunk, after one of this size took `seconds`: half, the same, or double."""
    if seconds > CHUNK_SECONDS:
        size //= 2
    elif seconds < CHUNK_SECONDS / 3:
        size *= 2
    return min(CHUNK, max(CHUNK_MIN, size))


def _assign_numbers(session: Connection[Any], draw: _PendingDraw, above: int, chunk: int) -> None:
    through = min(above + chunk, draw.lobby_count)
    with transactions.write_on(session) as cursor:
        _number_entries.count(cursor, event_id=draw.event_id, above=above, through=through)
    with transactions.write_on(session) as cursor:
        room = lock_room(cursor, draw.event_id)
        if room.numbered_through is not None:
            room.numbered_through = max(room.numbered_through, through)
            save_room(cursor, room)


def _finish(session: Connection[Any], draw: _PendingDraw) -> bool:
    if draw.lobby_count >= ANALYZED_MIN:
        with session.cursor() as cursor:
            _refresh_entries.count(cursor)
    with transactions.write_on(session) as cursor:
        room = lock_room(cursor, draw.event_id)
        room.numbered_through = None
        save_room(cursor, room)
        locked = _lock(cursor, draw.event_id)
        if _note_numbered.count(cursor, event_id=draw.event_id):
            numbered = f"numbered: {draw.lobby_count} entrant{'' if draw.lobby_count == 1 else 's'}"
            record_act(cursor, draw.event_id, locked.now, None, RoomAct.What.DRAW, numbered)
    return True


def _lock(cursor: sql.Cursor, event_id: int) -> _DrawState:
    rows = _lock_draw.rows(cursor, event_id=event_id)
    if not rows:
        raise DrawBroken("the draw's row is missing")
    return _DrawState(*rows[0])


def submit_beacon_signature(event_id: int, signed: beacon.Signed, *, who: str, why: str = "") -> None:
    """Store a round's signature that an operator provides, and its value. Raises ActRefused if the signature is not
    that of the committed round, or too late."""
    with psycopg.connect(settings.DATABASE_DIRECT_URL, autocommit=True, connect_timeout=2) as session:
        with transactions.write_on(session) as cursor:
            rows = _lock_draw.rows(cursor, event_id=event_id)
            draw = _DrawState(*rows[0]) if rows else None
        if draw is None:
            raise ActRefused("this event has no lobby")
        chosen = named_round(draw.statement)
        if chosen is None:
            raise ActRefused("the commitment names no beacon: a value would break it")
        if draw.digest_at is None:
            raise ActRefused("the entrants' digest is not published yet: a value known before it does not count")
        if chosen.chain is None:
            raise ActRefused("the commitment names no key of the beacon: a value of it does not count")
        if not _is_valid_round(chosen, draw.digest_at):
            raise ActRefused(f"round {chosen.number} was published before the digest: it does not count")
        if draw.now < chosen.at:
            raise ActRefused(f"round {chosen.number} is published at {chosen.at.isoformat()}")
        if not beacon.is_signed_by(chosen, signed):
            raise ActRefused(f"this is not the signature of round {chosen.number} by the committed key")
        if not _save_beacon_value(session, event_id, signed, who=who, why=why):
            raise ActRefused("the draw has a value or is revealed already")


def loop(stopping: threading.Event) -> None:
    """Run draws, or stand by, until `stopping` is set."""
    drawer = DrawWorker()
    errors = RepeatedErrors(logger)
    try:
        while not stopping.is_set():
            heartbeats.beat("drawer", ROUND_SECONDS_MAX)
            has_advanced = False
            try:
                has_advanced = drawer.run_once()
                errors.over("draw: this round failed")
            except Exception as error:  # noqa: BLE001 - Lobbies depend on this loop; it survives any error.
                errors.record_failure("draw: this round failed", error)
            finally:
                close_old_connections()
            if not has_advanced:
                stopping.wait(TICK_SECONDS)
    finally:
        drawer.close()
