"""The figures of a line for the report after the sale, counted in short reads, and the state of its proof."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from apps.events import facade as events
from apps.kernel.checks import auditor
from apps.kernel.db import sql
from apps.queue import beacon_chains, proofs
from apps.queue.fairness import published, stored, verification
from apps.queue.fairness.json_fields import Mismatch
from apps.queue.models import QueueEntry, RoomAct
from apps.queue.room.event_change import ON_SALE_AGAIN
from apps.queue.room_row import SYSTEM

_PACKAGE = "apps.queue"
_REOPENING = re.compile(rf": {ON_SALE_AGAIN}, after (\d+) numbers, (\d+) with priority, chain ([0-9a-f]*)$")
_entries = sql.load(_PACKAGE, "report_entries")
_admissions = sql.load(_PACKAGE, "report_admissions")
_acts = sql.load(_PACKAGE, "report_acts")


@dataclass(slots=True)
class LineFigures:
    """Counts up to one moment. Lists have one count for each given point in time: what happened between the previous
    point and this one."""

    joined: int = 0
    lobby: int = 0
    accounts: int = 0
    priority: int = 0
    admitted: int = 0
    waits: Counter[int] = field(default_factory=Counter)
    """People by the whole seconds from joining (or from the opening, for the lobby) to their latest admission."""
    joined_at: list[int] = field(default_factory=list)
    admissions_at: list[int] = field(default_factory=list)
    admissions: Counter[str] = field(default_factory=Counter)
    """By reason. A visitor who did not come in time and was admitted again counts twice."""
    performed: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    """Acts of operators by kind."""


def count_line(event: events.EventView, as_of: datetime, edges: Sequence[int]) -> LineFigures:
    """Count the event's line up to `as_of`. `edges` are points in time, in seconds since the opening, the last one
    after `as_of`."""
    found = LineFigures(joined_at=[0] * len(edges), admissions_at=[0] * len(edges))
    points = {"event_id": event.id, "as_of": as_of, "opens_at": event.policy.opens_at, "edges": list(map(float, edges))}

    def count_batch(cursor: Any, after: UUID, until: UUID) -> None:
        for in_lobby, has_account, is_marked, at, waited, count in _entries.rows(
            cursor, after=after, until=until, **points
        ):
            found.joined += count
            found.lobby += count * in_lobby
            found.accounts += count * has_account
            found.priority += count * is_marked
            found.joined_at[at] += count
            if waited is not None:
                found.admitted += count
                found.waits[waited] += count

    auditor.scan_in_batches(QueueEntry.objects.filter(event_id=event.id), UUID(int=0), count_batch)
    with auditor.read_cursor() as cursor:
        for reason, at, count in _admissions.rows(cursor, **points):
            found.admissions[reason] += count
            found.admissions_at[at] += count
        for what, is_refused, count in _acts.rows(cursor, event_id=event.id, as_of=as_of, system=SYSTEM):
            (found.refused if is_refused else found.performed)[what] = count
    return found


def describe_proof(event: events.EventView) -> dict[str, Any]:
    """Verify the line as `verify_queue` does; return the result with the values that fix the order."""
    # Converted to JSON and back: the types are those of a fetched document.
    document = json.loads(json.dumps(published.document(event)))
    outcome: Any = verification.verify(document, lambda part, after: published.page(event, part, after).body)
    mismatch = outcome if isinstance(outcome, Mismatch) else stored.check(event.id)
    return {
        "is_verified": mismatch is None,
        "mismatch": None if mismatch is None else str(mismatch),
        **proof_values(document),
    }


def verify_published(document: Any, fetch: verification.Fetch) -> dict[str, Any] | str:
    """Verify a published proof. Return the whole document, with all pages joined, or the first mismatch."""
    pages: dict[str, list[Any]] = {}

    def fetch_and_keep(part: str, after: int) -> Any:
        page = fetch(part, after)
        pages.setdefault(part, []).append(page)
        return page

    outcome = verification.verify(document, fetch_and_keep)
    return str(outcome) if isinstance(outcome, Mismatch) else published.merge_pages(document, pages)


class Reopening(NamedTuple):
    """The state of a line when its sale was opened again."""

    numbers: int
    priority: int
    chain_head: str


def find_reopening(document: Any, as_of: datetime) -> Reopening | None:
    """Return the state when the sale was first opened again after this moment, as a whole proof shows it; None if it
    was not."""
    for item in document["acts"]["items"]:
        is_later = datetime.fromisoformat(item["at"]) > as_of and item["what"] == RoomAct.What.STATE
        if is_later and (found := _REOPENING.search(item["detail"])):
            return Reopening(int(found[1]), int(found[2]), found[3])
    return None


def was_sold_again(event_id: int, as_of: datetime) -> bool:
    """Return whether the event's sale was opened again after this moment."""
    acts = RoomAct.objects.filter(event=event_id, what=RoomAct.What.STATE, at__gt=as_of)
    return acts.filter(detail__contains=f": {ON_SALE_AGAIN}, after ").exists()


def figures_of_proof(document: Any, as_of: datetime) -> dict[str, Any]:
    """Return those figures of a line that follow from its verified whole proof, up to `as_of`. If the sale was opened
    again since, numbers and priority are those of that moment: in between, the line did not change. Raises ValueError
    if the proof contradicts itself about it."""

    def until(part: str) -> list[Any]:
        items = document[part]["items"][: document["room"][f"{part}_count"]]
        return [item for item in items if datetime.fromisoformat(item["at"]) <= as_of]

    numbers, priority = document["room"]["next_number"] - 1, len(document["marked"]["items"])
    if (reopening := find_reopening(document, as_of)) is not None:
        if not document["room"]["lobby_count"] <= reopening.numbers <= numbers or reopening.priority > priority:
            raise ValueError("the sale was opened again with more numbers or priority than there are")
        if _chain_head(document, reopening.numbers) != reopening.chain_head:
            raise ValueError("the sale was opened again with another chain than that of its numbers")
        numbers, priority = reopening.numbers, reopening.priority
    admissions: Counter[str] = Counter()
    for item in until("admissions"):
        admissions[item["reason"]] += item["count"]
    acts = [item for item in until("acts") if item["by"] == "operator"]
    return {
        "joined": numbers,
        "lobby": document["room"]["lobby_count"],
        "priority": priority,
        "admissions": dict(admissions),
        "performed": dict(Counter(item["what"] for item in acts if not item["refused"])),
        "refused": dict(Counter(item["what"] for item in acts if item["refused"])),
        "proof": proof_values(document, numbers),
    }


def proof_values(document: Any, numbers: int | None = None) -> dict[str, Any]:
    """Return the values of a published proof that fix the order of the line: of its first `numbers`, of all without."""
    draw = document["draw"] or {}
    beacon = json.loads(draw["statement"]).get("beacon") if draw else None
    if numbers is None:
        numbers = document["room"]["next_number"] - 1
    return {
        "numbers": numbers,
        "lobby": document["room"]["lobby_count"],
        "chain_head": _chain_head(document, numbers),
        **{
            name: draw.get(name)
            for name in ("commitment", "digest", "seed", "beacon_value", "beacon_signature", "is_operator_proof")
        },
        "beacon_network": beacon_chains.name_of_network(beacon),
    }


def _chain_head(document: Any, numbers: int) -> str:
    """Return the head of the chain after this number; the document is whole if it is not the last one."""
    if numbers == document["room"]["next_number"] - 1:
        return str(document["room"]["chain_head"])
    page, chain = document["places"], b""
    for number in range(document["room"]["lobby_count"] + 1, numbers + 1):
        leaf = bytes.fromhex(page["leaves"][number - page["from"]])
        chain = proofs.link(chain or proofs.genesis(document["event"]), number, leaf)
    return chain.hex()
