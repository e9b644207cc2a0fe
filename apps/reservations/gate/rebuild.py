"""Resets of gates from the ledger: every second while a section is sold out, and after every loss of the copy.

Counts are read without locks while holds and releases commit, and each of these is reported to the gate at a moment of
its own: before the reading, between it and the opening, or later. So a count is read together with PostgreSQL's
snapshot, and a change is reported with its transaction's id: the gate adds a change to a reading exactly if the
snapshot does not include it, even if it was reported before the reading came into force (`gate_count.lua`). No hold is
counted twice and no release is lost; either would refuse seats that are free.

The buyer who holds the last seats must not be refused, so the order of reads is fixed. First the upcoming deadlines: a
sweep between this read and the next is counted twice, which only lets more requests through. Then the counts. Then the
marks, so that they include every hold that is in the counts; and they reach Redis before the counts do.

A reading is dated by Redis's clock before it begins. A delayed one arrives too late to refuse anything, and never
replaces a newer one. Any number of processes may reset concurrently.

Marks expire by Redis's clock. If it jumps, forward or back, they expire too early or too late: the gate begins anew
and reads every mark again.
"""

import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from django.db import connection
from prometheus_client import Counter
from redis import Redis

from apps.events import facade as events
from apps.kernel import clock, lua, redis
from apps.kernel.db import sql
from apps.kernel.fastpath import cache
from apps.kernel.http import idempotency
from apps.reservations.gate import gate
from apps.reservations.gate.ledger_check import examine
from apps.reservations.lifecycle.gate_counts import ENTRY_MARK_MS, all_keys, attempt_all, keys

logger = logging.getLogger(__name__)

RESET_AFTER_MS = 1_000
CALM_AFTER_MS = 3_000
"""If no section is empty, the gate refuses nothing and its counts may be older."""
QUIET_AFTER_MS = 15_000
"""If, in addition, nothing was held, released or changed since the counts were read, they are still exact. The gate may
not refuse by counts this old; but no section is empty, and one that becomes empty requests a reset."""
WANTED_AFTER_MS = 500
"""If the gate requests a reset: a section became empty, or an overdue reservation was expired."""
OPENS_WITHIN = timedelta(minutes=10)
"""Gates are created this long before the on-sale."""
EXAMINE_AGAIN_SECONDS = 10.0
"""A gate that stays shut because the ledger is inconsistent is tried again at this interval."""
OVERLAP = timedelta(seconds=5)
"""The longest time between a hold's reading of the clock and its commit. Each marking starts this long before the end
of the last one."""
MARKS_FROM = timedelta(hours=idempotency.REMEMBERED_HOURS)
"""A gate that begins anew marks the holds of this long."""
PAGE_MAX = 5_000
PAGES_MAX = 20
"""Pages of marks per reset. A gate with more to read stays shut until later resets have read the rest."""
LAPSING_MAX = 5_000
JUMP_MS = 60_000
"""Marks are written with every reset. If the last ones are this old or this far in the future by Redis's clock, either
the clock has jumped or no reset ran for as long: all marks are read again."""
GATE_EXPIRY_MS = ENTRY_MARK_MS + 2 * 3_600_000
"""A gate expires this long after its last reset."""
REFUSED_SECONDS = 24 * 3_600
WHY_LENGTH_MAX = 500
OPENED = ("open", "later")
"""Outcomes after which current counts are in force: those of this reset, or newer ones."""

_PACKAGE = "apps.reservations"
_mark = lua.load(_PACKAGE, "gate_mark")
_open = lua.load(_PACKAGE, "gate_open", preceded_by="gate_count")
_read_clock = sql.load(_PACKAGE, "read_clock")
_free = sql.load(_PACKAGE, "gate_free")
_lapses = sql.load(_PACKAGE, "gate_lapses")
_marks = sql.load(_PACKAGE, "gate_marks")

resets = Counter("fairgate_gate_resets", "Resets of gates from the ledger, by outcome.", ["outcome"], registry=None)
METRICS = (resets,)
GATED_SECONDS = 2.0
"""How long a process caches which events have a gate."""


class _ResetSchedule:
    """The schedule of this process's resets, by its monotonic clock."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.gated: list[int] = []
        self.gated_until = 0.0
        self.not_before: dict[int, float] = {}
        """When a gate that could not be opened is tried again."""


_schedule = cache.register(_ResetSchedule())


@dataclass(frozen=True, slots=True)
class State:
    """The state of one gate in Redis."""

    now_ms: int
    """All times here are on Redis's clock."""
    server: str
    """The run id of the Redis server that answered."""
    epoch: str
    """Empty: there is no gate, or it must begin anew, since its marks were lost, another server wrote it or its clock
    has jumped."""
    found_epoch: str
    """The stored epoch, valid or not."""
    read_at_ms: int
    until_ms: int
    """0: the gate is shut."""
    marked_until: datetime | None
    is_wanted: bool
    is_calm: bool
    has_moved: bool
    """Stock was held or released since its counts were read."""
    change_count: int
    """The number of changes that were reported to it so far."""
    refused: str
    """Why the gate must not open until the ledger is consistent again."""

    @property
    def is_open(self) -> bool:
        return bool(self.epoch) and not self.refused and self.read_at_ms <= self.now_ms < self.until_ms

    @property
    def rests(self) -> bool:
        """Whether a reset would change nothing: no section is empty, and nothing has changed since the last one."""
        is_whole = bool(self.epoch) and not self.refused and self.until_ms > 0
        return is_whole and self.is_calm and not self.has_moved and not self.is_wanted

    @property
    def is_due(self) -> bool:
        age_ms = self.now_ms - self.read_at_ms
        if self.rests:
            return not 0 <= age_ms < QUIET_AFTER_MS
        after_ms = WANTED_AFTER_MS if self.is_wanted else CALM_AFTER_MS if self.is_calm else RESET_AFTER_MS
        return not self.is_open or not 0 <= age_ms < after_ms


def read_state(event_id: int) -> State | None:
    """Return the state of the event's gate; None while Redis is unavailable."""
    return read_states([event_id]).get(event_id)


def read_states(event_ids: Sequence[int]) -> dict[int, State]:
    """Return the states of these events' gates, in two round trips in all; empty while Redis is unavailable. A gate
    that cannot be read (a key of another type) is left out."""
    return redis.attempt(lambda client: _read_states(client, event_ids)) or {}


_FIELDS = (
    "epoch",
    "server",
    "read_at",
    "until",
    "marked_until",
    "marked_at",
    "wanted",
    "calm",
    "moved",
    "change_count",
)


def _read_states(client: Redis, event_ids: Sequence[int]) -> dict[int, State]:
    with client.pipeline(transaction=False) as pipe:
        pipe.time()
        pipe.info("server")
        for event_id in event_ids:
            pipe.hmget(keys(event_id)[0], _FIELDS)
            pipe.get(_refused_key(event_id))
        time_of_day, about, *answers = pipe.execute(raise_on_error=False)
    for answer in (time_of_day, about):
        if isinstance(answer, Exception):
            raise answer
    seconds, microseconds = time_of_day
    found: dict[int, tuple[list[str], str]] = {}
    for event_id, fields, refused in zip(event_ids, answers[::2], answers[1::2], strict=True):
        if isinstance(fields, Exception) or isinstance(refused, Exception):
            logger.warning("the gate of event %s cannot be read", event_id)
            continue
        found[event_id] = [gate.text(field) for field in fields], gate.text(refused)
    begun = [(event_id, fields[0]) for event_id, (fields, _) in found.items() if fields[0]]
    with client.pipeline(transaction=False) as pipe:
        for event_id, epoch in begun:
            pipe.zscore(keys(event_id)[1], f"epoch {epoch}")
        scores = pipe.execute(raise_on_error=False) if begun else []
    marked = {event_id for (event_id, _), score in zip(begun, scores, strict=True) if isinstance(score, float)}
    now_ms = seconds * 1_000 + microseconds // 1_000
    return {
        event_id: _state(fields, refused, str(about["run_id"]), now_ms, has_marks=event_id in marked)
        for event_id, (fields, refused) in found.items()
    }


def _state(fields: Sequence[str], refused: str, run_id: str, now_ms: int, *, has_marks: bool) -> State:
    epoch, server, read_at, until, marked_until, marked_at, wanted, calm, moved, change_count = fields
    # False if the marks are lost, if another server wrote the data (this one has an older copy, perhaps without the
    # latest marks), or if the clock has jumped.
    is_whole = server in ("", run_id) and has_marks and abs(now_ms - int(marked_at or 0)) <= JUMP_MS
    return State(
        now_ms=now_ms,
        server=run_id,
        epoch=epoch if is_whole else "",
        found_epoch=epoch,
        read_at_ms=int(read_at or 0),
        until_ms=int(until or 0),
        marked_until=datetime.fromisoformat(marked_until) if marked_until else None,
        is_wanted=bool(wanted),
        is_calm=bool(calm),
        has_moved=bool(moved),
        change_count=int(change_count or 0),
        refused=refused,
    )


def gated_event_ids() -> list[int]:
    """Return the events that should have a gate: on sale, or on sale within OPENS_WITHIN."""
    now = clock.now()
    return sorted({*events.selling_event_ids(now), *events.selling_event_ids(now + OPENS_WITHIN)})


def reset_due() -> int:
    """Reset every gate that is due; return how many were opened. Any number of processes may do this concurrently: once
    one has reset a gate, it is no longer due for the others."""
    if time.monotonic() >= _schedule.gated_until:
        _schedule.gated, _schedule.gated_until = gated_event_ids(), time.monotonic() + GATED_SECONDS
        _schedule.not_before = {of: at for of, at in _schedule.not_before.items() if of in _schedule.gated}
    now = time.monotonic()
    event_ids = [event_id for event_id in _schedule.gated if now >= _schedule.not_before.get(event_id, 0.0)]
    due = {event_id: state for event_id, state in read_states(event_ids).items() if state.is_due} if event_ids else {}
    for event_id, outcome in (outcomes := _reset_all(due)).items():
        if outcome not in OPENED:
            rest = EXAMINE_AGAIN_SECONDS if outcome == "refused" else RESET_AFTER_MS / 1_000
            _schedule.not_before[event_id] = time.monotonic() + rest
    return sum(outcome in OPENED for outcome in outcomes.values())


def reset(event_id: int) -> str:
    """Reset the event's gate and return the outcome. After one of OPENED it has current counts. After any other it lets
    all requests through: "away" (Redis is unavailable), "out_of_memory" (of Redis), "refused" (the ledger is
    inconsistent; see `ledger_check`), "catching_up" (more holds to mark than one reset reads: the next continues),
    "lapsing" (too many reservations are overdue), "late" (the reading was delayed), "lost" (its marks are lost, or the
    clock has jumped) or "another_server" (the next reset begins anew)."""
    state = read_state(event_id)
    return "away" if state is None else _reset_all({event_id: state})[event_id]


def _reset_all(states: Mapping[int, State]) -> dict[int, str]:
    """Reset these gates, whose states were just read; return the outcomes as in `reset`.

    One set of statements reads all of them. A gate that begins anew reads a whole day of marks and
    is reset separately.
    """
    going_on = {event_id: state for event_id, state in states.items() if state.epoch and not state.refused}
    outcomes = _read_and_open(going_on) if going_on else {}
    for event_id, state in states.items():
        if event_id not in going_on:
            outcomes[event_id] = _begin(event_id, state)
    for outcome in outcomes.values():
        resets.labels(outcome).inc()
    return outcomes


def _begin(event_id: int, state: State) -> str:
    """Begin the gate anew if the ledger is consistent; return the outcome."""
    found = [f"{section.slug}: {difference}" for section in examine(event_id) for difference in section.differences]
    if found:
        forbid_opening(event_id, found)
        return "refused"
    if state.refused:
        allow_opening(event_id)
    # The gate exists before its counts are read, so that what is committed from then on is reported to it.
    epoch = secrets.token_hex(8)
    oldest = (clock.now() - MARKS_FROM).astimezone(UTC).isoformat()
    arguments: list[lua.Argument] = [epoch, state.found_epoch, oldest, ENTRY_MARK_MS, GATE_EXPIRY_MS, JUMP_MS]
    (begun,) = attempt_all(_mark, [(event_id, arguments)], all_keys)
    if begun != 1:
        return "lost" if begun == 0 else gate.text(begun) or "away"
    anew = replace(state, epoch=epoch, found_epoch=epoch, marked_until=None, change_count=0)
    return _read_and_open({event_id: anew})[event_id]


def _read_and_open(states: Mapping[int, State]) -> dict[int, str]:
    """Read the counts and marks of these gates, which all exist, and open them; return the outcomes as in `reset`."""
    event_ids = list(states)
    with connection.cursor() as cursor:
        ((now,),) = _read_clock.rows(cursor)
        lapsing, too_much = _read_lapses(cursor, event_ids, now)
        sections = events.section_ids(event_ids)
        counts = {
            section_id: (free, snapshot)
            for section_id, free, snapshot in _free.rows(
                cursor, section_ids=[section for of_event in sections.values() for section in of_event]
            )
        }
        outcomes = _mark_all(cursor, states, now)
    opening: list[tuple[int, list[lua.Argument]]] = []
    for event_id, state in states.items():
        if event_id in outcomes:
            continue
        if event_id in too_much:
            outcomes[event_id] = "lapsing"
            continue
        snapshot = next((counts[section_id][1] for section_id in sections[event_id]), "")
        arguments: list[lua.Argument] = [state.epoch, state.server, state.now_ms, gate.VALID_MS]
        arguments += [snapshot, state.change_count]
        for section_id in sections[event_id]:
            times = [f"{state.now_ms + after_ms}:{quantity}" for after_ms, quantity in lapsing[section_id]]
            arguments += [section_id, counts[section_id][0], " ".join(times)]
        opening.append((event_id, arguments))
    for (event_id, _), opened in zip(opening, attempt_all(_open, opening, all_keys), strict=True):
        outcomes[event_id] = gate.text(opened) or "away"
    return outcomes


def _read_lapses(
    cursor: sql.Cursor, event_ids: Sequence[int], now: datetime
) -> tuple[dict[int, list[tuple[int, int]]], set[int]]:
    """Return the deadlines that pass while the counts are in force, by section as milliseconds and quantity; and the
    events with LAPSING_MAX or more of them."""
    until = now + timedelta(milliseconds=gate.VALID_MS)
    lapses: dict[int, list[tuple[int, int]]] = defaultdict(list)
    too_much: set[int] = set()
    for event_id, section_id, milliseconds, quantity, looked_at in _lapses.rows(
        cursor, event_ids=list(event_ids), now=now, until=until, most=LAPSING_MAX
    ):
        lapses[section_id].append((milliseconds, quantity))
        if looked_at >= LAPSING_MAX:
            too_much.add(event_id)
    return lapses, too_much


def _mark_all(cursor: sql.Cursor, gates: Mapping[int, State], now: datetime) -> dict[int, str]:
    """Mark the entries of all holds of these events with a response stored since the last marking; return the outcome
    of each event that failed."""
    oldest = now - MARKS_FROM
    after = now
    for state in gates.values():
        after = min(after, oldest if state.marked_until is None else max(oldest, state.marked_until - OVERLAP))
    failed: dict[int, str] = {}
    for _ in range(PAGES_MAX):
        rows = _marks.rows(cursor, event_ids=[str(event_id) for event_id in gates], after=after, most=PAGE_MAX)
        is_last = len(rows) < PAGE_MAX
        after = after if is_last else rows[-1][0]
        reached = (now if is_last else after).astimezone(UTC).isoformat()
        entries: dict[int, set[str]] = defaultdict(set)
        for _, event_id, entry_id in rows:
            entries[int(event_id)].add(str(entry_id))
        marking: list[tuple[int, list[lua.Argument]]] = [
            (
                event_id,
                [state.epoch, state.epoch, reached, ENTRY_MARK_MS, GATE_EXPIRY_MS, JUMP_MS, *entries[event_id]],
            )
            for event_id, state in gates.items()
            if event_id not in failed
        ]
        for (event_id, _), marked in zip(marking, attempt_all(_mark, marking, all_keys), strict=True):
            if marked != 1:
                failed[event_id] = "lost" if marked == 0 else gate.text(marked) or "away"
        if is_last:
            return failed
    return dict.fromkeys(gates, "catching_up") | failed


def _refused_key(event_id: int) -> str:
    return f"{keys(event_id)[0]}:refused"


def forbid_opening(event_id: int, found: Sequence[str]) -> None:
    """Delete the gate and keep it shut until the differences are gone: holds go to the ledger, which cannot oversell.
    Logs one line."""
    why = "; ".join(found)[:WHY_LENGTH_MAX]

    def mark(client: Redis) -> bool:
        # Delete the whole gate, so that it is checked again before it opens even if the key below is lost.
        client.delete(keys(event_id)[0])
        return bool(client.set(_refused_key(event_id), why, nx=True, ex=REFUSED_SECONDS))

    if redis.attempt(mark):
        logger.error("the gate of event %s stays shut: %s", event_id, why)


def allow_opening(event_id: int) -> None:
    """Allow a gate that was kept shut to open again."""
    if redis.attempt(lambda client: client.delete(_refused_key(event_id))):
        logger.warning("the gate of event %s may open again: the ledger is consistent", event_id)


def states() -> dict[str, int]:
    """Return how many of the expected gates are open, shut, or refused (the ledger is inconsistent)."""
    found = dict.fromkeys(("open", "shut", "refused"), 0)
    gated = gated_event_ids()
    seen = read_states(gated) if gated else {}
    for state in map(seen.get, gated):
        is_in_order = state is not None and (state.is_open or (state.rests and not state.is_due))
        found["open" if is_in_order else "refused" if state is not None and state.refused else "shut"] += 1
    return found


def counts_of(event_id: int) -> dict[int, int] | None:
    """Return the gate's counts by section id; None if it is shut or Redis is unavailable."""
    state = read_state(event_id)
    if state is None or not state.is_open:
        return None
    found = redis.attempt(lambda client: client.hgetall(keys(event_id)[0])) or {}
    fields = {gate.text(name): int(value) for name, value in found.items() if gate.text(name).startswith("left ")}
    return {int(name.removeprefix("left ")): left for name, left in fields.items()}
