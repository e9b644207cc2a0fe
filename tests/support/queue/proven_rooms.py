"""Rooms whose order can be verified, written as the product writes them: a hash chain of entries, a drawn lobby."""

import secrets
from datetime import timedelta
from typing import Any

from django.core.management import call_command
from django.core.management.base import CommandError

from apps.events.facade import EventView
from apps.kernel import clock
from apps.queue import proofs
from apps.queue.models import AdmissionBatch, Draw, DrawnPlace, QueueEntry, RoomAct, WaitingRoom
from tests.support.queue.rooms import make_room
from tests.support.queue.signed_rounds import chain_for_tests, sign

SECRET = b"s" * 32
ROUND = 7
SIGNED = sign(ROUND)
BEACON = SIGNED.value


def room_of(event: EventView) -> WaitingRoom:
    return WaitingRoom.objects.get(event_id=event.id)


def leaf_of(entry: QueueEntry) -> bytes:
    return proofs.leaf(entry.pk, bytes(entry.nonce))


def entries_of(event: EventView) -> list[QueueEntry]:
    return list(QueueEntry.objects.filter(event_id=event.id).order_by("number"))


def new_entry(event: EventView, number: int | None, *, in_lobby: bool = False) -> QueueEntry:
    return QueueEntry(
        event_id=event.id,
        number=number,
        in_lobby=in_lobby,
        visitor_id=f"visitor-{secrets.token_hex(8)}",
        status=QueueEntry.Status.WAITING,
        joined_at=clock.now(),
    )


def join_entries(event: EventView, count: int) -> list[QueueEntry]:
    """Add this many entries to the queue, each with its link in the chain, as joining does."""
    room = room_of(event)
    chain = bytes(room.chain_head)
    entries = [new_entry(event, room.next_number + index) for index in range(count)]
    for entry in entries:
        chain = proofs.link(chain or proofs.genesis(event.slug), entry.number, leaf_of(entry))
    QueueEntry.objects.bulk_create(entries)
    room.state, room.next_number, room.chain_head = "open", room.next_number + count, chain
    room.save()
    return entries


def open_lobby(
    event: EventView, count: int, *, beacon: str = "none", beacon_at: str | None = None, reveal_in_seconds: int = 0
) -> list[QueueEntry]:
    """Open a lobby with a commitment and this many entrants."""
    now = clock.now()
    reveal_by = now + timedelta(seconds=reveal_in_seconds)
    named: dict[str, Any] = {"source": "none", "round": None, "at": None, "scheme": None, "public_key": None}
    if beacon != "none":
        chain = chain_for_tests()
        at = beacon_at or clock.iso(now + timedelta(minutes=1))
        named = {
            "source": beacon,
            "round": ROUND,
            "at": at,
            "scheme": chain.scheme,
            "public_key": chain.public_key.hex(),
        }
    statement = proofs.canonical(
        {
            "event": event.slug,
            "rule": "sort by SHA-256(seed ‖ leaf)",
            "secret_sha256": proofs.sha256(SECRET).hex(),
            "beacon": named,
            "opens_at": clock.iso(now),
            "reveal_by": clock.iso(reveal_by),
            "fallback": "without the beacon",
        }
    )
    Draw.objects.create(
        event_id=event.id,
        statement=statement.decode(),
        commitment=proofs.sha256(statement),
        committed_at=now,
        secret=SECRET,
        reveal_by=reveal_by,
    )
    entries = [new_entry(event, None, in_lobby=True) for _ in range(count)]
    QueueEntry.objects.bulk_create(entries)
    WaitingRoom.objects.filter(event_id=event.id).update(state="lobby", lobby_count=count, next_number=count + 1)
    return entries


def close_lobby(event: EventView) -> None:
    """Freeze the entrants, and publish their digest."""
    now = clock.now()
    draw = Draw.objects.get(event_id=event.id)
    lobby = QueueEntry.objects.filter(event_id=event.id, in_lobby=True)
    draw.frozen_at, draw.digest, draw.digest_at = now, proofs.digest_of(map(leaf_of, lobby)), now
    draw.save()
    WaitingRoom.objects.filter(event_id=event.id).update(state="open", numbered_through=0)


def reveal(event: EventView, beacon: bytes = b"") -> Draw:
    draw = Draw.objects.get(event_id=event.id)
    draw.beacon_value, draw.is_operator_proof, draw.revealed_at = beacon or None, bool(beacon), clock.now()
    draw.beacon_signature = SIGNED.signature if beacon else None
    draw.seed = proofs.seed_of(SECRET, bytes(draw.digest or b""), beacon)
    draw.save()
    return draw


def draw_numbers(event: EventView, *, write_them: bool = True) -> None:
    """Draw a number for every entry of the lobby; with `write_them`, also write it into the entry."""
    draw = Draw.objects.get(event_id=event.id)
    seed = bytes(draw.seed or b"")
    lobby = QueueEntry.objects.filter(event_id=event.id, in_lobby=True)
    order = sorted(lobby, key=lambda entry: (proofs.draw_key(seed, leaf_of(entry)), leaf_of(entry)))
    DrawnPlace.objects.bulk_create(
        DrawnPlace(event_id=event.id, number=number, entry_id=entry.pk) for number, entry in enumerate(order, 1)
    )
    draw.drawn_at = clock.now()
    if write_them:
        for number, entry in enumerate(order, 1):
            entry.number = number
        QueueEntry.objects.bulk_update(order, ["number"])
        draw.numbered_at = clock.now()
        WaitingRoom.objects.filter(event_id=event.id).update(numbered_through=None)
    draw.save()


def drawn_room(slug: str = "concert", *, lobby: int = 6, late: int = 4, beacon: bool = False) -> EventView:
    """Create a drawn lobby with late arrivals behind it, admissions and acts of staff."""
    event = make_room(slug)
    open_lobby(event, lobby, beacon="https://beacon.example" if beacon else "none")
    close_lobby(event)
    join_entries(event, late)
    reveal(event, BEACON if beacon else b"")
    draw_numbers(event)
    record_admissions(event)
    return event


def record_admissions(event: EventView) -> None:
    """Admit two entries, one of them ahead of its number, and record two acts of an operator."""
    now = clock.now()
    WaitingRoom.objects.filter(event_id=event.id).update(head=1)
    QueueEntry.objects.filter(event_id=event.id, number=1).update(
        status=QueueEntry.Status.READY, ready_at=now, claim_expires_at=now + timedelta(minutes=2)
    )
    QueueEntry.objects.filter(event_id=event.id, number=3).update(marked=QueueEntry.Mark.VIP)
    for reason, number in (("tick", 1), ("marked", 3)):
        AdmissionBatch.objects.create(
            event_id=event.id,
            at=now,
            reason=reason,
            from_number=number,
            to_number=number,
            count=1,
            active_count=1,
            active_max=3,
            epoch=1,
        )
    RoomAct.objects.create(
        event_id=event.id, at=now, who="ada.lovelace", what="state", detail="open → paused", why="the printer burns"
    )
    RoomAct.objects.create(
        event_id=event.id, at=now, who="ada.lovelace", what="vip link", detail="for Grace Hopper", why="a friend"
    )


def verification_error(*arguments: str) -> str:
    """Return the error of `verify_queue` if verification fails; empty if it succeeds. Asserts exit code 1 for a
    failure."""
    try:
        call_command("verify_queue", *arguments, verbosity=0)
    except CommandError as error:
        refused = error
    else:
        return ""
    assert refused.returncode == 1
    return str(refused)
