"""Double Metaphone: one or two codes of how a word may sound, so that words spelled by ear are found.

Written for this project after the algorithm that Lawrence Philips published in "The Double Metaphone Search
Algorithm" (C/C++ Users Journal, June 2000), and under the license of this project. The packages that exist are without
releases for years, or without wheels for every supported Python. Codes are not cut at four characters, since long names
must differ.

The letters of a code: P B→P, F V→F, T D→T, K G→K, S, X (sh, ch), 0 (th), J, L, M, N, R, H, and A for a vowel at the
beginning.
"""

from collections.abc import Callable

from apps.events.search.words.text import fold

CODE_CHARACTERS_MAX = 12
_VOWELS = frozenset("AEIOUY")


class _Word:
    """A word in capital letters with padding, so that a look ahead or back needs no bounds, and the codes so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.length = len(text)
        self.padded = f"------{text}------"
        self.first: list[str] = []
        self.second: list[str] = []
        self.is_slavic_or_germanic = any(part in text for part in ("W", "K", "CZ", "WITZ"))

    def at(self, start: int, *options: str) -> bool:
        """Return whether one of these parts begins at this index."""
        return self.padded.startswith(options, start + 6)

    def is_vowel(self, index: int) -> bool:
        return self.padded[index + 6] in _VOWELS

    def add(self, first: str, second: str | None = None) -> None:
        self.first.append(first)
        self.second.append(first if second is None else second)


def codes(word: str) -> tuple[str, str]:
    """Return the primary and the secondary code of the word; the secondary is empty if it is the same. Both are empty
    for a word without Latin letters."""
    text = fold(word).upper()
    if not (text.isascii() and text.isalpha()):
        return "", ""
    read = _Word(text)
    index = 1 if read.at(0, "GN", "KN", "PN", "WR", "PS") else 0
    if text[0] == "X":
        read.add("S")
        index = 1
    while index < read.length:
        letter = text[index]
        if letter in _VOWELS:
            if index == 0:
                read.add("A")
            index += 1
            continue
        index += _RULES[letter](read, index)
    first, second = "".join(read.first)[:CODE_CHARACTERS_MAX], "".join(read.second)[:CODE_CHARACTERS_MAX]
    return first, "" if second == first else second


# Each rule adds the sound of the letters at the index, and returns how many letters it has read.


def _double(code: str, letter: str) -> Callable[[_Word, int], int]:
    """Return the rule of a letter that has one sound, also if it is doubled."""

    def rule(word: _Word, index: int) -> int:
        word.add(code)
        return 2 if word.at(index + 1, letter) else 1

    return rule


def _b(word: _Word, index: int) -> int:
    if index > 0 and index == word.length - 1 and word.at(index - 1, "M"):
        return 1  # "comb"
    word.add("P")
    return 2 if word.at(index + 1, "B") else 1


def _c(word: _Word, index: int) -> int:
    if index > 1 and not word.is_vowel(index - 2) and word.at(index - 1, "ACH") and not word.at(index + 2, "I", "E"):
        word.add("K")
        return 2
    if index == 0 and word.at(index, "CAESAR"):
        word.add("S")
        return 2
    if word.at(index, "CHIA"):
        word.add("K")
        return 2
    if word.at(index, "CH"):
        return _ch(word, index)
    if word.at(index, "CZ") and not word.at(index - 2, "WICZ"):
        word.add("S", "X")
        return 2
    if word.at(index + 1, "CIA"):
        word.add("X")
        return 3
    if word.at(index, "CC") and not (index == 1 and word.at(0, "M")):
        if word.at(index + 2, "I", "E", "H") and not word.at(index + 2, "HU"):
            if (index == 1 and word.at(0, "A")) or word.at(index - 1, "UCCEE", "UCCES"):
                word.add("KS")
            else:
                word.add("X")
            return 3
        word.add("K")
        return 2
    if word.at(index, "CK", "CG", "CQ"):
        word.add("K")
        return 2
    if word.at(index, "CI", "CE", "CY"):
        word.add("S", "X" if word.at(index, "CIO", "CIE", "CIA") else None)
        return 2
    word.add("K")
    return 2 if word.at(index + 1, "C", "K", "Q") and not word.at(index + 1, "CE", "CI") else 1


def _ch(word: _Word, index: int) -> int:
    if index > 0 and word.at(index, "CHAE"):
        word.add("K", "X")
    elif (index == 0 and word.at(1, "HARAC", "HARIS", "HOR", "HYM", "HIA", "HEM") and not word.at(0, "CHORE")) or (
        word.at(0, "SCH")
        or word.at(index - 2, "ORCHES", "ARCHIT", "ORCHID")
        or word.at(index + 2, "T", "S")
        or (
            (index == 0 or word.at(index - 1, "A", "O", "U", "E"))
            and word.at(index + 2, "L", "R", "N", "M", "B", "H", "F", "V", "W", "-")
        )
    ):
        word.add("K")
    elif index > 0:
        if word.at(0, "MC"):
            word.add("K")
        else:
            word.add("X", "K")
    else:
        word.add("X")
    return 2


def _d(word: _Word, index: int) -> int:
    if word.at(index, "DG"):
        if word.at(index + 2, "I", "E", "Y"):
            word.add("J")
            return 3
        word.add("TK")
        return 2
    word.add("T")
    return 2 if word.at(index + 1, "T", "D") else 1


def _g(word: _Word, index: int) -> int:
    if word.at(index + 1, "H"):
        return _gh(word, index)
    if word.at(index + 1, "N"):
        if index == 1 and word.is_vowel(0) and not word.is_slavic_or_germanic:
            word.add("KN", "N")
        elif not word.at(index + 2, "EY") and not word.is_slavic_or_germanic:
            word.add("N", "KN")
        else:
            word.add("KN")
        return 2
    if word.at(index + 1, "LI") and not word.is_slavic_or_germanic:
        word.add("KL", "L")
        return 2
    if index == 0 and word.at(1, "Y", "ES", "EP", "EB", "EL", "EY", "IB", "IL", "IN", "IE", "EI", "ER"):
        word.add("K", "J")
        return 2
    if (
        word.at(index + 1, "ER", "Y")
        and not word.at(0, "DANGER", "RANGER", "MANGER")
        and not word.at(index - 1, "E", "I", "RGY", "OGY")
    ):
        word.add("K", "J")
        return 2
    if word.at(index + 1, "E", "I", "Y") or word.at(index - 1, "AGGI", "OGGI"):
        if word.at(0, "SCH") or word.at(index + 1, "ET"):
            word.add("K")
        elif word.at(index + 1, "IER-"):
            word.add("J")
        else:
            word.add("J", "K")
        return 2
    word.add("K")
    return 2 if word.at(index + 1, "G") else 1


def _gh(word: _Word, index: int) -> int:
    if index > 0 and not word.is_vowel(index - 1):
        word.add("K")
    elif index == 0:
        word.add("J" if word.at(2, "I") else "K")
    elif not (word.at(index - 2, "B", "H", "D") or word.at(index - 3, "B", "H", "D") or word.at(index - 4, "B", "H")):
        if index > 2 and word.at(index - 1, "U") and word.at(index - 3, "C", "G", "L", "R", "T"):
            word.add("F")  # "laugh", "rough"
        elif index > 0 and not word.at(index - 1, "I"):
            word.add("K")
    return 2


def _h(word: _Word, index: int) -> int:
    # Only before a vowel, and between vowels or at the beginning.
    if (index == 0 or word.is_vowel(index - 1)) and word.is_vowel(index + 1):
        word.add("H")
        return 2
    return 1


def _j(word: _Word, index: int) -> int:
    if word.at(index, "JOSE") or word.at(0, "SAN"):
        word.add("H" if index == 0 and word.at(index + 4, "-") else "J", "H")
        return 1
    if index == 0:
        word.add("J", "A")
    elif word.is_vowel(index - 1) and not word.is_slavic_or_germanic and word.at(index + 1, "A", "O"):
        word.add("J", "H")
    elif index == word.length - 1:
        word.add("J", "")
    elif not word.at(index + 1, "L", "T", "K", "S", "N", "M", "B", "Z") and not word.at(index - 1, "S", "K", "L"):
        word.add("J")
    return 2 if word.at(index + 1, "J") else 1


def _l(word: _Word, index: int) -> int:
    if not word.at(index + 1, "L"):
        word.add("L")
        return 1
    is_spanish = (index == word.length - 3 and word.at(index - 1, "ILLO", "ILLA", "ALLE")) or (
        word.at(word.length - 2, "AS", "OS") and word.at(index - 1, "ALLE")
    )
    word.add("L", "" if is_spanish else None)
    return 2


def _m(word: _Word, index: int) -> int:
    word.add("M")
    is_dumb = word.at(index - 1, "UMB") and (index + 1 == word.length - 1 or word.at(index + 2, "ER"))
    return 2 if is_dumb or word.at(index + 1, "M") else 1


def _p(word: _Word, index: int) -> int:
    if word.at(index + 1, "H"):
        word.add("F")
        return 2
    word.add("P")
    return 2 if word.at(index + 1, "P", "B") else 1


def _r(word: _Word, index: int) -> int:
    is_french = (
        index == word.length - 1
        and not word.is_slavic_or_germanic
        and word.at(index - 2, "IE")
        and not word.at(index - 4, "ME", "MA")
    )
    word.add("" if is_french else "R", "R")
    return 2 if word.at(index + 1, "R") else 1


def _s(word: _Word, index: int) -> int:
    if word.at(index - 1, "ISL", "YSL"):
        return 1  # "island"
    if index == 0 and word.at(index, "SUGAR"):
        word.add("X", "S")
        return 1
    if word.at(index, "SH"):
        word.add("S" if word.at(index + 1, "HEIM", "HOEK", "HOLM", "HOLZ") else "X")
        return 2
    if word.at(index, "SIO", "SIA"):
        word.add("S", None if word.is_slavic_or_germanic else "X")
        return 3
    if (index == 0 and word.at(1, "M", "N", "L", "W")) or word.at(index + 1, "Z"):
        word.add("S", "X")
        return 2 if word.at(index + 1, "Z") else 1
    if word.at(index, "SC"):
        if word.at(index + 2, "H"):
            if word.at(index + 3, "OO", "ER", "EN", "UY", "ED", "EM"):
                if word.at(index + 3, "ER", "EN"):
                    word.add("X", "SK")
                else:
                    word.add("SK")
            else:
                word.add("X", "S" if index == 0 and not word.is_vowel(3) and not word.at(3, "W") else None)
            return 3
        if word.at(index + 2, "I", "E", "Y"):
            word.add("S")
            return 3
        word.add("SK")
        return 3
    if index == word.length - 1 and word.at(index - 2, "AI", "OI"):
        word.add("", "S")
    else:
        word.add("S")
    return 2 if word.at(index + 1, "S", "Z") else 1


def _t(word: _Word, index: int) -> int:
    if word.at(index, "TION", "TIA", "TCH"):
        word.add("X")
        return 3
    if word.at(index, "TSCH"):
        word.add("X")
        return 4
    if word.at(index, "TH", "TTH"):
        if word.at(index + 2, "OM", "AM") or word.at(0, "SCH"):
            word.add("T")
        else:
            word.add("0", "T")
        return 2
    word.add("T")
    return 2 if word.at(index + 1, "T", "D") else 1


def _v(word: _Word, index: int) -> int:
    word.add("F")
    return 2 if word.at(index + 1, "V") else 1


def _w(word: _Word, index: int) -> int:
    if word.at(index, "WR"):
        word.add("R")
        return 2
    if index == 0 and (word.is_vowel(1) or word.at(0, "WH")):
        if word.is_vowel(1):
            word.add("A", "F")
        else:
            word.add("A")
        return 1
    if (index == word.length - 1 and word.is_vowel(index - 1)) or word.at(
        index - 1, "EWSKI", "EWSKY", "OWSKI", "OWSKY"
    ):
        word.add("", "F")
        return 1
    if word.at(index, "WICZ", "WITZ"):
        word.add("TS", "FX")
        return 4
    return 1


def _x(word: _Word, index: int) -> int:
    is_silent = index == word.length - 1 and word.at(index - 3, "IAU", "EAU")
    if not is_silent:
        word.add("KS")
    return 2 if word.at(index + 1, "C", "X") else 1


def _z(word: _Word, index: int) -> int:
    if word.at(index + 1, "H"):
        word.add("J")
        return 2
    if word.at(index + 1, "ZO", "ZI", "ZA") or (
        word.is_slavic_or_germanic and index > 0 and not word.at(index - 1, "T")
    ):
        word.add("S", "TS")
    else:
        word.add("S")
    return 2 if word.at(index + 1, "Z") else 1


_RULES: dict[str, Callable[[_Word, int], int]] = {
    "B": _b,
    "C": _c,
    "D": _d,
    "F": _double("F", "F"),
    "G": _g,
    "H": _h,
    "J": _j,
    "K": _double("K", "K"),
    "L": _l,
    "M": _m,
    "N": _double("N", "N"),
    "P": _p,
    "Q": _double("K", "Q"),
    "R": _r,
    "S": _s,
    "T": _t,
    "V": _v,
    "W": _w,
    "X": _x,
    "Z": _z,
}
