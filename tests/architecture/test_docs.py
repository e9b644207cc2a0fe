"""All files, folders, functions and link targets named in the documentation exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TOUR_BYTES_MAX = 2_500_000
CHECKOUT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = sorted(
    path
    for path in (
        *(CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        *(CHECKOUT / "docs").rglob("*.md"),
    )
    # A decision record describes the code of its time.
    if CHECKOUT / "docs" / "adr" not in path.parents
)

FOLDERS = ("apps", "benchmarks", "docs", "static", "templates", "tests", "ticketing")
_FENCED = re.compile(r"^```(\w*)$(.*?)^```$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[^`\s]*)`")
_MODULE = re.compile(rf"\b((?:{'|'.join(FOLDERS)})/[\w/.]+\.(?:py|sql|lua))\b")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_IMAGE = re.compile(r'<(?:img|source)\b[^>]*?\bsrc(?:set)?="([^"]+)"')
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def missing(text: str, folder: Path) -> Iterator[str]:
    """Yield what the text of a document in `folder` names but the repository does not have."""
    prose = _prose(text)
    paths = _PATH.findall(prose) + [found for found in _MODULE.findall(prose) if "::" not in found]
    for named in dict.fromkeys(paths):
        if not _exists(named):
            yield named
    for target in _LINK.findall(prose) + _IMAGE.findall(prose):
        if not target.startswith(("https://", "http://", "mailto:")) and not _is_linkable(target, folder):
            yield f"link to {target}"


def _prose(text: str) -> str:
    """Return the text without code blocks; diagrams stay, because they name modules."""
    return _FENCED.sub(lambda block: block[2] if block[1] == "mermaid" else "", text)


def _exists(named: str) -> bool:
    """Return whether a file, a folder, a pattern with `*` or `file.py::name` exists.

    A part in <> matches any name; a path with braces or an ellipsis is not checked.
    """
    path, _, name = re.sub(r"<[^>]*>", "*", named).partition("::")
    if any(character in path for character in "*{…"):
        return "{" in path or "…" in path or any(CHECKOUT.glob(path.rstrip("/")))
    return (CHECKOUT / path).exists() and (not name or name.removesuffix("()") in _names(CHECKOUT / path))


@cache
def _names(module: Path) -> frozenset[str]:
    """Return the names that a module defines at its top level, and `Class.method` of its classes."""
    names: set[str] = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.AsyncFunctionDef)}
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(names)


def _is_linkable(target: str, folder: Path) -> bool:
    """Return whether a relative link leads to a file or folder and, in a document, to one of its headings."""
    path, _, anchor = target.partition("#")
    file = (folder / path).resolve() if path else None
    if file is not None and not file.exists():
        return False
    # `test_every_anchor_is_a_heading` checks links within a document.
    return not anchor or file is None or file.suffix != ".md" or anchor in _anchors(file.read_text(encoding="utf-8"))


def _anchors(text: str) -> set[str]:
    """Return the anchors of a document's headings, as GitHub generates them."""
    headings = _HEADING.findall(_prose(text))
    plain = (re.sub(r"[^\w\- ]", "", heading.strip().lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(CHECKOUT).as_posix())
def test_every_path_and_link_exists(document: Path) -> None:
    assert list(missing(document.read_text(encoding="utf-8"), document.parent)) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(CHECKOUT).as_posix())
def test_every_anchor_is_a_heading(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    own = {target[1:] for target in _LINK.findall(_prose(text)) if target.startswith("#")}
    assert own - _anchors(text) == set()


@pytest.mark.parametrize(
    "text",
    [
        "see `apps/queue/no_such_module.py`",
        "see `apps/no_such_folder/`",
        "see `apps/queue/facade.py::no_such_function`",
        "see `apps/queue/*/no_such_module.py`",
        "the arrow says apps/queue/no_such_module.py",
        "[there](no-such-document.md)",
        "[there](docs/api.md#no-such-heading)",
        '<picture><source media="(prefers-color-scheme: dark)" srcset="docs/images/no-such-image.webp"></picture>',
        '<img alt="A seat map" src="docs/images/no-such-image.webp">',
    ],
)
def test_a_missing_target_is_reported(text: str) -> None:
    assert list(missing(text, CHECKOUT)) != []


@pytest.mark.parametrize(
    "text",
    [
        "see `apps/queue/facade.py`, `apps/queue/` and `apps/*/facade.py`",
        "see `apps/kernel/outbox/facade.py::publish`",
        "see `apps/kernel/group_commit/batcher.py::Batcher.submit`",
        "[there](docs/api.md) or [elsewhere](https://example.org/docs/no-such-page.md)",
        "```sh\ncp apps/new/model.py\n```",
        '<img alt="A seat map" src="docs/images/seat-map.webp" width="220">',
    ],
)
def test_an_existing_target_is_not_reported(text: str) -> None:
    assert list(missing(text, CHECKOUT)) == []


def test_the_tour_names_each_of_its_pictures_and_they_are_small() -> None:
    folder = CHECKOUT / "docs" / "tour"
    named = set(re.findall(r'src="tour/([\w-]+\.webp)"', (CHECKOUT / "docs" / "tour.md").read_text(encoding="utf-8")))
    assert named == {path.name for path in folder.iterdir()}
    assert sum(path.stat().st_size for path in folder.iterdir()) <= TOUR_BYTES_MAX
