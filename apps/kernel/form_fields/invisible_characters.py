"""Invisible characters in typed names: which are removed, and which names in some scripts need.

A pasted name often contains some that its author cannot see, so they are removed, not refused. Those that reverse the
order of the characters after them, or that make two equal looking names different, have no use in a name.
"""

import unicodedata

KEPT = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}\N{LEFT-TO-RIGHT MARK}\N{RIGHT-TO-LEFT MARK}\u061c"
"""Joiners, which names in Persian and Indic scripts contain, and marks of direction, the Arabic one among them. They
change only the characters beside them."""
_REMOVED_RANGES = (
    (0xAD, 0xAD),  # soft hyphen
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x180E, 0x180E),  # Mongolian vowel separator
    (0x200B, 0x200B),  # zero width space
    (0x202A, 0x202E),  # embeddings and overrides of direction
    (0x2060, 0x206F),  # word joiner, invisible operators, isolates of direction, deprecated controls
    (0x3164, 0x3164),  # Hangul filler
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFA0, 0xFFA0),  # halfwidth Hangul filler
    (0xFFF9, 0xFFFB),  # annotations
    (0xE0000, 0xE0FFF),  # tags
)
_REMOVED = {code: None for first, last in _REMOVED_RANGES for code in range(first, last + 1)}
_INVISIBLE_CATEGORIES = "CMZ"
"""The first letters of the categories of control and format characters, of marks, which alone show nothing, and of
spaces."""


def remove_invisible(text: str) -> str:
    """Return the text without invisible characters; those in KEPT stay."""
    return text if text.isascii() else text.translate(_REMOVED)


def first_visible(text: str) -> str:
    """Return the first character of the text that is visible by itself; empty if there is none."""
    for character in text:
        if ord(character) not in _REMOVED and unicodedata.category(character)[0] not in _INVISIBLE_CATEGORIES:
            return character
    return ""
