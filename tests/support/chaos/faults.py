"""A worker killed, or a database connection cut, at a step of an operation that can be named and counted.

The operation runs in a thread with its own connection. Its steps are each statement, both sides of each commit, and
both sides of each call of the provider and of each post to an organizer.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import psycopg
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.support.chaos.harness import Scenario
from tests.support.races import Outcome, storm

TERMINATED_WITHIN_MS = 5_000
_OF_THREAD = re.compile(r'(?<="s)\d+(?=_x\d+")')
"""In the name of a savepoint: left in, each thread would have statements of its own."""


class Killed(SystemExit):
    """The process is killed: nothing of it runs any more. The outbox takes other errors for failures of a handler."""


class Step(Enum):
    STATEMENT = "statement"
    BEFORE_COMMIT = "before commit"
    AFTER_COMMIT = "after commit"
    CALL = "call"


KILL_AT = (Step.BEFORE_COMMIT, Step.AFTER_COMMIT, Step.CALL)
CUT_AT = (Step.STATEMENT, Step.BEFORE_COMMIT, Step.AFTER_COMMIT)


@dataclass
class Fault:
    """Strikes at the first step that is not known yet: a statement by its text, another step by its number."""

    kills: bool
    known: set[str] = field(default_factory=set)
    struck_at: str = ""
    """Empty if it struck nothing."""
    commits: int = 0
    """The commits of what was written before it struck."""
    calls: int = 0
    """The number of calls made before it struck."""
    commits_after: int = 0
    """The commits of what another connection wrote after it struck."""
    _counted: int = 0

    def __str__(self) -> str:
        return f"{'killed' if self.kills else 'cut'} at {self.struck_at[:80] or 'nothing'}"

    def meets(self, step: Step, name: str, *, has_written: bool) -> bool:
        """Return whether it strikes here. `has_written`: the step is after the commit of something written."""
        self.commits += has_written
        self.calls += step == Step.CALL
        if step not in (KILL_AT if self.kills else CUT_AT):
            return False
        if step != Step.STATEMENT:
            self._counted += 1
            name = f"{self._counted}: {name}"
        if name not in self.known:
            self.struck_at = name
        return bool(self.struck_at)


def strike(fault: Fault, scenario: Scenario, act: Callable[[], Any]) -> Outcome:
    """Run `act` until the fault strikes, or to its end if it has no unknown step. Return its outcome."""
    # The connection of this thread is idle meanwhile: it cuts the other one.
    terminator: Any = connections["default"]
    terminator.ensure_connection()
    terminator.inc_thread_sharing()
    try:
        (outcome,) = storm(1, lambda _: _run(fault, scenario, act, terminator))
    finally:
        terminator.dec_thread_sharing()
    return outcome


def _run(fault: Fault, scenario: Scenario, act: Callable[[], Any], terminator: BaseDatabaseWrapper) -> Any:
    own: Any = connections["default"]

    def reach(step: Step, name: str, *, has_written: bool = False) -> None:
        if fault.struck_at:
            if fault.kills:
                raise Killed
            fault.commits_after += has_written
            return
        if not fault.meets(step, name, has_written=has_written):
            return
        if fault.kills:
            own.connection.close()
            raise Killed
        with terminator.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(%s, %s)", [own.connection.info.backend_pid, TERMINATED_WITHIN_MS]
            )
        if step == Step.AFTER_COMMIT:
            raise OperationalError("committed, and the answer was lost")

    def execute(run: Callable[..., Any], statement: str, params: Any, many: bool, context: Any) -> Any:
        reach(Step.STATEMENT, _OF_THREAD.sub("", " ".join(str(statement).split())))
        return run(statement, params, many, context)

    commit = own.commit

    def commit_in_steps() -> None:
        reach(Step.BEFORE_COMMIT, "before commit")
        has_written = _has_written(own)
        commit()
        reach(Step.AFTER_COMMIT, "after commit", has_written=has_written)

    with _calling(scenario, lambda call, when, key: reach(Step.CALL, f"{when} {call}")), own.execute_wrapper(execute):
        own.commit = commit_in_steps
        try:
            return act()
        finally:
            del own.commit
            if fault.struck_at:
                # Whatever block it died in, this connection is unusable, even for an orderly close.
                own.in_atomic_block = False


def _has_written(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the open transaction has written or locked a row: PostgreSQL has given it an id then."""
    try:
        return connection.connection.execute("SELECT pg_current_xact_id_if_assigned()").fetchone() != (None,)
    except psycopg.Error:
        return True  # It cannot be committed: the commit fails, too.


@contextmanager
def _calling(scenario: Scenario, at: Callable[[str, str, str], None]) -> Iterator[None]:
    others = (scenario.provider, scenario.organizer)
    before = [other.at for other in others]
    for other in others:
        other.at = at
    try:
        yield
    finally:
        for other, own in zip(others, before, strict=True):
            other.at = own
