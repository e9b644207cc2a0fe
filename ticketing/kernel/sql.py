"""Raw SQL lives in files, one statement each under a heading sentence; this is how a file becomes a statement.

Tests look over a statement's shoulder with `observe`: a rival can be let in right before or right after a named
file runs, which is how a race is shown without a single sleep.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Protocol

from psycopg import ClientCursor

from ticketing.kernel import preparing
from ticketing.kernel.arrays import Array

Observer = Callable[[str, str], None]
_observers: list[Observer] = []


class Cursor(Protocol):
    """What a statement needs of a cursor: Django's and psycopg's both have it."""

    @property
    def rowcount(self) -> int: ...
    @property
    def description(self) -> Any: ...
    @property
    def connection(self) -> Any: ...
    def execute(self, query: Any, params: Any = None) -> Any: ...
    def fetchall(self) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Statement:
    name: str
    text: str
    prepared: bool = False
    """Connections that keep prepared statements keep this one: see preparing.py."""

    def rows(self, cursor: Cursor, **params: Any) -> Sequence[tuple[Any, ...]]:
        """The statement has run; its rows."""
        self._run(cursor, params)
        return cursor.fetchall()

    def count(self, cursor: Cursor, **params: Any) -> int:
        """The statement has run; how many rows it touched."""
        self._run(cursor, params)
        return cursor.rowcount

    def _run(self, cursor: Cursor, params: dict[str, Any]) -> None:
        for observer in _observers:
            observer(self.name, "before")
        if self.prepared and preparing.is_on(cursor.connection):
            assert isinstance(cursor, ClientCursor)
            cursor.execute(_execution(self.call(**params), _Literals(cursor)))
        else:
            cursor.execute(self.text, params)
        for observer in _observers:
            observer(self.name, "after")

    def call(self, **params: Any) -> "Call":
        """The statement with these parameters, to be run together with others."""
        return Call(self, params)


class Call(NamedTuple):
    statement: Statement
    params: dict[str, Any]


class Done(NamedTuple):
    """What a statement gave: its rows, or how many it touched."""

    rows: Sequence[tuple[Any, ...]]
    touched: int


def together(cursor: Cursor, calls: Sequence[Call]) -> list[Done]:
    """All of these statements have run, one after the other, in one round trip: what each gave, in order.

    Each sees what was committed before it began, as if it had been sent by itself, and after one that fails none runs.
    They go one by one where somebody looks on (a test lets a rival in between), and on cursors that send parameters
    apart from their statement.
    """
    if not calls:
        return []
    if _observers or not isinstance(cursor, ClientCursor):
        return [_alone(cursor, call) for call in calls]
    literals = _Literals(cursor)
    keeps = preparing.is_on(cursor.connection)
    texts = [(_execution if keeps and call.statement.prepared else _bound)(call, literals) for call in calls]
    cursor.execute("\n;\n".join(texts))
    done = []
    for _ in calls:
        done.append(Done(cursor.fetchall() if cursor.description else (), cursor.rowcount))
        cursor.nextset()
    return done


class _Literals(dict[int, str]):
    """Values as they stand in a statement's text, each written once however many statements take it."""

    def __init__(self, cursor: ClientCursor[Any]) -> None:
        self._cursor = cursor

    def of(self, value: Any) -> str:
        kind = type(value)
        if kind is Array and "'" not in value.text and "\\" not in value.text:
            return f"'{value.text}'"
        if kind is int and value >= 0:
            return str(value)
        if kind is str or kind is Array:
            return self._cursor.mogrify("%s", [value])
        key = id(value)
        return self.get(key) or self.setdefault(key, self._cursor.mogrify("%s", [value]))


def _execution(call: Call, literals: _Literals) -> str:
    statement, params = call
    return preparing.execution(statement.name, [literals.of(params[name]) for name in preparing.names(statement.text)])


def _bound(call: Call, literals: _Literals) -> str:
    text, names = _template(call.statement.text)
    params = call.params
    return text % tuple([literals.of(params[name]) for name in names])


@cache
def _template(text: str) -> tuple[str, tuple[str, ...]]:
    """The statement with its parameters in order instead of by name."""
    return preparing.PARAMETER.sub("%s", text), tuple(preparing.PARAMETER.findall(text))


def _alone(cursor: Cursor, call: Call) -> Done:
    call.statement.count(cursor, **call.params)
    return Done(cursor.fetchall() if cursor.description else (), cursor.rowcount)


@cache
def load(package: str, name: str, *, prepared: bool = False) -> Statement:
    """The statement in `<package>/sql/<name>.sql`, known to observers as `name`. `prepared`: it runs so often that
    committers keep its plan; its text says the type of every parameter."""
    text = files(package).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    if prepared:
        preparing.add(name, text)
    return Statement(name, text, prepared)


def is_text(value: str) -> bool:
    """Whether PostgreSQL can store it: no NUL, no half of a surrogate pair, which is what bytes that are no
    UTF-8 become on a command line."""
    return "\x00" not in value and (value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value))


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """While the block runs, `observer(name, "before" | "after")` is called around every statement of every thread."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)
