"""The gate: a count per section in Redis that may say "sold out", or that an access code is wanted, and nothing else.

Whatever it knows came from the ledger and goes out of date: a refusal needs counts read less than VALID_MS ago, of a
section in which nothing has lapsed since, on the very server they were written to, and an entry that never held
anything. In doubt it lets through, and the ledger decides. So a count that is too high costs a look into the ledger,
and one that is too low ends with the next reset, after VALID_MS at the latest; neither can oversell.

Counts and marks come together: what lowers a count marks whose hold it was in the same step, and a reset marks the
entries of every hold that its counts can contain before they come into force (`rebuild.py`). A hold that Redis was
never told of is therefore in no count either, and whoever has the last seats is never told that they are gone, also if
the process that held them died right after its commit.
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
"""From the reading of counts to the last refusal by them: below the 5 s within which what is free must be sellable."""
REQUEST_MARK_MS = 30_000
"""Longer than any hold takes, or the retry of one whose answer was lost."""

_PACKAGE = "apps.reservations"
_ask = lua.load(_PACKAGE, "gate_ask")

asked = Counter(
    "fairgate_gate_asked",
    "Requests that asked the gate, by its answer: refused, or why they were let through to the ledger.",
    ["answer"],
    registry=None,
)
METRICS = (asked,)
"""Of this process; the composition root registers them where it serves figures."""


class Question(NamedTuple):
    """A hold that is about to be asked for."""

    event: events.EventView
    entry_id: UUID
    payload: Any
    idempotency_key: str


def refusal(event: events.EventView, entry_id: UUID, payload: Any, idempotency_key: str) -> problems.Problem | None:
    """Why the ledger need not be asked: some section that the payload wants is for those who have an access code, and
    it has none; or everything of one is gone. None: ask it.

    One question to Redis and none to PostgreSQL. Only what the gate fully understands is refused: a payload that is
    wrong, a replacement of what is held are for the ledger to answer.
    """
    (answer,) = refusals([Question(event, entry_id, payload, idempotency_key)])
    return answer


def refusals(questions: Sequence[Question]) -> list[problems.Problem | None]:
    """The same for many, in order, with one journey to Redis for all of them."""
    answers: list[problems.Problem | None] = [None] * len(questions)
    said: Counts[str] = Counts()
    wanted = _read_demands(questions)
    put = _ask_redis(questions, wanted)
    for event_id, of_event in wanted.items():
        for (index, wish), (answer, empty) in zip(of_event, put[event_id], strict=True):
            answers[index] = _judge(questions[index], wish, answer, empty, said)
    _count(said)
    return answers


class Undecided:
    """Whether this one is refused cannot be told without reading more: `refusals` can."""


UNDECIDED = Undecided()


class QuestionBatch(NamedTuple):
    """Questions on their way to Redis by somebody else's journey."""

    commands: list[Sequence[lua.Argument]]
    """Everything that there is to ask."""
    wanted: "_Demands"
    questions: Sequence[Question]

    def parse_answers(self, found: Sequence[Any]) -> list[problems.Problem | Undecided | None]:
        """As `refusals`, by what Redis answered these commands with. It changes nothing."""
        answers: list[problems.Problem | Undecided | None] = [None] * len(self.questions)
        said: dict[bytes, int] = {}
        for of_event, verdicts in zip(self.wanted.values(), found, strict=True):
            if not isinstance(verdicts, list):
                # A server that does not know the script, or is out of memory: that is for `refusals` to see to.
                for index, _ in of_event:
                    answers[index] = UNDECIDED
                continue
            # Nearly all say the same, and are about no named seats.
            for (index, wish), verdict in zip(of_event, verdicts, strict=True):
                answer = verdict[0]
                if answer != b"refused" or not (wish.named_seats or wish.lacks_code_for):
                    said[answer] = said.get(answer, 0) + 1
                    answers[index] = SoldOut() if answer == b"refused" else None
                elif wish.unknown_seats and not wish.lacks_code_for:
                    answers[index] = UNDECIDED
                else:
                    said[answer] = said.get(answer, 0) + 1
                    answers[index] = _refused(wish, verdict[1:])
        _count({text(answer): count for answer, count in said.items()})
        return answers


def build_question_batch(questions: Sequence[Question]) -> QuestionBatch | None:
    """What there is to ask Redis for these, for whoever must not wait here. None: something must be read first, so ask
    by `refusals`."""
    try:
        wanted = _read_demands(questions, reads=False)
    except hold_demand.NotCached:
        return None
    return QuestionBatch(_ask.commands(runs(_ask_arguments(questions, wanted))), wanted, questions)


_Demands = dict[int, list[tuple[int, hold_demand.HoldDemand]]]
"""By event those questions, by their places in the list, that the gate can say something about, and what each wants."""


def _read_demands(questions: Sequence[Question], *, reads: bool = True) -> _Demands:
    """Raises as `hold_demand.parse_demand`."""
    now = clock.process_now()
    wanted: _Demands = defaultdict(list)
    # Of many at once most are the same event's, and want the same.
    on_sale: dict[int, bool] = {}
    same: dict[tuple[int, str, int], hold_demand.HoldDemand | None] = {}
    for index, (event, _, payload, _) in enumerate(questions):
        sells = on_sale.get(id(event))
        if sells is None:
            sells = on_sale[id(event)] = event.selling_state(now) == "on_sale"
        if not sells:
            continue
        places = hold_demand.parse_places_only(payload)
        if places is None:
            wish = hold_demand.parse_demand(event, payload, reads=reads)
        elif (key := (id(event), *places)) in same:
            wish = same[key]
        else:
            wish = same[key] = hold_demand.parse_demand(event, payload, reads=reads)
        if wish is not None and wish.sections:
            wanted[event.id].append((index, wish))
    return wanted


def _ask_arguments(questions: Sequence[Question], wanted: _Demands) -> list[tuple[int, list[lua.Argument]]]:
    """By event the arguments of the command that asks for all of its requests."""
    asking = []
    for event_id, of_event in wanted.items():
        arguments: list[lua.Argument] = [REQUEST_MARK_MS]
        for index, wish in of_event:
            entry = str(questions[index].entry_id)
            arguments += (entry, _request_mark(entry, questions[index].idempotency_key))
            count = len(wish.sections)
            arguments += (-count if wish.lacks_code_for else count, *wish.sections)
        asking.append((event_id, arguments))
    return asking


def _judge(
    question: Question, wish: hold_demand.HoldDemand, answer: str, empty: Sequence[bytes], said: Counts[str]
) -> problems.Problem | None:
    if answer == "refused" and wish.unknown_seats and not wish.lacks_code_for:
        # Only now does it matter where these seats are; from now on this process knows.
        located = hold_demand.locate_seats(question.event, wish)
        if located is None:
            return None
        wish = located
        if not wish.lacks_code_for and not {int(section) for section in empty} & set(wish.sections):
            ((answer, empty),) = _ask_redis([question], {question.event.id: [(0, wish)]})[question.event.id]
    said[answer] += 1
    return _refused(wish, empty) if answer == "refused" else None


def _refused(wish: hold_demand.HoldDemand, empty: Sequence[bytes]) -> problems.Problem:
    if wish.lacks_code_for:
        return AccessCodeRequired(sections=list(wish.lacks_code_for))
    if wish.named_seats:
        sections = {int(section) for section in empty}
        gone = [guid for guid in wish.named_seats if wish.section_of.get(guid) in sections]
        if gone:
            return SeatsUnavailable(unavailable=gone)
    return SoldOut()


def _count(said: Mapping[str, int]) -> None:
    for answer, count in said.items():
        asked.labels(answer).inc(count)


def forget_request(event_id: int, entry_id: UUID, idempotency_key: str) -> None:
    """The ledger has refused this request for good: asking again with its key is a new question."""
    redis.attempt(lambda client: client.zrem(keys(event_id)[1], _request_mark(str(entry_id), idempotency_key)))


def _ask_redis(questions: Sequence[Question], wanted: _Demands) -> dict[int, list[tuple[str, Sequence[bytes]]]]:
    """By event the gate's answer to each of its requests, and those of its sections that have nothing left."""
    put: dict[int, list[tuple[str, Sequence[bytes]]]] = {}
    asking = _ask_arguments(questions, wanted)
    for (event_id, _), found in zip(asking, attempt_all(_ask, asking), strict=True):
        if found is None or found == b"out_of_memory":
            put[event_id] = [("away" if found is None else "out_of_memory", ())] * len(wanted[event_id])
        else:
            put[event_id] = [(text(answer), empty) for answer, *empty in found]
    return put


def _request_mark(entry: str, idempotency_key: str) -> str:
    # Of one length, whatever the client calls its key.
    return entry + "/" + blake2b(idempotency_key.encode("utf-8", "replace"), digest_size=8).hexdigest()


def text(raw: bytes | str | None) -> str:
    return "" if raw is None else raw.decode() if isinstance(raw, bytes) else raw
