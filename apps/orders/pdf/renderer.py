"""Renders documents as PDF by Typst, from the templates and fonts in this folder: no system fonts, no network.

The library, its fonts and a template are loaded once per process, when it renders its first document. A document
contains the used glyphs of its fonts. The same data give the same bytes.
"""

import json
import logging
import os
import re
import threading
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import typst
from django.conf import settings

_FOLDER = Path(__file__).parent
_TEMPLATES = _FOLDER / "templates"
_LONG_WORD = re.compile(r"\S{25,}")
_PIECE = re.compile(r"(.{12})(?=.)")
# A superset of the letters for which `brand.typ` looks.
_RIGHT_TO_LEFT = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff]")
# Control characters except line breaks; marks that override the direction of the text after them.
_UNPRINTABLE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

_REPLACEMENT = "?"

logger = logging.getLogger(__name__)

_compilers = threading.local()
_has_rendered = False
_is_forked = False


class RenderedBeforeFork(RuntimeError):
    """This process was forked from one that had rendered: the threads of the library exist only there."""


class RendererPanicked(RuntimeError):
    """The library failed on its own bug, with text that it should have accepted."""


def render(template: str, data: Mapping[str, Any], *, images: Sequence[str] = ()) -> bytes:
    """Return the PDF of the template (`tickets`) with this data and these SVG images. Strings are printed as they are,
    never as markup.

    Some mixes of letters from right to left and marks without a glyph make the library panic. Then the document has
    simpler text instead: without marks, and if that fails too, with `?` for every character beyond ASCII. Raises
    RendererPanicked if even that fails.
    """
    global _has_rendered  # noqa: PLW0603  # Of this process.
    if _is_forked:
        raise RenderedBeforeFork("a process that renders PDFs must not be forked from one that already did")
    _has_rendered = True
    for simplify in (str, _without_marks):
        try:
            return _compile(template, data, images, simplify)
        except RendererPanicked as panic:
            logger.warning("a document of the template %s gets simpler text: %s", template, panic)
    return _compile(template, data, images, _as_ascii)


def _compile(template: str, data: Mapping[str, Any], images: Sequence[str], simplify: Callable[[str], str]) -> bytes:
    encoded = json.dumps({**_printable(data, simplify), "images": list(images)}, ensure_ascii=False)
    try:
        # The annotations lack what the library documents: several files by name.
        files: Any = {**_files(template), **_data_files(encoded)}
        pdf = _compiler(template).compile(files, format="pdf")
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        # A panic of Rust code is no Exception: it would pass every handler of errors. The next call makes a compiler.
        _compilers.__dict__.pop(template, None)
        raise RendererPanicked(f"the PDF library panicked: {error}") from error
    assert isinstance(pdf, bytes)
    return pdf


def _compiler(template: str) -> typst.Compiler:
    """Return this thread's compiler of the template: a compiler serves one call at a time."""
    found = _compilers.__dict__.get(template)
    if found is None:
        files: Any = {**_files(template), **_data_files("{}")}
        found = typst.Compiler(files, root=_TEMPLATES, font_paths=_fonts())
        _compilers.__dict__[template] = found
    return found


@cache
def _files(template: str) -> Mapping[str, bytes]:
    """Return the sources of the template, by name. The data are one more file beside them: as `sys.inputs` they would
    be part of what each source is evaluated with, so every document would evaluate all sources again."""
    paths = {"main": f"{template}.typ", "brand.typ": "brand.typ"}
    return {name: (_TEMPLATES / path).read_bytes() for name, path in paths.items()}


def _data_files(encoded: str) -> Mapping[str, bytes]:
    """Return the files with the data. `brand.typ` reads the second only, so few documents evaluate it."""
    has_right_to_left = _RIGHT_TO_LEFT.search(encoded) is not None
    return {"data.json": encoded.encode(), "has_right_to_left.json": json.dumps(has_right_to_left).encode()}


@cache
def _fonts() -> typst.Fonts:
    # Documents are small: further threads would only compete with other processes. The library reads this once.
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    folders = [str(_FOLDER / "fonts"), *([settings.PDF_FONTS_FOLDER] if settings.PDF_FONTS_FOLDER else [])]
    return typst.Fonts(include_system_fonts=False, include_embedded_fonts=False, font_paths=folders)


def _printable(value: Any, simplify: Callable[[str], str]) -> Any:
    """Return the value with every string simplified and printable: without control characters, and with zero-width
    spaces at which a long word may break."""
    match value:
        case str():
            text = _UNPRINTABLE.sub("", simplify(value.encode("utf-8", "replace").decode()))
            return _LONG_WORD.sub(lambda word: _PIECE.sub("\\1\N{ZERO WIDTH SPACE}", word[0]), text)
        case Mapping():
            return {key: _printable(each, simplify) for key, each in value.items()}
        case list() | tuple():
            return [_printable(each, simplify) for each in value]
        case _:
            return value


def _without_marks(text: str) -> str:
    """Return the text with composed letters, without further marks and without invisible characters."""
    return "".join(one for one in unicodedata.normalize("NFC", text) if not _is_mark(one))


def _as_ascii(text: str) -> str:
    """Return the text without accents, with a replacement for each character that ASCII does not have."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(one if one.isascii() else _REPLACEMENT for one in decomposed if not _is_mark(one))


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Me", "Cf")


def _after_fork() -> None:
    global _is_forked  # noqa: PLW0603  # Of this process.
    _is_forked = _has_rendered


os.register_at_fork(after_in_child=_after_fork)
