"""The lobby: the commitment published before it opens, its opening and its closing.

The first tick or join after the set time opens or closes the lobby, under the room's lock. After the closing no entry
can be added, so the draw (`draw`) can read the entrants without this lock.
"""

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.core import checks
from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.queue import proofs
from apps.queue.lobby import beacon
from apps.queue.models import Draw, RoomAct, WaitingRoom
from apps.queue.room_row import Room, record_act

BEACON_AFTER_SECONDS = 30
"""The beacon's round is published this long after the on-sale opens, so that the entrants' digest comes first."""
REVEAL_WITHIN_SECONDS = 300
"""This long after the on-sale opens, the secret is revealed even without a beacon value."""
RULE = (
    "leaf = SHA-256(entry id, 16 bytes, followed by its nonce); digest = SHA-256(all entrants' leaves, sorted); "
    "seed = SHA-256(secret, digest, beacon value, empty without one); the entrants sorted by SHA-256(seed, leaf), then "
    "by leaf, are numbered from 1"
)
FALLBACK = (
    "a value of the beacon counts only if its round came out after the digest was published and its signature is valid "
    "for the public key; without one by reveal_by the secret is revealed with none, and the draw is called consistent, "
    "not operator-proof"
)
ENTRANTS_BY_SIGN_UP = (
    "accounts with a confirmed email address that sign up before closes_at, one for each mailbox, and visitors with a "
    "VIP link"
)
NO_BEACON = "none is named: the draw is called consistent, not operator-proof"

_freeze_draw = sql.load("apps.queue", "freeze_draw")


def create_commitment(event: events.EventView) -> None:
    """Create the draw's secret and publish the commitment to it and to the rules of the draw.

    Runs inside the transaction that publishes the event. Raises beacon.SourceRefused.
    """
    transactions.require_transaction()
    secret = secrets.token_bytes(32)
    opens_at = event.policy.opens_at
    reveal_by = opens_at + timedelta(seconds=REVEAL_WITHIN_SECONDS)
    chosen = beacon.round_after(opens_at + timedelta(seconds=BEACON_AFTER_SECONDS))
    presale = event.policy.presale
    closes_at = None if presale is None else presale.sign_up_closes_at
    sign_up = {} if closes_at is None else {"rule": ENTRANTS_BY_SIGN_UP, "closes_at": clock.iso(closes_at)}
    statement = proofs.canonical(
        {
            "event": event.slug,
            "rule": RULE,
            "secret_sha256": proofs.sha256(secret).hex(),
            "beacon": {
                "source": beacon.NONE if chosen is None else chosen.source,
                "round": None if chosen is None else chosen.number,
                "at": None if chosen is None else clock.iso(chosen.at),
                "scheme": None if chosen is None or chosen.chain is None else chosen.chain.scheme,
                "public_key": None if chosen is None or chosen.chain is None else chosen.chain.public_key.hex(),
            },
            "opens_at": clock.iso(opens_at),
            "reveal_by": clock.iso(reveal_by),
            "fallback": NO_BEACON if chosen is None else FALLBACK,
            **({"sign_up": sign_up} if sign_up else {}),
        }
    )
    now = clock.now()
    Draw.objects.create(
        event_id=event.id,
        statement=statement.decode(),
        commitment=proofs.sha256(statement),
        committed_at=now,
        secret=secret,
        reveal_by=reveal_by,
    )
    with connection.cursor() as cursor:
        committed = f"committed to {proofs.sha256(statement).hex()}"
        record_act(cursor, event.id, now, None, RoomAct.What.DRAW, committed, "published with a lobby")


def open_if_due(cursor: sql.Cursor, room: Room, event: events.EventView, now: datetime) -> None:
    """Open the room's lobby or the room itself if it is due, and record that. Changes the locked room; the caller saves
    it."""
    state = event.selling_state(now)
    if room.state == WaitingRoom.State.CLOSED and state == "upcoming":
        if room.lobby_opens_at is not None and room.lobby_opens_at <= now:
            room.state = WaitingRoom.State.LOBBY
            record_act(cursor, room.event_id, now, None, RoomAct.What.STATE, "closed → lobby", "the lobby has opened")
    elif room.state in (WaitingRoom.State.CLOSED, WaitingRoom.State.LOBBY) and state == "on_sale":
        before, room.state = room.state, WaitingRoom.State.OPEN
        why = "the on-sale has opened"
        record_act(cursor, room.event_id, now, None, RoomAct.What.STATE, f"{before} → open", why)
        if room.lobby_opens_at is not None:
            _close(cursor, room, now)


def _close(cursor: sql.Cursor, room: Room, now: datetime) -> None:
    """Close the lobby: its entries will have the numbers up to `lobby_count`, and later joins follow them."""
    if _freeze_draw.count(cursor, event_id=room.event_id, now=now) != 1:
        raise RuntimeError(f"the lobby of event {room.event_id} has no draw that could be closed")
    room.next_number = room.lobby_count + 1
    # No later entry is admitted before the lobby's entries are numbered, unless the lobby was empty.
    room.numbered_through = 0 if room.lobby_count else None
    entrants = f"{room.lobby_count} entrant{'' if room.lobby_count == 1 else 's'}"
    record_act(cursor, room.event_id, now, None, RoomAct.What.DRAW, f"lobby closed: {entrants}")


def is_lobby_open(room: Room, event: events.EventView, now: datetime) -> bool:
    """Return whether a join at `now` enters the lobby."""
    return room.state == WaitingRoom.State.LOBBY and event.selling_state(now) == "upcoming"


@checks.register("queue")
def check_beacon(app_configs: object = None, **options: object) -> Sequence[checks.CheckMessage]:
    """Check the beacon's settings: a lobby's statement publishes them and cannot be changed."""
    try:
        beacon.round_after(clock.process_now())
    except beacon.SourceRefused as error:
        return [checks.Error(str(error), id="queue.E001", obj=settings.QUEUE_BEACON_URL[:80])]
    return []
