"""Rules for files and their names. Layers and import circles are checked by import-linter (pyproject.toml)."""

import ast
import importlib
import pkgutil
import re
from collections import Counter
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PRODUCT = ("apps", "ticketing")
FOLDERS = (*PRODUCT, "tests", "benchmarks")
MODULES = sorted(path for folder in FOLDERS for path in (CHECKOUT / folder).rglob("*.py"))
STATEMENTS = sorted((CHECKOUT / "apps").rglob("*.sql")) + sorted((CHECKOUT / "ticketing").rglob("*.sql"))
SCRIPTS = sorted((CHECKOUT / "apps").rglob("*.lua"))

MODULES_MAX = 15
"""Per folder, without `__init__.py` and `apps.py`."""
LINES_MAX = 600
NOUNS = frozenset(
    {"during", "formatting", "pending", "pricing", "screening", "sharing", "testing", "ticketing", "waiting", "wording"}
)
"""Words ending in -ing that are nouns or adjectives of the field, and so may name a module."""


def relative(path: Path) -> str:
    return path.relative_to(CHECKOUT).as_posix()


def test_the_kernel_is_an_app() -> None:
    assert not (CHECKOUT / "ticketing" / "kernel").exists()
    old = re.compile(r"\bticketing[./](kernel|embedded|simulation)\b")
    # Decision records and the change log describe the code of their time.
    texts = [
        *MODULES,
        *(CHECKOUT / name for name in ("Makefile", "Procfile", "pyproject.toml", "README.md", ".ci/run")),
    ]
    texts += [path for path in (CHECKOUT / "docs").rglob("*.md") if "adr" not in path.parts]
    for folder in (*PRODUCT, "templates", "static"):
        texts += [
            path for kind in ("sql", "lua", "html", "txt", "js") for path in (CHECKOUT / folder).rglob(f"*.{kind}")
        ]
    quoting = [path for path in texts if path != Path(__file__) and old.search(path.read_text(encoding="utf-8"))]
    assert [relative(path) for path in quoting] == []


def test_every_module_can_be_imported() -> None:
    """SQL and Lua files are loaded by the modules that name them, so importing all modules loads every used file."""
    for folder in PRODUCT:
        package = importlib.import_module(folder)
        for module in pkgutil.walk_packages(package.__path__, f"{folder}."):
            if not module.name.endswith(".__main__"):
                importlib.import_module(module.name)


@pytest.mark.parametrize("path", STATEMENTS, ids=relative)
def test_every_statement_loads(path: Path) -> None:
    from apps.kernel.db import sql

    package = relative(path.parent.parent).replace("/", ".")
    assert sql.load(package, path.stem).text.startswith("--")


@pytest.mark.parametrize("path", SCRIPTS, ids=relative)
def test_every_script_loads(path: Path) -> None:
    from apps.kernel import lua

    package = relative(path.parent.parent).replace("/", ".")
    assert lua.load(package, path.stem).text.startswith("--")


def test_a_folder_has_few_modules() -> None:
    counted = [
        path for path in MODULES if path.name not in ("__init__.py", "apps.py") and "migrations" not in path.parts
    ]
    sizes = Counter(relative(path.parent) for path in counted)
    assert {folder: size for folder, size in sizes.items() if size > MODULES_MAX} == {}


def test_a_module_has_few_lines() -> None:
    lines = {relative(path): path.read_text(encoding="utf-8").count("\n") for path in MODULES}
    assert {path: count for path, count in lines.items() if count > LINES_MAX} == {}


def is_gerund(stem: str) -> bool:
    return any(word.endswith("ing") and word not in NOUNS for word in stem.split("_"))


def test_a_module_is_named_by_a_noun() -> None:
    named = [path for path in MODULES if "migrations" not in path.parts]
    stems = {relative(path): path.stem.removeprefix("test_") for path in named}
    assert [path for path, stem in stems.items() if is_gerund(stem)] == []
    packages = {part for path in MODULES for part in path.relative_to(CHECKOUT).parts[:-1]}
    assert [package for package in packages if is_gerund(package)] == []
    assert is_gerund("batching")
    assert is_gerund("auditing_once")
    assert not is_gerund("pricing")


def test_a_package_has_a_module() -> None:
    packages = {path.parent for path in MODULES if path.name == "__init__.py"}
    empty = [
        relative(package)
        for package in packages
        if not [path for path in package.rglob("*") if path.is_file() and path.name != "__init__.py"]
        and not ast.parse((package / "__init__.py").read_text(encoding="utf-8")).body
    ]
    assert empty == []
