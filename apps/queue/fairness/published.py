"""The public data that proves the order of an event's queue: numbers, leaves, the draw and operators' acts, without
personal data. docs/fairness.md describes the format in enough detail to write a second verifier.

A document contains the room's state at one moment and the first page of each part. Further pages are fetched by part
and cursor. Leaves of numbers below the document's `next_number` never change, so a document and pages that are fetched
while visitors join still verify.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql
from apps.kernel.http import problems
from apps.queue.fairness import receipts
from apps.queue.models import RoomAct
from apps.queue.room_row import SYSTEM

FORMAT = 1
LEAVES_PER_PAGE = 10_000
ENTRANTS_PAGE = 5_000
ENTRANTS_PAGES_MAX = 65_536
LIST_PAGE = 2_000
AFTER_MAX = 10**15
PARTS = ("places", "entrants", "marked", "admissions", "acts")

_PACKAGE = "apps.queue"
_header = sql.load(_PACKAGE, "proof_header")
_leaves = sql.load(_PACKAGE, "proof_leaves")
_entrants = sql.load(_PACKAGE, "proof_entrants")
_marked = sql.load(_PACKAGE, "proof_marked")
_admissions = sql.load(_PACKAGE, "proof_admissions")
_acts = sql.load(_PACKAGE, "proof_acts")
_latest_acts = sql.load(_PACKAGE, "proof_latest_acts")

# The published fields of `Header`.
_ROOM_FIELDS = ("state", "next_number", "chain_head", "lobby_count", "head", "admissions_count", "acts_count")
_DRAW_FIELDS = (
    "statement", "commitment", "committed_at", "reveal_by", "frozen_at", "entrants_count", "digest", "digest_at",
    "secret", "beacon_value", "beacon_signature", "beacon_previous_signature", "revealed_at", "seed",
    "is_operator_proof", "drawn_at", "numbered_at",
)  # fmt: skip
# The detail of a VIP link may name a person.
_DETAIL_WITHHELD = frozenset({RoomAct.What.LINK})


class RoomNotFound(problems.NotFound):
    title = "This event has no waiting room."


@dataclass(frozen=True, slots=True)
class Header:
    """A room and its draw at one moment."""

    at: datetime
    state: str
    next_number: int
    chain_head: bytes
    lobby_count: int
    head: int
    acts_count: int
    admissions_count: int
    statement: str | None
    commitment: bytes | None
    committed_at: datetime | None
    reveal_by: datetime | None
    frozen_at: datetime | None
    digest: bytes | None
    digest_at: datetime | None
    secret: bytes | None = field(repr=False)
    beacon_value: bytes | None
    beacon_signature: bytes | None
    beacon_previous_signature: bytes | None
    revealed_at: datetime | None
    seed: bytes | None
    is_operator_proof: bool | None
    drawn_at: datetime | None
    numbered_at: datetime | None

    @property
    def entrants_count(self) -> int | None:
        return None if self.frozen_at is None else self.lobby_count

    @property
    def first_number(self) -> int:
        """The lowest number with a published leaf: the lobby's numbers have none before the draw."""
        return 1 if self.drawn_at is not None else self.lobby_count + 1

    @property
    def drawn_through(self) -> int:
        """The last number to read from the draw, because the entries do not have their numbers yet; 0 if they do."""
        return self.lobby_count if self.drawn_at is not None and self.numbered_at is None else 0


@dataclass(frozen=True, slots=True)
class Page:
    body: dict[str, Any]
    is_final: bool
    """The page will never change and may be cached."""


def read_header(event_id: int) -> Header:
    """Return the current state of the room and its draw. Raises RoomNotFound."""
    with connection.cursor() as cursor:
        rows = _header.rows(cursor, event_id=event_id)
    if not rows:
        raise RoomNotFound
    values: list[Any] = [bytes(value) if isinstance(value, memoryview) else value for value in rows[0]]
    return Header(*values)


def document(event: events.EventView) -> dict[str, Any]:
    """Return the document: room, draw, keys, and the first page of each part. Raises RoomNotFound."""
    header = read_header(event.id)
    return {
        **summary(event, header),
        "keys": receipts.published_keys(),
        "places": _leaves_page(event.id, header, 0).body,
        "entrants": _entrants_page(event.id, header, 0).body if header.digest is not None else None,
        **{part: _list_page(event.id, part, 0).body for part in ("marked", "admissions", "acts")},
    }


def summary(event: events.EventView, header: Header) -> dict[str, Any]:
    """Return the published form of the room and its draw."""
    return {
        "format": FORMAT,
        "event": event.slug,
        "generated_at": clock.iso(header.at),
        "room": {name: _public_value(getattr(header, name)) for name in _ROOM_FIELDS},
        "draw": None
        if header.statement is None
        else {name: _public_value(getattr(header, name)) for name in _DRAW_FIELDS},
    }


def _public_value(value: Any) -> Any:
    """Return the value as published: bytes in hex, a time in ISO 8601, others as they are."""
    if isinstance(value, bytes):
        return value.hex()
    return clock.iso(value) if isinstance(value, datetime) else value


def page(event: events.EventView, part: str, after: int) -> Page:
    """Return one page of one part. Raises RoomNotFound, and NotFound for entrants before their digest is published."""
    header = read_header(event.id)
    if part == "places":
        found = _leaves_page(event.id, header, after)
    elif part == "entrants":
        found = _entrants_page(event.id, header, after)
    else:
        found = _list_page(event.id, part, after)
    return Page({"format": FORMAT, "event": event.slug, "part": part, **found.body}, found.is_final)


def _leaves_page(event_id: int, header: Header, after: int) -> Page:
    first = max(after + 1, header.first_number)
    last = min(first + LEAVES_PER_PAGE, header.next_number) - 1
    leaves: list[str | None] = [None] * max(0, last - first + 1)
    if leaves:
        with connection.cursor() as cursor:
            rows = _leaves.rows(cursor, event_id=event_id, first=first, last=last, drawn_through=header.drawn_through)
        for number, leaf in rows:
            leaves[number - first] = bytes(leaf).hex()
    is_full = len(leaves) == LEAVES_PER_PAGE
    body = {"from": first, "leaves": leaves, "next": last if is_full and last + 1 < header.next_number else None}
    # A page that skips the lobby's numbers is not final: after the draw, the same request returns these numbers.
    return Page(body, is_full and body["next"] is not None and first == after + 1)


def _entrants_page(event_id: int, header: Header, after: int) -> Page:
    if header.digest is None:
        raise problems.NotFound("The entrants are published after the lobby closes.")
    pages = 1
    while pages * ENTRANTS_PAGE < header.lobby_count and pages < ENTRANTS_PAGES_MAX:
        pages *= 2
    if after >= pages:
        return Page({"items": [], "next": None}, is_final=True)
    width = 2**128 // pages
    with connection.cursor() as cursor:
        rows = _entrants.rows(
            cursor,
            event_id=event_id,
            from_id=uuid.UUID(int=after * width),
            to_id=uuid.UUID(int=(after + 1) * width - 1),
        )
    return Page(
        {"items": [bytes(leaf).hex() for (leaf,) in rows], "next": after + 1 if after + 1 < pages else None}, True
    )


def _list_page(event_id: int, part: str, after: int) -> Page:
    with connection.cursor() as cursor:
        if part == "marked":
            rows = _marked.rows(cursor, event_id=event_id, after=after, most=LIST_PAGE)
            items = [{"number": number, "by": mark} for number, mark in rows]
        elif part == "admissions":
            rows = _admissions.rows(cursor, event_id=event_id, after=after, most=LIST_PAGE)
            items = [
                {"at": clock.iso(at), "reason": reason, "from": first, "to": last, "count": count}
                for _, at, reason, first, last, count in rows
            ]
        else:
            rows = _acts.rows(cursor, event_id=event_id, after=after, most=LIST_PAGE, system=SYSTEM)
            items = [{**_act(*act), "at": clock.iso(at)} for _, at, *act in rows]
    is_full = len(rows) == LIST_PAGE
    # Lower numbers can be marked later; the other two lists are append-only.
    return Page({"items": items, "next": rows[-1][0] if is_full else None}, is_full and part != "marked")


def _act(what: str, detail: str, is_system: bool, is_refused: bool) -> dict[str, Any]:
    # The detail of a refused act is what an operator has typed.
    return {
        "by": "system" if is_system else "operator",
        "what": what,
        "detail": "" if what in _DETAIL_WITHHELD or is_refused else detail,
        "refused": is_refused,
    }


def latest_acts(event_id: int, most: int) -> list[dict[str, Any]]:
    """Return the latest acts on the room in published form, latest first."""
    with connection.cursor() as cursor:
        rows = _latest_acts.rows(cursor, event_id=event_id, most=most, system=SYSTEM)
    return [{**_act(*act), "at": at} for at, *act in rows]


def first_marked(event_id: int, most: int) -> list[int]:
    """Return the lowest numbers that have priority."""
    with connection.cursor() as cursor:
        return [number for number, _ in _marked.rows(cursor, event_id=event_id, after=0, most=most)]


def merge_pages(first: Mapping[str, Any], pages: Mapping[str, list[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return one document that holds all pages of each part, as `verify_queue --save` writes it.

    `pages` are the further pages, at least those up to the document's state. Leaves of later numbers are left out.
    """
    whole = dict(first)
    for part in PARTS:
        if whole.get(part) is None:
            continue
        name = "leaves" if part == "places" else "items"
        further = [value for page in pages.get(part, ()) for value in page[name]]
        whole[part] = {**whole[part], name: [*whole[part][name], *further], "next": None}
    page = whole["places"]
    del page["leaves"][max(0, whole["room"]["next_number"] - page["from"]) :]
    return whole
