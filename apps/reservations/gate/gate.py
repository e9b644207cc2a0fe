"""The gate: counts per section in Redis. It refuses requests for sold-out sections and those without a required access
code; it decides nothing else.

Its counts come from the ledger and go out of date. The gate refuses only if its counts were read less than VALID_MS
ago, no overdue reservation may free tickets of the section, the Redis server is the one that they were written to, and
the entry never had a hold. In doubt it lets the request through to the ledger. So a count that is too high costs a
query, and one that is too low is corrected by the next reset, after VALID_MS at the latest; neither can oversell.

Counts and marks change together: the command that lowers a count also marks the hold's entry, and a reset marks the
entries of every hold that its counts can contain before they come into force (`rebuild.py`). A hold that never reached
Redis is therefore in no count either. So the buyer of the last seats is never refused, even if the process that held
them crashed right after its commit.
"""

import logging
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

from prometheus_client import Counter

from apps.events import facade as events
from apps.kernel import clock, lua, redis
from apps.kernel.http import problems
from apps.reservations.errors import AccessCodeRequired, SeatsUnavailable, SoldOut
from apps.reservations.gate import hold_demand
from apps.reservations.lifecycle.gate_counts import attempt_all, keys, runs

logger = logging.getLogger(__name__)

VALID_MS = 4_500
"""How long counts may be used to refuse: less than the 5 s after which released stock must be on sale."""
REQUEST_MARK_MS = 30_000
"""Longer than any hold takes, including its retry after a lost response."""

_PACKAGE = "apps.reservations"
_ask = lua.load(_PACKAGE, "gate_ask")

asked = Counter(
    "fairgate_gate_asked",
    "Requests to the gate, by its answer: refused, or the reason to let them through to the ledger.",
    ["answer"],
    registry=None,
)
METRICS = (asked,)
"""The collectors of this process; the composition root registers them where it exports metrics."""


class Question(NamedTuple):
    """A hold request to check."""

    event: events.EventView
    entry_id: UUID
    payload: Any
    idempotency_key: str


def refusal(event: events.EventView, entry_id: UUID, payload: Any, idempotency_key: str) -> problems.Problem | None:
    """Return the refusal: a requested section requires an access code and the payload has none, or it is sold out.
    None: let the ledger decide.

    One round trip to Redis and none to PostgreSQL. Invalid payloads and replacements are left to the ledger.
    """
    (answer,) = refusals([Question(event, entry_id, payload, idempotency_key)])
    return answer


def refusals(questions: Sequence[Question]) -> list[problems.Problem | None]:
    """Return the refusals of many requests in order, with one round trip to Redis."""
    answers: list[problems.Problem | None] = [None] * len(questions)
    answer_counts: Counts[str] = Counts()
    demands = _read_demands(questions)
    by_event = _ask_redis(questions, demands)
    for event_id, of_event in demands.items():
        for (index, demand), (answer, empty) in zip(of_event, by_event[event_id], strict=True):
            answers[index] = _judge(questions[index], demand, answer, empty, answer_counts)
    _count(answer_counts)
    return answers


class Undecided:
    """The result for a request whose seats must be read first: use `refusals`."""


UNDECIDED = Undecided()


class QuestionBatch(NamedTuple):
    """Questions as Redis commands that the caller sends."""

    commands: list[Sequence[lua.Argument]]
    demands: "_Demands"
    questions: Sequence[Question]

    def parse_answers(self, found: Sequence[Any]) -> list[problems.Problem | Undecided | None]:
        """Return the results, like `refusals`, from the replies of Redis to these commands. Sends nothing."""
        answers: list[problems.Problem | Undecided | None] = [None] * len(self.questions)
        answer_counts: dict[bytes, int] = {}
        for of_event, verdicts in zip(self.demands.values(), found, strict=True):
            if not isinstance(verdicts, list):
                # The server does not have the script or is out of memory: `refusals` handles both.
                for index, _ in of_event:
                    answers[index] = UNDECIDED
                continue
            # Fast path: nearly all requests name no seats.
            for (index, demand), verdict in zip(of_event, verdicts, strict=True):
                answer = verdict[0]
                if answer != b"refused" or not (demand.named_seats or demand.lacks_code_for):
                    answer_counts[answer] = answer_counts.get(answer, 0) + 1
                    answers[index] = SoldOut() if answer == b"refused" else None
                elif demand.unknown_seats and not demand.lacks_code_for:
                    answers[index] = UNDECIDED
                else:
                    answer_counts[answer] = answer_counts.get(answer, 0) + 1
                    answers[index] = _refused(demand, verdict[1:])
        _count({text(answer): count for answer, count in answer_counts.items()})
        return answers


def build_question_batch(questions: Sequence[Question]) -> QuestionBatch | None:
    """Return the Redis commands for these questions, for a caller that must not block. None: PostgreSQL must be read
    first, so use `refusals`."""
    try:
        demands = _read_demands(questions, reads=False)
    except hold_demand.NotCached:
        return None
    return QuestionBatch(_ask.commands(runs(_ask_arguments(questions, demands))), demands, questions)


_Demands = dict[int, list[tuple[int, hold_demand.HoldDemand]]]
"""By event: index and demand of each question that the gate can check."""


def _read_demands(questions: Sequence[Question], *, reads: bool = True) -> _Demands:
    """Return the demands by event. Raises NotCached, like `hold_demand.parse_demand`."""
    now = clock.process_now()
    demands: _Demands = defaultdict(list)
    # Most questions of a batch have the same event and the same demand.
    on_sale: dict[int, bool] = {}
    parsed: dict[tuple[int, str, int], hold_demand.HoldDemand | None] = {}
    for index, (event, _, payload, _) in enumerate(questions):
        is_selling = on_sale.get(id(event))
        if is_selling is None:
            is_selling = on_sale[id(event)] = event.selling_state(now) == "on_sale"
        if not is_selling:
            continue
        section_and_quantity = hold_demand.parse_general_admission_only(payload)
        if section_and_quantity is None:
            demand = hold_demand.parse_demand(event, payload, reads=reads)
        elif (key := (id(event), *section_and_quantity)) in parsed:
            demand = parsed[key]
        else:
            demand = parsed[key] = hold_demand.parse_demand(event, payload, reads=reads)
        if demand is not None and demand.sections:
            demands[event.id].append((index, demand))
    return demands


def _ask_arguments(questions: Sequence[Question], demands: _Demands) -> list[tuple[int, list[lua.Argument]]]:
    """Return, by event, the arguments of the command that checks all of its requests."""
    commands = []
    for event_id, of_event in demands.items():
        arguments: list[lua.Argument] = [REQUEST_MARK_MS]
        for index, demand in of_event:
            entry = str(questions[index].entry_id)
            arguments += (entry, _request_mark(entry, questions[index].idempotency_key))
            count = len(demand.sections)
            if demand.is_any and not demand.lacks_code_for:
                arguments.append(f"any {count}")
            else:
                arguments.append(-count if demand.lacks_code_for else count)
            arguments += demand.sections
        commands.append((event_id, arguments))
    return commands


def _judge(
    question: Question, demand: hold_demand.HoldDemand, answer: str, empty: Sequence[bytes], answer_counts: Counts[str]
) -> problems.Problem | None:
    if answer == "refused" and demand.unknown_seats and not demand.lacks_code_for:
        # Only a refusal needs the sections of these seats; they are cached from now on.
        located = hold_demand.locate_seats(question.event, demand)
        if located is None:
            return None
        demand = located
        if not demand.lacks_code_for and not {int(section) for section in empty} & set(demand.sections):
            ((answer, empty),) = _ask_redis([question], {question.event.id: [(0, demand)]})[question.event.id]
    answer_counts[answer] += 1
    return _refused(demand, empty) if answer == "refused" else None


def _refused(demand: hold_demand.HoldDemand, empty: Sequence[bytes]) -> problems.Problem:
    if demand.lacks_code_for:
        return AccessCodeRequired(sections=list(demand.lacks_code_for))
    if demand.named_seats:
        sections = {int(section) for section in empty}
        gone = [guid for guid in demand.named_seats if demand.section_of.get(guid) in sections]
        if gone:
            return SeatsUnavailable(unavailable=gone)
    return SoldOut()


def _count(answer_counts: Mapping[str, int]) -> None:
    for answer, count in answer_counts.items():
        asked.labels(answer).inc(count)


def forget_request(event_id: int, entry_id: UUID, idempotency_key: str) -> None:
    """Remove the mark of a request that the ledger has finally refused: a repetition with its key is a new question."""
    redis.attempt(lambda client: client.zrem(keys(event_id)[1], _request_mark(str(entry_id), idempotency_key)))


def _ask_redis(questions: Sequence[Question], demands: _Demands) -> dict[int, list[tuple[str, Sequence[bytes]]]]:
    """Return, by event, the gate's answer to each request and the request's sold-out sections."""
    by_event: dict[int, list[tuple[str, Sequence[bytes]]]] = {}
    commands = _ask_arguments(questions, demands)
    for (event_id, _), found in zip(commands, attempt_all(_ask, commands), strict=True):
        if found is None or found == b"out_of_memory":
            by_event[event_id] = [("away" if found is None else "out_of_memory", ())] * len(demands[event_id])
        else:
            by_event[event_id] = [(text(answer), empty) for answer, *empty in found]
    return by_event


def _request_mark(entry: str, idempotency_key: str) -> str:
    # A digest, so that marks have one length for keys of any length.
    return entry + "/" + blake2b(idempotency_key.encode("utf-8", "replace"), digest_size=8).hexdigest()


def text(raw: bytes | str | None) -> str:
    return "" if raw is None else raw.decode() if isinstance(raw, bytes) else raw
