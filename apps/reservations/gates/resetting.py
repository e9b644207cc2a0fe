"""The gate's counts, read from the ledger: every second where something is sold out, and after every loss.

Counts are read under no lock, so they may be off by what commits meanwhile. That is safe: what they refuse wrongly
ends with the next reset, and what they let through wrongly the ledger refuses. What must not happen is that whoever
holds the last seats is told that they are gone; therefore the order of reading is fixed. First what lapses: read
before a sweep that the counts already contain, it only lets more through. Then the counts. Then the marks, so that
every hold that is in the counts is among them; and they reach Redis before the counts do.

A reading is dated by Redis's clock before it begins. One that was held up, in the ledger or on its way, comes too late
to refuse anybody, and never replaces a younger one. Any number of processes may reset at once.

Marks end by Redis's clock. Where it has jumped, ahead or back, they end too early or too late: the gate is begun anew
and every mark read again.
"""

import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from django.db import connection
from prometheus_client import Counter
from redis import Redis

from apps.events import facade as events
from apps.reservations.availability import free_counts
from apps.reservations.gates import gate
from apps.reservations.gates.examining import examine
from ticketing.kernel import clock, idempotency, lua, redis, sql

logger = logging.getLogger(__name__)

RESET_AFTER_MS = 1_000
CALM_AFTER_MS = 3_000
"""Where no section is empty nobody is refused, and counts may be older."""
WANTED_AFTER_MS = 500
"""Where the gate asks for it: a section became empty, or what had lapsed was ended."""
OPENS_WITHIN = timedelta(minutes=10)
"""So long before the on-sale its gate is there."""
EXAMINE_AGAIN_SECONDS = 10.0
"""A gate that was refused for what the ledger says is tried again so often."""
OVERLAP = timedelta(seconds=5)
"""Between a hold's reading of the clock and its commit; answers so old are read once more."""
PAGE_MAX = 5_000
PAGES_MAX = 20
"""Of marks, by one reset. A gate that lost more stays shut until a later reset has read on to the end."""
LAPSING_MAX = 5_000
JUMP_MS = 60_000
"""Marks are written with every reset. Where the last were written so long ago, or so far ahead, by Redis's clock, the
clock has jumped, or nobody reset for as long: either way they are all read again."""
KEPT_MS = gate.ENTRY_MARK_MS + 2 * 3_600_000
"""A gate that nobody resets any more goes away by itself."""
REFUSED_SECONDS = 24 * 3_600
WHY_LENGTH_MAX = 500
OPENED = ("open", "later")
"""What a reset comes to where counts of now are in force: its own, or somebody's younger ones."""

_PACKAGE = "apps.reservations"
_mark = lua.load(_PACKAGE, "gate_mark")
_open = lua.load(_PACKAGE, "gate_open")
_read_clock = sql.load(_PACKAGE, "read_clock")
_lapses = sql.load(_PACKAGE, "gate_lapses")
_marks = sql.load(_PACKAGE, "gate_marks")

resets = Counter(
    "fairgate_gate_resets", "Resets of gates from the ledger, by what they came to.", ["outcome"], registry=None
)
METRICS = (resets,)
GATED_SECONDS = 2.0
"""So long a process remembers which events want a gate."""


class _Memory:
    """What this process knows of its own resetting, by its monotonic clock."""

    def __init__(self) -> None:
        self.gated: list[int] = []
        self.gated_until = 0.0
        self.not_before: dict[int, float] = {}
        """When a gate that could not be opened is tried again."""


_memory = _Memory()


def forget_everything() -> None:
    """As in a process that has just started."""
    _memory.gated, _memory.gated_until = [], 0.0
    _memory.not_before.clear()


@dataclass(frozen=True, slots=True)
class State:
    """One gate as Redis has it."""

    now_ms: int
    """This and the other moments are on Redis's clock."""
    server: str
    """The run id of the Redis server that answered."""
    epoch: str
    """Empty: there is no gate, or it must be begun anew, since its marks were lost, another server wrote it or its
    clock has jumped."""
    found_epoch: str
    """Of what is there, whatever it is worth."""
    read_at_ms: int
    until_ms: int
    """0: it is shut."""
    marked_until: datetime | None
    is_wanted: bool
    is_calm: bool
    refused: str
    """Why it must not open, until somebody has looked."""

    @property
    def is_open(self) -> bool:
        return bool(self.epoch) and not self.refused and self.read_at_ms <= self.now_ms < self.until_ms

    @property
    def is_due(self) -> bool:
        age_ms = self.now_ms - self.read_at_ms
        after_ms = WANTED_AFTER_MS if self.is_wanted else CALM_AFTER_MS if self.is_calm else RESET_AFTER_MS
        return not self.is_open or not 0 <= age_ms < after_ms


def look(event_id: int) -> State | None:
    """The event's gate; None while Redis is away."""
    return redis.attempt(lambda client: _look(client, event_id))


def _look(client: Redis, event_id: int) -> State:
    key, marks = gate.keys(event_id)
    pipeline = client.pipeline(transaction=False)
    pipeline.time()
    pipeline.info("server")
    pipeline.hmget(key, "epoch", "server", "read_at", "until", "marked_until", "marked_at", "wanted", "calm")
    pipeline.get(_refused_key(event_id))
    (seconds, microseconds), about, found, refused = pipeline.execute()
    epoch, server, read_at, until, marked_until, marked_at, wanted, calm = map(gate.text, found)
    run_id = str(about["run_id"])
    now_ms = seconds * 1_000 + microseconds // 1_000
    found_epoch = epoch
    if server not in ("", run_id) or (epoch and client.zscore(marks, f"epoch {epoch}") is None):
        # What this server has was written to another one: an older copy of it, perhaps without its latest marks.
        epoch = ""
    if abs(now_ms - int(marked_at or 0)) > JUMP_MS:
        epoch = ""
    return State(
        now_ms=now_ms,
        server=run_id,
        epoch=epoch,
        found_epoch=found_epoch,
        read_at_ms=int(read_at or 0),
        until_ms=int(until or 0),
        marked_until=datetime.fromisoformat(marked_until) if marked_until else None,
        is_wanted=bool(wanted),
        is_calm=bool(calm),
        refused=gate.text(refused),
    )


def gated_event_ids() -> list[int]:
    """The events that should have a gate: on sale, or on sale within minutes."""
    now = clock.now()
    return sorted({*events.selling_event_ids(now), *events.selling_event_ids(now + OPENS_WITHIN)})


def reset_due() -> int:
    """Every gate whose counts are due is reset; how many were opened. Any number of processes may do this beside each
    other: who comes first spares the others the work."""
    count = 0
    if time.monotonic() >= _memory.gated_until:
        _memory.gated, _memory.gated_until = gated_event_ids(), time.monotonic() + GATED_SECONDS
        _memory.not_before = {of: at for of, at in _memory.not_before.items() if of in _memory.gated}
    for event_id in _memory.gated:
        if time.monotonic() < _memory.not_before.get(event_id, 0.0):
            continue
        state = look(event_id)
        # None: Redis is away, and then it costs nothing to ask for the others; or it cannot read this one.
        if state is None or not state.is_due:
            continue
        outcome = reset(event_id)
        if outcome in OPENED:
            count += 1
        else:
            rest = EXAMINE_AGAIN_SECONDS if outcome == "refused" else RESET_AFTER_MS / 1_000
            _memory.not_before[event_id] = time.monotonic() + rest
    return count


def reset(event_id: int) -> str:
    """The event's gate has the counts of this moment, if what this returns is one of OPENED. Otherwise it lets
    everybody through: "away" (Redis is), "out_of_memory" (so is Redis), "refused" (the ledger differs from itself;
    see `examining`), "catching_up" (more holds to mark than one reset reads: the next goes on), "lapsing" (so much
    has lapsed that all is open), "late", "lost" (its marks, or the clock jumped under it) or "another_server" (the next
    one begins anew)."""
    outcome = _reset(event_id)
    resets.labels(outcome).inc()
    return outcome


def _reset(event_id: int) -> str:
    state = look(event_id)
    if state is None:
        return "away"
    begins = not state.epoch
    if begins or state.refused:
        found = [f"{section.slug}: {difference}" for section in examine(event_id) for difference in section.differences]
        if found:
            refuse(event_id, found)
            return "refused"
        if state.refused:
            admit(event_id)
    epoch = secrets.token_hex(8) if begins else state.epoch
    with connection.cursor() as cursor:
        ((now,),) = _read_clock.rows(cursor)
        lapses, is_too_much = _read_lapses(cursor, event_id, now, state.now_ms)
        counts = free_counts(events.section_ids([event_id])[event_id])
        oldest = now - timedelta(hours=idempotency.REMEMBERED_HOURS)
        after = oldest if begins or state.marked_until is None else max(oldest, state.marked_until - OVERLAP)
        outcome = _mark_all(cursor, event_id, epoch, state.found_epoch, after, now)
    if outcome:
        return outcome
    if is_too_much:
        return "lapsing"
    arguments: list[str | int] = [epoch, state.server, state.now_ms, gate.VALID_MS]
    for section_id, left in counts.items():
        arguments += [section_id, left, lapses.get(section_id, "")]
    opened = gate.attempt(event_id, lambda client: _open.run(client, gate.keys(event_id), arguments))
    return gate.text(opened) or "away"


def _read_lapses(cursor: sql.Cursor, event_id: int, now: datetime, now_ms: int) -> tuple[dict[int, str], bool]:
    """What lapses while the counts are in force, by section; and whether it is too much to be told in full."""
    until = now + timedelta(milliseconds=gate.VALID_MS)
    rows = _lapses.rows(cursor, event_id=event_id, now=now, until=until, most=LAPSING_MAX)
    lapses: dict[int, list[str]] = defaultdict(list)
    for section_id, milliseconds, quantity, _ in rows:
        lapses[section_id].append(f"{now_ms + milliseconds}:{quantity}")
    is_too_much = bool(rows) and rows[0][3] >= LAPSING_MAX
    return {section_id: " ".join(times) for section_id, times in lapses.items()}, is_too_much


def _mark_all(cursor: sql.Cursor, event_id: int, epoch: str, replaces: str, after: datetime, now: datetime) -> str:
    """Every hold remembered after a moment is marked. Empty, or why not."""
    for _ in range(PAGES_MAX):
        rows = _marks.rows(cursor, event_id=event_id, after=after, most=PAGE_MAX)
        is_last = len(rows) < PAGE_MAX
        after = after if is_last else rows[-1][0]
        reached = now if is_last else after
        arguments: Sequence[str | int] = [
            epoch,
            replaces,
            reached.astimezone(UTC).isoformat(),
            gate.ENTRY_MARK_MS,
            KEPT_MS,
            JUMP_MS,
            *{str(entry_id) for _, entry_id in rows},
        ]
        marked = gate.attempt(event_id, partial(_mark.run, keys=gate.keys(event_id), arguments=arguments))
        if marked != 1:
            return "lost" if marked == 0 else gate.text(marked) or "away"
        if is_last:
            return ""
        replaces = epoch
    return "catching_up"


def _refused_key(event_id: int) -> str:
    return f"{gate.keys(event_id)[0]}:refused"


def refuse(event_id: int, found: Sequence[str]) -> None:
    """The gate is gone and marked: holds go to the ledger, which cannot oversell, until what was found differing is
    no more. One line in the log says so."""
    why = "; ".join(found)[:WHY_LENGTH_MAX]

    def mark(client: Redis) -> bool:
        # Whole: so that it is examined again before it ever opens, also where the mark below is lost.
        client.delete(gate.keys(event_id)[0])
        return bool(client.set(_refused_key(event_id), why, nx=True, ex=REFUSED_SECONDS))

    if redis.attempt(mark):
        logger.error("the gate of event %s stays shut: %s", event_id, why)


def admit(event_id: int) -> None:
    """What the gate was refused for is gone."""
    if redis.attempt(lambda client: client.delete(_refused_key(event_id))):
        logger.warning("the gate of event %s may open again: the ledger agrees with itself", event_id)


def states() -> dict[str, int]:
    """How many of the gates that should be there are open, shut for now, or refused until somebody has looked."""
    found = dict.fromkeys(("open", "shut", "refused"), 0)
    for event_id in gated_event_ids():
        state = look(event_id)
        word = "shut" if state is None else "refused" if state.refused else "open" if state.is_open else "shut"
        found[word] += 1
    return found


def counts_of(event_id: int) -> dict[int, int] | None:
    """What the gate says is left in each section, by section id; None where it is shut or Redis is away."""
    state = look(event_id)
    if state is None or not state.is_open:
        return None
    found = redis.attempt(lambda client: client.hgetall(gate.keys(event_id)[0])) or {}
    fields = {gate.text(name): int(value) for name, value in found.items() if gate.text(name).startswith("left ")}
    return {int(name.removeprefix("left ")): left for name, left in fields.items()}
