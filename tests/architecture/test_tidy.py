"""Coding rules as tests: each refuses a form that has caused errors, or a word with two meanings.

A rule is a function from a file to its violations. Every rule has samples that it must refuse, so that it cannot
silently stop working.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("apps", "ticketing", "tests", "templates", "static", "docs", "benchmarks", ".ci")
APPS = ("accounts", "events", "queue", "reservations", "orders")
TEXT = (".py", ".sql", ".lua", ".html", ".txt", ".md", ".css", ".js", ".toml", ".yml", "")


@dataclass(frozen=True)
class File:
    path: str
    text: str

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def is_test(self) -> bool:
        return self.path.startswith("tests/")

    @property
    def is_migration(self) -> bool:
        return "/migrations/" in self.path

    @property
    def is_product(self) -> bool:
        return self.is_python and self.path.startswith(("apps/", "ticketing/")) and not self.is_migration

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def calls(self) -> list[ast.Call]:
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def texts(self) -> list[ast.Constant]:
        """Every string of the module that is not a docstring."""
        docstrings = {
            id(node.body[0].value)
            for node in self.nodes
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        return [
            node
            for node in self.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        ]


Found = Iterator[tuple[int, str]]
Rule = Callable[[File], Found]


def _name(node: ast.expr) -> str:
    """Return `a.b.c` of an expression, "" for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def _statements(file: File) -> Iterator[tuple[int, str]]:
    """Yield every SQL text in a file, without comments, with the line where it begins."""
    if file.path.endswith(".sql"):
        yield 1, re.sub(r"--[^\n]*", "", file.text)
    elif file.is_product:
        for text in file.texts:
            yield text.lineno, str(text.value)


def locks_rows_without_their_key(file: File) -> Found:
    """Rule 1: plain FOR UPDATE conflicts with the KEY SHARE lock of an uncommitted ticket, which hides a free seat."""
    for line, statement in _statements(file) if "update" in file.text.lower() else ():
        if re.search(r"(?<!NO KEY )\bFOR\s+UPDATE\b", " ".join(statement.split()), re.IGNORECASE):
            yield line, "FOR UPDATE without NO KEY"
    if file.is_python and not file.is_test and "select_for_update" in file.text:
        for call in file.calls:
            if _name(call.func).endswith("select_for_update"):
                given = {keyword.arg: keyword.value for keyword in call.keywords}
                no_key = given.get("no_key")
                if not (isinstance(no_key, ast.Constant) and no_key.value is True):
                    yield call.lineno, "select_for_update() without no_key=True"


def judges_by_a_frozen_clock(file: File) -> Found:
    """Rule 4: these clocks stop at the start of a transaction or statement; only clock_timestamp() advances."""
    frozen = r"\b(now|transaction_timestamp|statement_timestamp)\s*\(\s*\)|\b(current_timestamp|localtimestamp)\b"
    if not re.search(rf"{frozen}|\bNow\b", file.text, re.IGNORECASE):
        return
    for line, statement in _statements(file):
        sql_like = file.path.endswith(".sql") or re.search(r"\b(SELECT|UPDATE|INSERT|DELETE)\b", statement)
        if sql_like and re.search(frozen, statement, re.IGNORECASE):
            yield line, "this clock stops inside a transaction; use clock_timestamp()"
    if file.is_product:
        for node in file.nodes:
            if isinstance(node, ast.ImportFrom) and any(alias.name == "Now" for alias in node.names):
                yield node.lineno, "Now() stops inside a statement"


CLOCKS = ("datetime.now", "datetime.utcnow", "date.today", "timezone.now", "time.time")
MAY_READ_A_CLOCK = ("apps/kernel/clock.py", "ticketing/devserver/")


def reads_another_clock(file: File) -> Found:
    """All code reads kernel.clock: two clocks would differ, and tests could change neither. (Monotonic time is
    exempt.)"""
    if file.is_product and not file.path.startswith(MAY_READ_A_CLOCK):
        for call in file.calls:
            if _name(call.func).endswith(CLOCKS):
                yield call.lineno, f"{_name(call.func)}(): use apps.kernel.clock"


# The sandbox keeps its books in a file of SQLite, which has no row locks to review.
SANDBOX = "apps/orders/payments/providers/sandbox/"
MAY_HOLD_SQL = ("apps/kernel/clock.py", "apps/kernel/db/transactions.py", "ticketing/devserver/", SANDBOX)


def holds_raw_sql(file: File) -> Found:
    """Raw SQL is a file with a heading; in Python, reviews and searches for locks would miss it."""
    if not file.is_product or file.path.startswith(MAY_HOLD_SQL):
        return
    for call in file.calls:
        method = _name(call.func).rpartition(".")[2]
        literal = bool(call.args) and isinstance(call.args[0], (ast.Constant, ast.JoinedStr, ast.BinOp))
        if method in ("execute", "executemany") and literal:
            yield call.lineno, "SQL in Python: move it to a file under sql/"
        if method in ("raw", "extra", "RawSQL"):
            yield call.lineno, f"{method}(): move the statement to a file under sql/"


def is_more_than_one_statement(file: File) -> Found:
    """A file under sql/ is one statement under a heading sentence."""
    if not file.path.endswith(".sql"):
        return
    if not file.text.startswith("-- "):
        yield 1, "no heading sentence"
    if ";" in re.sub(r"'[^']*'|--[^\n]*", "", file.text).rstrip().rstrip(";"):
        yield 1, "more than one statement"


def is_a_command_without_its_contract(file: File) -> Found:
    """A file under lua/ states its arguments, its result and what is true afterwards. Every key comes from KEYS, so
    that all keys have the same hash tag."""
    if not file.path.endswith(".lua"):
        return
    heading = "".join(line for line in file.text.splitlines(keepends=True) if line.startswith("--"))
    for word in ("-- KEYS", "-- ARGV", "-- Returns", "-- Afterwards"):
        if not file.text.startswith("-- ") or word not in heading:
            yield 1, f"the heading lacks {word.removeprefix('-- ')}"
    for number, line in enumerate(file.text.splitlines(), 1):
        keyed = re.search(r"redis\.call\('(?!TIME|INFO)[A-Z]+',\s*['\"]", line)
        if keyed:
            yield number, "a key that is not from KEYS"


def imports_past_a_facade(file: File) -> Found:
    """Apps import each other's facade only."""
    if not file.is_product or not file.path.startswith("apps/"):
        return
    own = file.path.split("/")[1]
    for node in file.nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            entered = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            entered = [alias.name for alias in node.names]
        else:
            continue
        for module in entered:
            parts = module.split(".")
            if parts[0] == "apps" and len(parts) > 1 and parts[1] not in (own, "kernel") and parts[2:3] != ["facade"]:
                yield node.lineno, f"{module}: import apps.{parts[1]}.facade"


def has_a_vague_name(file: File) -> Found:
    """A module is named after its subject."""
    for part in Path(file.path).with_suffix("").parts:
        if part in ("utils", "util", "helpers", "helper", "common", "misc", "signals"):
            yield 1, f"{part} names no subject"


def abbreviates_general_admission(file: File) -> Found:
    """Admission is the right to shop; general admission is written in full, so that the two are not confused."""
    if file.path.endswith((".py", ".sql", ".html", ".js")) and not file.is_test:
        for number, line in enumerate(file.text.splitlines(), 1):
            for word in re.findall(r"\b(?:\w+_)?ga(?:_\w+)?\b", line):
                if word not in ("ga_section", "ga_quantity"):
                    yield number, f"{word}: write general_admission in full"


def spells_canceled_twice(file: File) -> Found:
    """One spelling, so that a search finds everything. (asyncio's own names keep theirs.)"""
    for number, line in enumerate(file.text.splitlines(), 1):
        if re.search(r"\bcancelled\b(?!\()|\bcancelling\b(?!\()", line, re.IGNORECASE):
            yield number, "write canceled, with one l"


def leaves_work_undone(file: File) -> Found:
    """Unfinished work is filed as an issue, not left as a comment."""
    for number, line in enumerate(file.text.splitlines(), 1):
        if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line):
            yield number, "finish it, or file it"


def names_a_persons_machine(file: File) -> Found:
    """The repository does not depend on where it was written."""
    for number, line in enumerate(file.text.splitlines(), 1):
        if re.search(r"(?<![\w.<*])/(work|home|root|Users)/\w", line):
            yield number, "a path on a developer's machine"


def sleeps_in_a_test(file: File) -> Found:
    """A sleep is either too short or too long: wait for the condition itself, with a limit."""
    if file.is_test and file.is_python and "sleep" in file.text:
        for call in file.calls:
            if _name(call.func) in ("time.sleep", "sleep", "asyncio.sleep"):
                yield call.lineno, "a sleep"


LUA_HEADING = "-- Counts.\n-- KEYS 1 the count\n-- ARGV none\n-- Returns it\n-- Afterwards: nothing has changed.\n"
SAMPLES: dict[Rule, list[tuple[str, str]]] = {
    locks_rows_without_their_key: [
        ("apps/events/sql/x.sql", "-- Locks.\nSELECT 1 FROM seat\nFOR\n  UPDATE SKIP LOCKED"),
        ("apps/events/x.py", "Seat.objects.select_for_update()"),
        ("apps/events/x.py", "Seat.objects.select_for_update(no_key=False, skip_locked=True)"),
        ("apps/events/x.py", "QUERY = 'SELECT 1 FROM seat FOR UPDATE'"),
    ],
    judges_by_a_frozen_clock: [
        ("apps/events/sql/x.sql", "-- Ends.\nDELETE FROM seat WHERE until < now()"),
        ("apps/events/sql/x.sql", "-- Ends.\nDELETE FROM seat WHERE until < CURRENT_TIMESTAMP"),
        ("apps/events/x.py", "from django.db.models.functions import Now"),
    ],
    reads_another_clock: [
        ("apps/events/x.py", "import datetime\ndatetime.datetime.now()"),
        ("apps/events/x.py", "from django.utils import timezone\ntimezone.now()"),
        ("apps/kernel/x.py", "import time\ntime.time()"),
    ],
    holds_raw_sql: [
        ("apps/events/x.py", "cursor.execute('SELECT 1')"),
        ("apps/events/x.py", "cursor.execute(f'SELECT {x}')"),
        ("apps/events/x.py", "Seat.objects.raw('SELECT 1')"),
    ],
    is_more_than_one_statement: [
        ("apps/events/sql/x.sql", "SELECT 1"),
        ("apps/events/sql/x.sql", "-- Two.\nSELECT 1; SELECT 2;"),
    ],
    is_a_command_without_its_contract: [
        ("apps/events/lua/x.lua", "return 1"),
        ("apps/events/lua/x.lua", "-- Counts.\n-- KEYS 1\n-- ARGV none\n-- Returns 1\nreturn 1"),
        ("apps/events/lua/x.lua", LUA_HEADING + "return redis.call('GET', 'stock')"),
    ],
    imports_past_a_facade: [
        ("apps/orders/x.py", "from apps.events.models import Seat"),
        ("apps/orders/x.py", "from apps.events import models"),
        ("apps/orders/x.py", "import apps.events.models"),
    ],
    has_a_vague_name: [("apps/events/utils.py", ""), ("apps/events/helpers/x.py", "")],
    abbreviates_general_admission: [("apps/events/x.py", "ga_row = 1"), ("templates/x.html", "<p class='ga'>")],
    spells_canceled_twice: [("docs/x.md", "The order was cancelled.")],
    leaves_work_undone: [("apps/events/x.py", "# TO" + "DO: later")],
    names_a_persons_machine: [("docs/x.md", "see /home" + "/jane/plan")],
    sleeps_in_a_test: [("tests/x.py", "import time\ntime.sleep(1)")],
}
FINE = [
    ("apps/events/sql/x.sql", "-- Locks; in id order.\nSELECT 1 FROM seat WHERE name <> ';' FOR NO KEY UPDATE;\n"),
    ("apps/events/x.py", "Seat.objects.select_for_update(no_key=True)\ncursor.execute(statement.text)\n"),
    ("apps/events/lua/x.lua", LUA_HEADING + "return redis.call('GET', KEYS[1])"),
    ("apps/orders/x.py", "from apps.events import facade\nfrom apps.queue.facade import Admission\n"),
    ("apps/events/x.py", '"""Plain FOR UPDATE and now() would be wrong here."""\nbody["ga_section"]\n'),
    ("apps/events/x.py", "try:\n    pass\nexcept asyncio.CancelledError:\n    task.cancelled()\n"),
    ("apps/kernel/clock.py", "datetime.now(UTC)\n"),
]


def _files() -> list[File]:
    roots = [CHECKOUT / folder for folder in FOLDERS if (CHECKOUT / folder).is_dir()]
    paths = [path for root in roots for path in root.rglob("*") if path.is_file()]
    paths += [path for path in CHECKOUT.iterdir() if path.is_file() and not path.name.startswith(".git")]
    found = []
    for path in sorted(paths):
        relative = path.relative_to(CHECKOUT).as_posix()
        vendored = "__pycache__" in relative or "/vendor/" in relative or relative == "tests/architecture/test_tidy.py"
        if path.suffix in TEXT and not vendored:
            found.append(File(relative, path.read_text(encoding="utf-8")))
    return found


@pytest.fixture(scope="module")
def files() -> list[File]:
    found = _files()
    assert len(found) > 50
    for file in found:
        if file.is_product:
            assert file.nodes  # Parsed once here, because most rules use them.
    return found


@pytest.mark.parametrize("rule", SAMPLES, ids=lambda rule: rule.__name__)
def test_no_file(rule: Rule, files: list[File]) -> None:
    wrong = [f"{file.path}:{line}: {what}" for file in files for line, what in rule(file)]
    assert not wrong, f"{rule.__doc__}\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("rule", "sample"),
    [(rule, sample) for rule, samples in SAMPLES.items() for sample in samples],
    ids=lambda value: value.__name__ if callable(value) else value[0],
)
def test_the_rule_refuses_its_sample(rule: Rule, sample: tuple[str, str]) -> None:
    assert list(rule(File(*sample)))


@pytest.mark.parametrize("rule", SAMPLES, ids=lambda rule: rule.__name__)
def test_the_rule_accepts_good_samples(rule: Rule) -> None:
    assert [found for sample in FINE for found in rule(File(*sample))] == []


def test_the_table_of_the_environment_lists_exactly_the_variables_that_are_read(files: list[File]) -> None:
    by_path = {file.path: file for file in files}
    document = by_path["docs/operations/environment.md"].text
    table = document.partition("\n## Environment\n")[2].partition("\n## ")[0]
    first_columns = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))
    listed = set(re.findall(r"`([A-Z][A-Z0-9_]+)`", first_columns))
    read = set(re.findall(r"\$\{([A-Z_]+):-", by_path["Procfile"].text))
    for file in files:
        if file.is_product or file.path in ("manage.py", "tests/support/programs.py"):
            read |= set(_variables_read(file))
    assert (read - listed, listed - read) == (set(), set()), "read but not listed, listed but not read"


# A shell sets it for every program.
_EVERY_PROGRAMS = {"PATH"}
_READERS = re.compile(
    r"_?env(\.\w+)?|os\.environ\.get|_seconds|_count|_whole_number|_whole|_choice|_bucket|_rate|Program"
)


def _variables_read(file: File) -> Iterator[str]:
    """Yield names in calls that read the environment; of a name with a variable part, only its beginning."""
    for call in file.calls:
        if not _READERS.fullmatch(ast.unparse(call.func)):
            continue
        for given in call.args:
            name = given.values[0] if isinstance(given, ast.JoinedStr) else given
            if isinstance(name, ast.Constant) and re.fullmatch(r"[A-Z][A-Z0-9_]+", str(name.value)):
                yield from {str(name.value)} - _EVERY_PROGRAMS


def test_every_sql_and_lua_file_has_a_caller(files: list[File]) -> None:
    loaded = {str(text.value) for file in files if file.is_product for text in file.texts}
    statements = {file.path: Path(file.path).stem for file in files if file.path.endswith((".sql", ".lua"))}
    assert [path for path, name in statements.items() if name not in loaded] == []
