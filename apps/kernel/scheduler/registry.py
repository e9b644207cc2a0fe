"""The kinds of tasks. Apps register them when they load, so that the kernel imports none of them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms

from apps.kernel.http import problems

LOCK_MS = 5_000
STATEMENT_MS = 30_000
RESULT_CHARACTERS_MAX = 300
FILE_BYTES_MAX = 2**20


@dataclass(frozen=True, slots=True)
class Scope:
    """What a task is about. Both ids are None for a task of the whole site."""

    event_id: int | None = None
    organizer_id: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run, as its handler gets it."""

    id: int
    task_id: int
    kind: str
    params: dict[str, Any]
    scope: Scope
    scheduled_for: datetime
    who: str
    """Who scheduled the task, or ran it again, for the logs of its effects."""
    account_id: int | None = None
    """The account of that person, whose permission is checked; None for a task of code."""

    @property
    def event_id(self) -> int:
        """The event of a task that has one."""
        assert self.scope.event_id is not None, f"task {self.task_id} has no event"
        return self.scope.event_id


class TaskParams(forms.Form):
    """The parameters of a kind as a form. It checks what staff enter and what code passes, for one scope."""

    def __init__(self, *args: Any, scope: Scope, **kwargs: Any) -> None:
        self.scope = scope
        super().__init__(*args, **kwargs)

    def to_json(self) -> dict[str, Any]:
        """Return the valid parameters as JSON values. The form must accept them as its data, too."""
        return dict(self.cleaned_data)

    @classmethod
    def describe(cls, params: dict[str, Any]) -> str:
        """Return the parameters in words, for lists."""
        return ", ".join(str(value) for value in params.values() if value not in ("", None))


class TaskFailed(Exception):
    """Raised by a handler that cannot do its work. The message is shown to staff; no traceback is logged."""


@dataclass(frozen=True, slots=True)
class File:
    """A file for staff, kept with its run."""

    name: str
    content_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a handler did, in words, and the file that it made."""

    text: str
    file: File | None = None


Handler = Callable[[Run], "Outcome | str | None"]
"""Runs in the transaction that ends the run: either both are committed or neither. It joins that transaction, awaits
nothing outside the database, and sends messages through the outbox. Returns what it did, in words, with a file of
FILE_BYTES_MAX at most if it made one."""


@dataclass(frozen=True, slots=True)
class TaskKind:
    name: str
    label: str
    handler: Handler
    params: type[TaskParams]
    permission: str
    for_event: bool
    idempotent: bool
    lock_ms: int
    statement_ms: int
    once_only: bool = False
    is_slow: bool = False


PermissionCheck = Callable[[Run, str], None]
"""Raises TaskFailed unless the run's account has this permission for what the run is about."""

_kinds: dict[str, TaskKind] = {}
_permission_checks: list[PermissionCheck] = []


def register_task(
    name: str,
    handler: Handler,
    params: type[TaskParams] = TaskParams,
    *,
    label: str,
    permission: str = "",
    for_event: bool = True,
    idempotent: bool = False,
    lock_ms: int = LOCK_MS,
    statement_ms: int = STATEMENT_MS,
    once_only: bool = False,
    is_slow: bool = False,
) -> None:
    """Register a kind of task. Registering a name again replaces its kind.

    `permission` is what staff need for the event to schedule it, and at each run; without one only code can schedule
    it. `idempotent`: a run that failed is retried a few times by itself; otherwise only staff run it again. `lock_ms`
    and `statement_ms` limit the handler's transaction. `once_only`: it runs at one minute, and a cron expression is
    refused. `is_slow`: it may occupy its process for seconds, so a worker executes one such run at a time, and
    `gatekeeper` none while workers report.
    """
    _kinds[name] = TaskKind(
        name, label, handler, params, permission, for_event, idempotent, lock_ms, statement_ms, once_only, is_slow
    )


def slow_kinds() -> list[str]:
    """Return the names of the kinds that may occupy a process for seconds."""
    return [kind.name for kind in _kinds.values() if kind.is_slow]


def register_permission_check(check: PermissionCheck) -> None:
    """Check the permissions of runs by `check`, instead of by one that was registered before."""
    _permission_checks[:] = [check]


def require_permitted(run: Run, kind: TaskKind) -> None:
    """Raise TaskFailed if the run acts for a person who may no longer do this: what counts is the permission at its
    minute."""
    if run.account_id is None:
        return
    for check in _permission_checks:
        check(run, kind.permission)


def kinds() -> tuple[TaskKind, ...]:
    """Return all kinds by their labels."""
    return tuple(sorted(_kinds.values(), key=lambda kind: kind.label))


def find_kind(name: str) -> TaskKind | None:
    return _kinds.get(name)


def get_kind(name: str) -> TaskKind:
    """Return the kind. Raises Invalid."""
    kind = _kinds.get(name)
    if kind is None:
        raise problems.Invalid({"kind": f"there is no task {name[:80]!r}"})
    return kind


def check_params(kind: TaskKind, params: dict[str, Any], scope: Scope) -> dict[str, Any]:
    """Return the parameters as they are stored. Raises Invalid, which names each wrong one."""
    if kind.for_event and scope.event_id is None:
        raise problems.Invalid({"event": "this task needs an event"})
    form = kind.params(params, scope=scope)
    if not form.is_valid():
        raise problems.Invalid({name: " ".join(map(str, errors)) for name, errors in form.errors.items()})
    return form.to_json()
