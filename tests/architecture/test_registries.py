"""The table of registries in docs/architecture.md lists every registry of callbacks, with the files that fill it."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent
TABLE = re.compile(r"^### Registries of callbacks$(.*?)^#", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"`([^`]+\.py(?:::[\w.]+)?)`")
_STORES = frozenset({"add", "append", "insert", "setdefault"})

Modules = Mapping[str, ast.Module]
"""Syntax tree by path."""


@pytest.fixture(scope="module")
def product() -> Modules:
    files = [path for folder in ("apps", "ticketing") for path in sorted((CHECKOUT / folder).rglob("*.py"))]
    return {path.relative_to(CHECKOUT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def registries(modules: Modules) -> dict[str, set[str]]:
    """Return the files that call each registry, by `path::name`.

    A registry is a function with a parameter for a callback, which it stores in a variable of its module; or a method
    `register…` that stores it in its object.
    """
    callbacks = _callback_types(modules)
    found: dict[str, set[str]] = {}
    for path, module in modules.items():
        shared = {name for node in module.body for name in _assigned(node)}
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and _keeps_callback(node, shared, callbacks):
                found[f"{path}::{node.name}"] = set()
            elif isinstance(node, ast.ClassDef):
                for method in node.body:
                    is_method = isinstance(method, ast.FunctionDef) and method.name.startswith("register")
                    if is_method and _keeps_callback(method, {"self"}, callbacks):
                        found[f"{path}::{node.name}.{method.name}"] = set()
    names = {name.rpartition("::")[2].rpartition(".")[2] for name in found}
    # One walk over all modules, which takes most of the time.
    used = {
        path: [node for node in ast.walk(module) if isinstance(node, ast.Call | ast.ImportFrom)]
        for path, module in modules.items()
    }
    imports = {path: _imports(nodes) for path, nodes in used.items()}
    methods = {name.rpartition(".")[2]: name for name in found if "." in name.partition("::")[2]}
    for path, nodes in used.items():
        for node in nodes:
            name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
            if name in names:
                called = _called(imports, path, node.func) or methods.get(name)
                if called in found:
                    found[called].add(path)
    return found


def _callback_types(modules: Modules) -> re.Pattern[str]:
    """Match an annotation that names a callable, an alias of one, or a protocol."""
    names = {"Callable"}
    for module in modules.values():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and any(getattr(base, "id", "") == "Protocol" for base in node.bases):
                names.add(node.name)
            elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Callable["):
                names.update(_assigned(node))
    return re.compile(rf"\b(?:{'|'.join(sorted(names))})\b")


def _assigned(node: ast.stmt) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return (target.id for target in targets if isinstance(target, ast.Name))


def _keeps_callback(function: ast.FunctionDef, shared: set[str], callbacks: re.Pattern[str]) -> bool:
    parameters = [*function.args.args, *function.args.kwonlyargs]
    if not any(one.annotation is not None and callbacks.search(ast.unparse(one.annotation)) for one in parameters):
        return False
    for node in ast.walk(function):
        stores = [target.value for target in getattr(node, "targets", ()) if isinstance(target, ast.Subscript)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _STORES:
            stores.append(node.func.value)
        if any(ast.unparse(store).partition(".")[0] in shared for store in stores):
            return True
    return False


def _imports(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return dotted names by the names that these nodes of a module import them as."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _called(imports: Mapping[str, Mapping[str, str]], path: str, function: ast.expr) -> str | None:
    """Return `path::name` of a function of another module, also if a facade passes it on."""
    first, _, attribute = ast.unparse(function).partition(".")
    dotted = imports[path].get(first, "") + (attribute and f".{attribute}")
    name = ""
    while dotted:
        module, _, name = dotted.rpartition(".")
        path = f"{module.replace('.', '/')}.py"
        if path not in imports:
            return None
        dotted = imports[path].get(name, "")
    return f"{path}::{name}" if name else None


def documented() -> dict[str, set[str]]:
    """Return the files of the column "filled by" by the registry in the column before it."""
    table = TABLE.search((CHECKOUT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert table is not None
    rows = [line.split("|") for line in table[1].splitlines() if line.startswith("| ")]
    return {registry: set(_PATH.findall(row[3])) for row in rows for registry in _PATH.findall(row[2])}


def app_of(path: str) -> str:
    top, second, *_ = path.split("/")
    return second if top == "apps" else top


def test_the_table_lists_every_registry_and_the_files_that_fill_it(product: Modules) -> None:
    assert registries(product) == documented()


@pytest.mark.parametrize("registry", sorted(documented()))
def test_a_registry_connects_two_apps(registry: str) -> None:
    """Inside one app a function is called directly."""
    files = documented()[registry]
    assert not files or {app_of(path) for path in files} != {app_of(registry)}


def test_a_registry_is_found_through_a_facade() -> None:
    sources = {
        "apps/low/registry.py": """
            from collections.abc import Callable
            Listener = Callable[[int], None]
            _listeners: list[Listener] = []
            def on_change(listener: Listener) -> None:
                _listeners.append(listener)
            def each(act: Callable[[int], None]) -> None:
                found = []
                found.append(act)
        """,
        "apps/low/facade.py": "from apps.low.registry import on_change",
        "apps/high/apps.py": """
            def ready() -> None:
                from apps.low import facade as low
                low.on_change(print)
        """,
    }
    modules = {path: ast.parse(re.sub(r"^ {12}", "", text, flags=re.MULTILINE)) for path, text in sources.items()}
    assert registries(modules) == {"apps/low/registry.py::on_change": {"apps/high/apps.py"}}
