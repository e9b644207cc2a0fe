"""From a query to the documents that match it.

The words of a query become units; a unit has alternatives, each with documents by weight. Its alternatives are found in
steps, and a step is taken only if the ones before have found no document that matches all units:

1. the word itself, its forms (same stem), its synonyms, and two words written as one or the reverse;
2. for words that the index does not have: words within two edits, longer words with it, and words that sound alike;
3. the same for all words, except that a word of the index is replaced by very close spellings only;
4. without the words for which nothing was found.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from apps.events.search.documents import WEIGHTS
from apps.events.search.memory import View
from apps.events.search.words.text import Token, fold, tokenize, without_umlauts
from apps.events.search.words.vocabulary import Near

QUERY_CHARACTERS_MAX = 100
WORDS_MAX = 8
SCALE = 16
"""Points of a word for a weight of 1; the difference of two weights exceeds all other points of an event together."""
CLOSE_SCORE = 0.9
"""A spelling below this similarity leaves the choice to words that sound alike too, and never stands for a word that
the index has."""


class Matched(StrEnum):
    """Why a word matched, the surest first."""

    EXACT = "exact"
    FORM = "form"
    JOINED = "joined"
    SYNONYM = "synonym"
    SPELLING = "spelling"
    SOUND = "sound"


_ORDER = {matched: position for position, matched in enumerate(Matched)}
_QUALITY = {
    Matched.EXACT: 1.0, Matched.FORM: 0.9, Matched.JOINED: 0.9, Matched.SYNONYM: 0.8, Matched.SPELLING: 0.7,
    Matched.SOUND: 0.55,
}  # fmt: skip
PART_QUALITY = 0.6
CORRECTED = frozenset({Matched.SPELLING, Matched.SOUND})


def weaker(first: Matched, second: Matched) -> Matched:
    """Return the less sure of the two."""
    return max(first, second, key=_ORDER.__getitem__)


@dataclass(frozen=True, slots=True)
class Alternative:
    """Words of the index that stand for a unit: a document has all of them."""

    words: tuple[str, ...]
    matched: Matched
    quality: float


class Level(NamedTuple):
    """Documents of a unit that get these points for it, and that no level with more points has."""

    points: int
    documents: int
    alternative: Alternative


@dataclass(slots=True)
class Unit:
    """One word of the query, or two or three that have a meaning together."""

    tokens: tuple[Token, ...]
    alternatives: dict[tuple[str, ...], Alternative] = field(default_factory=dict)
    levels: list[Level] = field(default_factory=list)
    documents: int = 0
    is_extended: bool = False

    @property
    def is_sure(self) -> bool:
        """Whether the index has the word itself, a form of it, or a synonym."""
        return any(alternative.quality >= _QUALITY[Matched.SYNONYM] for alternative in self.alternatives.values())

    @property
    def text(self) -> str:
        return " ".join(token.word for token in self.tokens)


@dataclass(slots=True)
class Match:
    """What a query matches."""

    units: list[Unit]
    ignored: list[str]
    """Words without which the documents were found, because nothing is like them."""
    documents: int


def parse(query: str) -> list[Token]:
    """Return the words of the query; compounds as their parts."""
    text = query[:QUERY_CHARACTERS_MAX].replace("\x00", " ")
    return [token for token in tokenize(text) if not token.is_joined][:WORDS_MAX]


def match(query: str, index: View, among: int, *, is_prefix: bool = False) -> Match:
    """Return the documents among these that match all words of the query: all if it is blank, none if it has signs
    only. `is_prefix`: the last word may be incomplete."""
    tokens = parse(query)
    stops = index.vocabulary.stop_words
    last = tokens[-1:] if is_prefix else []
    needed = [token for token in tokens if token.word not in stops or token in last] or tokens
    return _Pipeline(index, among).match(needed, is_prefix=is_prefix, is_blank=not query.strip())


class _Pipeline:
    def __init__(self, index: View, among: int) -> None:
        self._index = index
        self._words = index.vocabulary
        self._everything = among

    def match(self, tokens: Sequence[Token], *, is_prefix: bool, is_blank: bool) -> Match:
        if not tokens:
            return Match([], [], self._everything if is_blank else 0)
        units = list(self._units(tokens))
        if is_prefix:
            self._complete(units[-1], is_only=len(units) == 1)
        self._measure(units)
        self._extend_and_measure([unit for unit in units if not unit.documents])
        documents = self._common(units)
        if not documents and len(units) > 1:
            units = list(self._joined_corrections(units))
            self._extend_and_measure([unit for unit in units if not unit.documents or not unit.is_extended])
            documents = self._common(units)
        ignored: list[str] = []
        for is_known in (lambda unit: unit.documents, lambda unit: unit.is_sure and unit.documents):
            known = [unit for unit in units if is_known(unit)]
            if not documents and known and len(known) < len(units):
                ignored = [unit.text for unit in units if unit not in known]
                units, documents = known, self._common(known)
        return Match(units, ignored, documents)

    def _joined_corrections(self, units: Sequence[Unit]) -> Iterator[Unit]:
        """Yield the units, with two words that the index does not have as one if they are together like one of its
        words."""
        at = 0
        while at < len(units):
            pair = units[at : at + 2]
            if len(pair) == 2 and not any(unit.is_sure or len(unit.tokens) > 1 for unit in pair):
                unit = Unit((*pair[0].tokens, *pair[1].tokens))
                self._extend(unit)
                if unit.alternatives:
                    yield unit
                    at += 2
                    continue
            yield units[at]
            at += 1

    def _units(self, tokens: Sequence[Token]) -> Iterator[Unit]:
        at = 0
        while at < len(tokens):
            for count in range(min(3, len(tokens) - at), 1, -1):
                together = tokens[at : at + count]
                unit = self._phrase(together)
                if unit is not None:
                    yield unit
                    at += count
                    break
            else:
                yield self._word(tokens[at])
                at += 1

    def _phrase(self, tokens: Sequence[Token]) -> Unit | None:
        """Return the unit of these words together, or None if they have no meaning of their own."""
        phrase = tuple(token.word for token in tokens)
        unit = Unit(tuple(tokens))
        joined = "".join(phrase)
        if len(tokens) == 2:
            for word in self._exact(joined):
                self._add(unit, (word,), Matched.JOINED)
        for other in self._index.synonyms.of(phrase):
            self._add_phrase(unit, other)
        if not unit.alternatives:
            return None
        self._add(unit, phrase, Matched.EXACT)
        return unit

    def _exact(self, text: str) -> list[str]:
        return [word for word in dict.fromkeys((text, without_umlauts(text))) if word in self._words.words]

    def _word(self, token: Token) -> Unit:
        unit = Unit((token,))
        for word in self._exact(token.word):
            self._add(unit, (word,), Matched.EXACT)
        for word in dict.fromkeys((token.word, without_umlauts(token.word))):
            written = token.written if word == token.word else word
            for other in self._words.forms(word, written):
                self._add(unit, (other,), Matched.FORM)
        stems = {stem for word in unit.alternatives for _, stem in list(self._words.words[word[0]].stems)}
        for word in dict.fromkeys((token.word, without_umlauts(token.word), fold(token.written))):
            for phrase in self._index.synonyms.of((word,), stems | {word}):
                self._add_phrase(unit, phrase)
        return unit

    def _complete(self, unit: Unit, *, is_only: bool) -> None:
        """Add words that the unit's last word may become. With other words, those that go with them are found by their
        documents, so rare ones are added, too."""
        for other in self._words.completions(unit.tokens[-1].word, with_rare=not is_only):
            self._add(unit, (*(token.word for token in unit.tokens[:-1]), other), Matched.EXACT, quality=0.95)

    def _extend_and_measure(self, units: Sequence[Unit]) -> None:
        for unit in units:
            self._extend(unit)
        self._measure(units)

    def _extend(self, unit: Unit) -> None:
        """Add what is like the unit's word: joined words, longer words, spellings, sounds."""
        if unit.is_extended:
            return
        unit.is_extended = True
        if len(unit.tokens) > 1:
            self._correct(unit, "".join(token.word for token in unit.tokens))
            return
        token = unit.tokens[0]
        for parts in self._words.splits(token.word):
            self._add(unit, parts, Matched.JOINED)
        self._correct(unit, token.word)
        if token.word not in self._words.words:
            for text, written in ((token.word, token.written), (without_umlauts(token.word),) * 2):
                for word in self._words.parts(text, written):
                    self._add(unit, (word,), Matched.FORM, quality=PART_QUALITY)

    def _correct(self, unit: Unit, text: str) -> None:
        is_known = unit.is_sure
        spellings = [near for near in self._words.spellings(text) if not is_known or near.score >= CLOSE_SCORE]
        for near in spellings:
            self._add_near(unit, near, Matched.SPELLING)
        if not is_known and (not spellings or spellings[0].score < CLOSE_SCORE):
            for near in self._words.sounds_like(text):
                self._add_near(unit, near, Matched.SOUND)

    def _add_near(self, unit: Unit, near: Near, matched: Matched) -> None:
        quality = _QUALITY[matched] * (0.5 + 0.5 * near.score)
        self._add(unit, (near.text,), matched, quality=quality)
        for word in self._words.siblings(near.text):
            self._add(unit, (word,), matched, quality=quality * 0.95)

    def _add_phrase(self, unit: Unit, phrase: tuple[str, ...]) -> None:
        self._add(unit, phrase, Matched.SYNONYM)
        if len(phrase) == 1:
            for word in self._words.forms(phrase[0], phrase[0]):
                self._add(unit, (word,), Matched.SYNONYM)

    def _add(self, unit: Unit, words: tuple[str, ...], matched: Matched, *, quality: float | None = None) -> None:
        """Add an alternative, unless the unit has these words or the index has not."""
        if words not in unit.alternatives and all(word in self._words.words for word in words):
            unit.alternatives[words] = Alternative(words, matched, _QUALITY[matched] if quality is None else quality)

    def _measure(self, units: Iterable[Unit]) -> None:
        """Find the documents of all alternatives. The postings that are not in memory are read in one query."""
        units = list(units)
        known = self._words.words
        used = {word for unit in units for words in unit.alternatives for word in words}
        levels = self._index.levels_of(term_id for word in used for term_id in known[word].term_ids)
        by_word: dict[str, Sequence[int]] = {}
        for word in used:
            of_terms = [levels[term_id] for term_id in known[word].term_ids if term_id in levels]
            is_one = len(of_terms) == 1
            by_word[word] = of_terms[0] if is_one else [_union(sets) for sets in zip(*of_terms, strict=True)]
        for unit in units:
            unit.levels, unit.documents = self._levels(unit, by_word)

    def _levels(self, unit: Unit, by_word: Mapping[str, Sequence[int]]) -> tuple[list[Level], int]:
        """Return the unit's levels, that of most points first, and the documents of all of them."""
        found: list[Level] = []
        for alternative in unit.alternatives.values():
            by_weight = _together([by_word[word] for word in alternative.words])
            for weight, documents in zip(WEIGHTS, by_weight, strict=False):
                if documents:
                    found.append(Level(max(1, round(SCALE * weight * alternative.quality)), documents, alternative))
        found.sort(key=lambda level: -level.points)
        left, disjoint = self._everything, []
        for points, documents, alternative in found:
            fresh = documents & left
            if fresh:
                left ^= fresh
                disjoint.append(Level(points, fresh, alternative))
        return disjoint, self._everything ^ left

    def _common(self, units: Iterable[Unit]) -> int:
        documents = self._everything
        for unit in units:
            documents &= unit.documents
        return documents


def _together(words: Sequence[Sequence[int]]) -> Sequence[int]:
    """Return by weight the documents that have each of these words with this weight or a higher one. Documents may be
    in several of the sets, the first of which counts."""
    if len(words) == 1:
        return words[0]
    found, so_far = [], [0] * len(words)
    for of_words in zip(*words, strict=False):
        so_far = [above | documents for above, documents in zip(so_far, of_words, strict=True)]
        common = so_far[0]
        for documents in so_far[1:]:
            common &= documents
        found.append(common)
    return found


def _union(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found


def levels_among(units: Sequence[Unit], documents: int) -> list[list[Level]]:
    """Return for each unit its levels that have some of these documents."""
    return [[level for level in unit.levels if level.documents & documents] for unit in units]


def matched_by(units: Sequence[Sequence[Level]], document: int) -> tuple[Matched, dict[int, Alternative]]:
    """Return why the document matched, by its least sure word, and the alternative of each unit that it has. The units
    are given as their levels."""
    found: dict[int, Alternative] = {}
    matched = Matched.EXACT
    for at, levels in enumerate(units):
        level = next((level for level in levels if level.documents >> document & 1), None)
        if level is not None:
            found[at] = level.alternative
            matched = weaker(matched, level.alternative.matched)
    return matched, found


def did_you_mean(query: str, units: Sequence[Unit], documents: Sequence[int], index: View) -> str:
    """Return the query with the words that the best of these documents matched instead of unknown ones; empty if every
    word matched as it was written."""
    if not documents:
        return ""
    _, found = matched_by([unit.levels for unit in units], documents[0])
    text, corrected = query[:QUERY_CHARACTERS_MAX], False
    for at, unit in sorted(enumerate(units), key=lambda pair: -pair[1].tokens[0].start):
        alternative = found.get(at)
        if alternative is None or not _is_correction(alternative, unit):
            continue
        words = " ".join(index.vocabulary.words[word].written for word in alternative.words)
        text = f"{text[: unit.tokens[0].start]}{words}{text[unit.tokens[-1].end :]}"
        corrected = True
    return text if corrected else ""


def _is_correction(alternative: Alternative, unit: Unit) -> bool:
    return alternative.matched in CORRECTED or (alternative.matched is Matched.JOINED and unit.is_extended)


def shorter(units: Sequence[Unit], count: int) -> list[str]:
    """Return up to `count` queries with one word less."""
    texts = [" ".join(unit.text for at, unit in enumerate(units) if at != left_out) for left_out in range(len(units))]
    return [text for text in dict.fromkeys(texts) if text][:count]
