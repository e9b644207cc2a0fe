"""Words of a text: folded tokens, and their stems by language.

A folded word has no case, no diacritics and no ligatures, so that "Björk", "bjork" and "BJÖRK" are one word.
"""

import re
import threading
import unicodedata
from functools import lru_cache
from typing import NamedTuple

import snowballstemmer

WORD_CHARACTERS_MAX = 40
# Combining marks are parts of words, and Python's \w has none of them.
_MARKS = "".join(chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code)).startswith("M"))
_WORDS = re.compile(rf"[^\W_][^\W_]*(?:[{_MARKS}]+[^\W_]*)*(?:[-'’ʼ]+[^\W_][^\W_]*(?:[{_MARKS}]+[^\W_]*)*)*")
_PARTS = re.compile(r"[-'’ʼ]+")
_POSSESSIVE = re.compile(r"['’ʼ]s$", re.IGNORECASE)
_LETTERS = str.maketrans(
    {
        "ø": "o", "đ": "d", "ð": "d", "ł": "l", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th", "ħ": "h", "ŋ": "n",
        "ـ": "", "ə": "e",
    }
)  # fmt: skip
_UMLAUTS = re.compile(r"(?<=[^aeou])([aou])e|(?<=^)([aou])e")
_STEMMERS = {
    "ar": "arabic", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish", "fi": "finnish",
    "fr": "french", "hu": "hungarian", "it": "italian", "nl": "dutch", "no": "norwegian", "pt": "portuguese",
    "ro": "romanian", "ru": "russian", "sv": "swedish", "tr": "turkish",
}  # fmt: skip
_local = threading.local()


class Token(NamedTuple):
    """A word of a text, and the part of the text that it was read from."""

    word: str
    """Folded."""
    written: str
    """In small letters, with its diacritics."""
    start: int
    end: int
    is_joined: bool = False
    """A compound with a hyphen, as one word: "hiphop" beside "hip" and "hop"."""


def fold(text: str) -> str:
    """Return the text in small letters, without diacritics and ligatures."""
    if text.isascii():
        return text.lower()
    # Character by character: Python sorts a run of combining marks in quadratic time, and all marks are left out here.
    plain = (part for char in text.casefold().translate(_LETTERS) for part in unicodedata.normalize("NFKD", char))
    return "".join(char for char in plain if not unicodedata.combining(char)).casefold()


def tokenize(text: str) -> list[Token]:
    """Return the words of the text in order. A compound with hyphens or apostrophes has its parts and itself as one
    word; the English possessive is left out."""
    found = []
    for match in _WORDS.finditer(text):
        written = _POSSESSIVE.sub("", match[0])
        parts = [part for part in _PARTS.split(written) if part]
        start = match.start()
        if len(parts) > 1:
            whole = "".join(parts)
            found.append(_token(whole, start, start + len(written), is_joined=True))
        at = start
        for part in parts:
            at = text.index(part, at)
            found.append(_token(part, at, at + len(part)))
            at += len(part)
    return [token for token in found if token.word]


def _token(written: str, start: int, end: int, *, is_joined: bool = False) -> Token:
    lower = written.lower()
    return Token(fold(written)[:WORD_CHARACTERS_MAX], lower[:WORD_CHARACTERS_MAX], start, end, is_joined)


def without_umlauts(word: str) -> str:
    """Return the folded word with "ae", "oe" and "ue" as plain vowels: "muenchen" becomes "munchen"."""
    return _UMLAUTS.sub(lambda match: match[1] or match[2], word)


def stem(written: str, language: str) -> str:
    """Return the folded stem of the word in this language; the folded word itself in a language without a stemmer."""
    return _stem(written, language)


@lru_cache(maxsize=65_536)
def _stem(written: str, language: str) -> str:
    name = _STEMMERS.get(language)
    if name is None or any(char.isdigit() for char in written):
        return fold(written)
    # A stemmer keeps the word that it works on, so each thread has its own.
    stemmer = _local.__dict__.get(name)
    if stemmer is None:
        stemmer = _local.__dict__[name] = snowballstemmer.stemmer(name)
    return fold(stemmer.stemWord(written)) or fold(written)
