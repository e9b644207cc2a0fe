"""Chooses the size of a text so that it fits its box, by estimated widths.

Typst could measure the text instead; that makes a ticket up to 1.9 times as expensive.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Any

_NARROW = frozenset(" !'(),-./:;I[]fijlrt|")
_WIDE = frozenset("%@MWmw")
_FILLED = 0.88
"""The share of a line that words fill before the next one wraps."""
_LINE_HEIGHT = 1.25


_BRAND_FACE = re.compile("[ -\u017f\u2013-\u201d\u2026\u20ac]*")
_BRAND_FACE_WIDTH = 0.62
"""Of the brand's condensed face, as a share of the text face."""


def fit(text: str, width: float, height: float, sizes: tuple[float, ...]) -> dict[str, Any]:
    """Return the text with its size, for `fitted` of the templates."""
    size = _choose_size(_estimate_width(text), width, height, sizes)
    return {"text": text, "size": size, "smallest": size == sizes[-1]}


def fit_title(text: str, width: float, height: float, sizes: tuple[float, ...]) -> dict[str, Any]:
    """Return the title with its size and face: the brand's if that has all its letters, else the text's face, so that
    no title mixes both."""
    is_brand = _BRAND_FACE.fullmatch(text) is not None
    ems = _estimate_width(text) * (_BRAND_FACE_WIDTH if is_brand else 1)
    size = _choose_size(ems, width, height, sizes)
    return {"text": text, "brand": is_brand, "size": size, "smallest": size == sizes[-1]}


def _choose_size(ems: float, width: float, height: float, sizes: tuple[float, ...]) -> float:
    """Return the largest of these sizes at which a text of this width fits a box of this width and height, all in
    points; the smallest if none fits."""
    for size in sizes:
        lines = max(1, int((height + (_LINE_HEIGHT - 1) * size) / (_LINE_HEIGHT * size)))
        if ems * size <= width * (1 if lines == 1 else lines * _FILLED):
            return size
    return sizes[-1]


@lru_cache(maxsize=1_024)
def _estimate_width(text: str) -> float:
    """Return the width of the text in bold type, in units of its size."""
    return sum(_estimate_character(character) for character in text)


def _estimate_character(character: str) -> float:
    if character in _NARROW:
        return 0.36
    if character in _WIDE:
        return 0.98
    if character.isascii():
        return 0.7 if character.isupper() else 0.61
    if unicodedata.combining(character):
        return 0
    if unicodedata.bidirectional(character) in ("R", "AL"):
        return 0.56
    return 1.05 if unicodedata.east_asian_width(character) in "FW" else 0.72
