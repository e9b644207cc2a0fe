"""Lobbies for tests: open ones with entrants; time passes in them by changing rows."""

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Case, F, Value, When

from apps.events import facade as events
from apps.events.facade import EventView, WaitingRoomSettings
from apps.events.models import OnSale
from apps.kernel import clock
from apps.kernel.fastpath import cache
from apps.queue import facade, proofs
from apps.queue.beacon_chains import UNCHAINED_G1
from apps.queue.lobby import beacon
from apps.queue.lobby import draw as lobby_draw
from apps.queue.models import Draw, DrawnPlace, QueueEntry, WaitingRoom
from apps.queue.room import admission
from tests.support.databases import database_url
from tests.support.factories import make_event
from tests.support.queue.rooms import EPOCH
from tests.support.queue.signed_rounds import chain_for_tests


def make_lobby(
    slug: str = "concert", entrants: int = 0, *, rate: int = 10, active: int = 3, **spec: Any
) -> tuple[EventView, list[facade.EntryView]]:
    """Create an event whose lobby is open, one hour before its on-sale, with this many entrants."""
    now = clock.now()
    event = make_event(
        slug,
        room=WaitingRoomSettings(rate_per_second=rate, active_max=active, lobby_opens_at=now - timedelta(minutes=1)),
        opens_at=now + timedelta(hours=1),
        **spec,
    )
    admission.tick(event.id, EPOCH)
    assert WaitingRoom.objects.get(event_id=event.id).state == "lobby"
    return event, join_lobby(event, entrants)


def join_lobby(event: EventView, count: int) -> list[facade.EntryView]:
    """Let this many more visitors join, each with a new browser."""
    entries = [
        QueueEntry(
            event_id=event.id,
            in_lobby=True,
            visitor_id=facade.new_visitor_secret(),
            status="waiting",
            joined_at=clock.now(),
        )
        for _ in range(count)
    ]
    QueueEntry.objects.bulk_create(entries)
    room = WaitingRoom.objects.filter(event_id=event.id)
    room.update(lobby_count=F("lobby_count") + count, next_number=F("next_number") + count)
    found = [facade.entry_by_id(entry.pk) for entry in entries]
    return [entry for entry in found if entry is not None]


def backdate_sale_start(event: EventView, *, ago: timedelta = timedelta(seconds=1)) -> EventView:
    """Move the on-sale's opening into the past, before any tick. Return the event as it is then."""
    opens_at = clock.now() - ago
    OnSale.objects.filter(event_id=event.id).update(
        opens_at=opens_at,
        room_lobby_opens_at=opens_at - timedelta(hours=1),
        sign_up_closes_at=Case(When(sign_up_closes_at__isnull=False, then=Value(opens_at))),
    )
    cache.clear_all()
    return events.get_event_by_id(event.id)


def close_lobby(event: EventView) -> EventView:
    """Begin the on-sale, and let the gatekeeper's tick close the lobby."""
    event = backdate_sale_start(event)
    admission.tick(event.id, EPOCH)
    assert WaitingRoom.objects.get(event_id=event.id).state == "open"
    return event


def commit_to_beacon(
    event: EventView,
    source: str,
    number: int,
    at: datetime,
    *,
    reveal_by: datetime | None = None,
    scheme: str = UNCHAINED_G1,
) -> None:
    """Commit the draw to this round of this beacon, signed with the key of the tests."""
    draw = Draw.objects.get(pk=event.id)
    draw.reveal_by = reveal_by or clock.now() + timedelta(hours=1)
    chain = chain_for_tests(scheme)
    signed_by = {"scheme": chain.scheme, "public_key": chain.public_key.hex()}
    statement = json.loads(draw.statement) | {
        "beacon": {"source": source, "round": number, "at": clock.iso(at), **signed_by},
        "reveal_by": clock.iso(draw.reveal_by),
    }
    text = proofs.canonical(statement)
    draw.statement, draw.commitment = text.decode(), proofs.sha256(text)
    draw.save(update_fields=["statement", "commitment", "reveal_by"])
    named = lobby_draw.named_round(draw.statement)
    assert named == beacon.Round(source, number, datetime.fromisoformat(clock.iso(at)), chain)


def draw_all() -> None:
    """Run a draw worker until it is idle, and close it."""
    worker = lobby_draw.DrawWorker(database_url())
    try:
        worker.run_until_idle()
    finally:
        worker.close()


def drawn_numbers(event: EventView) -> dict[UUID, int]:
    """Return the drawn number of each entry."""
    return dict(DrawnPlace.objects.filter(event_id=event.id).values_list("entry_id", "number"))


def entry_numbers(event: EventView) -> dict[UUID, int | None]:
    """Return the number in each entry of the lobby."""
    return dict(QueueEntry.objects.filter(event_id=event.id, in_lobby=True).values_list("id", "number"))


def draw_of(event: EventView) -> Draw:
    return Draw.objects.get(pk=event.id)


def room_of(event: EventView) -> WaitingRoom:
    return WaitingRoom.objects.get(event_id=event.id)
