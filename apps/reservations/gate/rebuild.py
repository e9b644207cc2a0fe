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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connection
from prometheus_client import Counter
from redis import Redis

from apps.events import facade as events
from apps.kernel import clock, lua, redis
from apps.kernel.db import sql
from apps.kernel.http import idempotency
from apps.reservations.gate import gate
from apps.reservations.gate.ledger_check import examine
from apps.reservations.inventory.availability import free_counts
from apps.reservations.lifecycle.gate_counts import ENTRY_MARK_MS, attempt_all, keys

logger = logging.getLogger(__name__)

RESET_AFTER_MS = 1_000
CALM_AFTER_MS = 3_000
"""Where no section is empty nobody is refused, and counts may be older."""
QUIET_AFTER_MS = 15_000
"""Where besides nothing was held, released or moved since they were read, they say what a reading would say now. They
are too old to refuse by then; but nothing is empty, and what becomes empty asks to be read."""
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
GATE_EXPIRY_MS = ENTRY_MARK_MS + 2 * 3_600_000
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


class _ResetSchedule:
    """What this process knows of its own resetting, by its monotonic clock."""

    def __init__(self) -> None:
        self.gated: list[int] = []
        self.gated_until = 0.0
        self.not_before: dict[int, float] = {}
        """When a gate that could not be opened is tried again."""


_schedule = _ResetSchedule()


def clear_cache() -> None:
    """As in a process that has just started."""
    _schedule.gated, _schedule.gated_until = [], 0.0
    _schedule.not_before.clear()


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
    has_moved: bool
    """Somebody held or gave back since its counts were read."""
    refused: str
    """Why it must not open, until somebody has looked."""

    @property
    def is_open(self) -> bool:
        return bool(self.epoch) and not self.refused and self.read_at_ms <= self.now_ms < self.until_ms

    @property
    def rests(self) -> bool:
        """Whether it would refuse nobody were its counts read now: nothing has happened since they were."""
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
    """The event's gate; None while Redis is away."""
    return read_states([event_id]).get(event_id)


def read_states(event_ids: Sequence[int]) -> dict[int, State]:
    """The gates of these events, in two journeys however many they are; none of them while Redis is away. One that
    cannot be read (a key of another kind) is left out."""
    return redis.attempt(lambda client: _read_states(client, event_ids)) or {}


_FIELDS = ("epoch", "server", "read_at", "until", "marked_until", "marked_at", "wanted", "calm", "moved")


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
    epoch, server, read_at, until, marked_until, marked_at, wanted, calm, moved = fields
    # Else what this server has was written to another one (an older copy of it, perhaps without its latest marks), or
    # its clock has jumped.
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
        refused=refused,
    )


def gated_event_ids() -> list[int]:
    """The events that should have a gate: on sale, or on sale within minutes."""
    now = clock.now()
    return sorted({*events.selling_event_ids(now), *events.selling_event_ids(now + OPENS_WITHIN)})


def reset_due() -> int:
    """Every gate whose counts are due is reset; how many were opened. Any number of processes may do this beside each
    other: who comes first spares the others the work."""
    if time.monotonic() >= _schedule.gated_until:
        _schedule.gated, _schedule.gated_until = gated_event_ids(), time.monotonic() + GATED_SECONDS
        _schedule.not_before = {of: at for of, at in _schedule.not_before.items() if of in _schedule.gated}
    now = time.monotonic()
    asked = [event_id for event_id in _schedule.gated if now >= _schedule.not_before.get(event_id, 0.0)]
    due = {event_id: state for event_id, state in read_states(asked).items() if state.is_due} if asked else {}
    for event_id, outcome in (outcomes := _reset_all(due)).items():
        if outcome not in OPENED:
            rest = EXAMINE_AGAIN_SECONDS if outcome == "refused" else RESET_AFTER_MS / 1_000
            _schedule.not_before[event_id] = time.monotonic() + rest
    return sum(outcome in OPENED for outcome in outcomes.values())


def reset(event_id: int) -> str:
    """The event's gate has the counts of this moment, if what this returns is one of OPENED. Otherwise it lets
    everybody through: "away" (Redis is), "out_of_memory" (so is Redis), "refused" (the ledger differs from itself;
    see `ledger_check`), "catching_up" (more holds to mark than one reset reads: the next goes on), "lapsing" (so much
    has lapsed that all is open), "late", "lost" (its marks, or the clock jumped under it) or "another_server" (the next
    one begins anew)."""
    state = read_state(event_id)
    return "away" if state is None else _reset_all({event_id: state})[event_id]


def _reset_all(states: Mapping[int, State]) -> dict[int, str]:
    """Every one of these gates, as it was just seen, has the counts of this moment; what that came to, as in `reset`.

    What stands is read for all of them at once, in as many statements as for one. One that has to begin anew reads a
    whole day of marks: that is done by itself.
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
    """The gate is there, or there again, unless the ledger differs from itself."""
    found = [f"{section.slug}: {difference}" for section in examine(event_id) for difference in section.differences]
    if found:
        forbid_opening(event_id, found)
        return "refused"
    if state.refused:
        allow_opening(event_id)
    return _read_and_open({event_id: state})[event_id]


def _read_and_open(states: Mapping[int, State]) -> dict[int, str]:
    event_ids = list(states)
    epochs = {event_id: state.epoch or secrets.token_hex(8) for event_id, state in states.items()}
    with connection.cursor() as cursor:
        ((now,),) = _read_clock.rows(cursor)
        lapsing, too_much = _read_lapses(cursor, event_ids, now)
        sections = events.section_ids(event_ids)
        counts = free_counts([section for of_event in sections.values() for section in of_event])
        outcomes = _mark_all(cursor, {event_id: (epochs[event_id], states[event_id]) for event_id in event_ids}, now)
    opening: list[tuple[int, list[lua.Argument]]] = []
    for event_id, state in states.items():
        if event_id in outcomes:
            continue
        if event_id in too_much:
            outcomes[event_id] = "lapsing"
            continue
        arguments: list[lua.Argument] = [epochs[event_id], state.server, state.now_ms, gate.VALID_MS]
        for section_id in sections[event_id]:
            times = [f"{state.now_ms + after_ms}:{quantity}" for after_ms, quantity in lapsing[section_id]]
            arguments += [section_id, counts[section_id], " ".join(times)]
        opening.append((event_id, arguments))
    for (event_id, _), opened in zip(opening, attempt_all(_open, opening), strict=True):
        outcomes[event_id] = gate.text(opened) or "away"
    return outcomes


def _read_lapses(
    cursor: sql.Cursor, event_ids: Sequence[int], now: datetime
) -> tuple[dict[int, list[tuple[int, int]]], set[int]]:
    """What lapses while the counts are in force, by section: after how many milliseconds how much; and the events of
    which it is too much to be told in full."""
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


def _mark_all(cursor: sql.Cursor, gates: Mapping[int, tuple[str, State]], now: datetime) -> dict[int, str]:
    """Every hold of these events that is remembered since they were last marked is marked; of those where that failed,
    why. Of each: the epoch that it has or begins with, and how it stands."""
    oldest = now - timedelta(hours=idempotency.REMEMBERED_HOURS)
    after = now
    replaces = {}
    for event_id, (_, state) in gates.items():
        marked_until = state.marked_until if state.epoch else None
        after = min(after, oldest if marked_until is None else max(oldest, marked_until - OVERLAP))
        replaces[event_id] = state.found_epoch
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
                [epoch, replaces[event_id], reached, ENTRY_MARK_MS, GATE_EXPIRY_MS, JUMP_MS, *entries[event_id]],
            )
            for event_id, (epoch, _) in gates.items()
            if event_id not in failed
        ]
        for (event_id, _), marked in zip(marking, attempt_all(_mark, marking), strict=True):
            if marked != 1:
                failed[event_id] = "lost" if marked == 0 else gate.text(marked) or "away"
            replaces[event_id] = gates[event_id][0]
        if is_last:
            return failed
    return dict.fromkeys(gates, "catching_up") | failed


def _refused_key(event_id: int) -> str:
    return f"{keys(event_id)[0]}:refused"


def forbid_opening(event_id: int, found: Sequence[str]) -> None:
    """The gate is gone and marked: holds go to the ledger, which cannot oversell, until what was found differing is
    no more. One line in the log says so."""
    why = "; ".join(found)[:WHY_LENGTH_MAX]

    def mark(client: Redis) -> bool:
        # Whole: so that it is examined again before it ever opens, also where the mark below is lost.
        client.delete(keys(event_id)[0])
        return bool(client.set(_refused_key(event_id), why, nx=True, ex=REFUSED_SECONDS))

    if redis.attempt(mark):
        logger.error("the gate of event %s stays shut: %s", event_id, why)


def allow_opening(event_id: int) -> None:
    """What the gate was refused for is gone."""
    if redis.attempt(lambda client: client.delete(_refused_key(event_id))):
        logger.warning("the gate of event %s may open again: the ledger agrees with itself", event_id)


def states() -> dict[str, int]:
    """How many of the gates that should be there are open, shut for now, or refused until somebody has looked."""
    found = dict.fromkeys(("open", "shut", "refused"), 0)
    gated = gated_event_ids()
    seen = read_states(gated) if gated else {}
    for state in map(seen.get, gated):
        is_in_order = state is not None and (state.is_open or (state.rests and not state.is_due))
        found["open" if is_in_order else "refused" if state is not None and state.refused else "shut"] += 1
    return found


def counts_of(event_id: int) -> dict[int, int] | None:
    """What the gate says is left in each section, by section id; None where it is shut or Redis is away."""
    state = read_state(event_id)
    if state is None or not state.is_open:
        return None
    found = redis.attempt(lambda client: client.hgetall(keys(event_id)[0])) or {}
    fields = {gate.text(name): int(value) for name, value in found.items() if gate.text(name).startswith("left ")}
    return {int(name.removeprefix("left ")): left for name, left in fields.items()}
