"""Round trips to PostgreSQL that carry several statements, and the beginning and the end of their transaction too.

A journey costs both sides the same whatever it carries, and in a busy process its thread has to come by the interpreter
once more after each. psycopg's own cursors would send a transaction's beginning and end by themselves, and describe the
columns of every result, which nobody here asks for.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import ClientCursor, Connection, DataError, errors, generators
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus


class StatementResult(NamedTuple):
    """What a statement gave: its rows, or how many it touched."""

    rows: Sequence[tuple[Any, ...]]
    touched: int


class Cursor(ClientCursor[Any]):
    """The cursor of one transaction on a connection in autocommit: what opens it travels with its first statement, and
    the end, where that is wanted, with the last one."""

    def __init__(self, connection: Connection[Any]) -> None:
        super().__init__(connection)
        self._opening: Sequence[str] = ()
        self._transformer = Transformer.from_context(self)

    def set_opening(self, texts: Sequence[str]) -> None:
        """These statements go ahead of whatever comes first."""
        self._opening = texts

    @property
    def has_pending_opening(self) -> bool:
        """Whether nothing was sent yet: PostgreSQL knows of no transaction."""
        return len(self._opening) > 0

    def open(self) -> None:
        """The transaction has begun, if it had not."""
        if self._opening:
            self._send_batch([])

    def execute_batch(self, texts: Sequence[str], *, commits: bool = False) -> list[StatementResult]:
        """These statements have run, one after the other, in one journey; after one that fails none does. `commits`:
        and the transaction was committed, if all of them ran."""
        results = self._send_batch([*texts, "COMMIT"] if commits else texts)
        return [self._done(result) for result in results[: len(texts)]]

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        self.open()
        return super().execute(*args, **kwargs)

    def executemany(self, *args: Any, **kwargs: Any) -> None:
        self.open()
        super().executemany(*args, **kwargs)

    def stream(self, *args: Any, **kwargs: Any) -> Any:
        self.open()
        return super().stream(*args, **kwargs)

    def copy(self, *args: Any, **kwargs: Any) -> Any:
        self.open()
        return super().copy(*args, **kwargs)

    def _send_batch(self, texts: Sequence[str]) -> Sequence[Any]:
        """What came of these statements; of the opening that went ahead of them nothing is told."""
        opening, self._opening = self._opening, ()
        text = "\n;\n".join([*opening, *texts])
        if "\x00" in text:
            raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        connection = self.connection
        with connection.lock:
            connection.pgconn.send_query(text.encode(connection.info.encoding))
            results = connection.wait(generators.execute(connection.pgconn))
        for result in results:
            if result.status not in _GOOD:
                raise errors.error_from_result(result, connection.info.encoding)
        return results[len(opening) :]

    def _done(self, result: Any) -> StatementResult:
        if result.status != ExecStatus.TUPLES_OK:
            return StatementResult((), -1 if result.command_tuples is None else result.command_tuples)
        self._transformer.set_pgresult(result)
        return StatementResult(self._transformer.load_rows(0, result.ntuples, tuple), result.ntuples)


_GOOD = frozenset({ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY})
