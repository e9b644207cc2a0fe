"""The words of the index as one process keeps them: exact, by stem, by prefix, within two edits, and by sound."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log2
from typing import NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import OSA, JaroWinkler

from apps.events.search.words import metaphone
from apps.events.search.words.edits import EditIndex, common_prefix
from apps.events.search.words.stop_words import BY_LANGUAGE
from apps.events.search.words.text import fold, stem, tokenize

EDITS_MAX = 2
LONG_WORD_CHARACTERS = 5
"""From this length a word may differ in two edits; a shorter one in one."""
SHORT_WORD_CHARACTERS = 3
"""Shorter words are not corrected."""
CANDIDATES_MAX = 8
PREFIX_CHARACTERS_MIN = 4
SIMILARITY_MIN = 0.65
"""Of a word that only sounds alike, by Jaro-Winkler."""
COMPLETIONS_MAX = 12
MANY_MAX = 200
"""Completions for a caller that chooses among them: the postings of each are read."""
COMPARED_MAX = 480
"""Words with one start that are compared."""
START_CHARACTERS_MAX = 3
"""Completions of starts up to this length are kept: too many words have them to compare them for each search."""
SAME_SOUND_MAX = 500
"""How many words of one sound are compared, those of the vocabulary first."""
ADDED_MIN = 10_000
"""Read the vocabulary anew rather than add more terms than this, and more than a quarter of its words."""


class Row(NamedTuple):
    """A row of SearchTerm."""

    id: int
    language: str
    text: str
    stem: str
    written: str
    sound: str
    second_sound: str
    document_count: int


@dataclass(slots=True)
class Word:
    """A folded word, with its terms in all languages."""

    text: str
    written: str
    document_count: int = 0
    term_ids: list[int] = field(default_factory=list)
    stems: set[tuple[str, str]] = field(default_factory=set)
    sounds: set[str] = field(default_factory=set)


class Near(NamedTuple):
    """A word like the one asked for: `score` from 0 to 1."""

    text: str
    score: float


class Vocabulary:
    def __init__(self, rows: Iterable[Row]) -> None:
        self.words: dict[str, Word] = {}
        self.languages: frozenset[str] = frozenset()
        self.stop_words: frozenset[str] = frozenset()
        self._by_stem: dict[tuple[str, str], set[str]] = {}
        self._by_sound: dict[str, list[str]] = {}
        self._numbered: list[str] = []
        self._numbered_sounds: list[str] = []
        self.last_term_id = 0
        self._added_count = 0
        for row in rows:
            self._add(row)
        self._texts = sorted(self._numbered)
        self._backward = sorted(text[::-1] for text in self._numbered)

    @property
    def additions_max(self) -> int:
        """How many more terms may be added before the vocabulary should be read anew. Terms without documents remain
        in it, and added ones take more memory than those that were read with it."""
        return max(ADDED_MIN, len(self.words) // 4) - self._added_count

    def _add(self, row: Row) -> None:
        self.last_term_id = max(self.last_term_id, row.id)
        if row.language not in self.languages:
            # New sets, because searches in other threads may be going through the old ones.
            self.languages = self.languages | {row.language}
            self.stop_words = self.stop_words | BY_LANGUAGE.get(row.language, frozenset())
        word = self.words.get(row.text)
        if word is None:
            word = self.words[row.text] = Word(row.text, row.written)
            self._numbered.append(row.text)
        word.term_ids.append(row.id)
        word.document_count += row.document_count
        word.stems.add((row.language, row.stem))
        self._by_stem.setdefault((row.language, row.stem), set()).add(row.text)
        for sound in (row.sound, row.second_sound):
            if not sound or sound in word.sounds:
                continue
            word.sounds.add(sound)
            if sound not in self._by_sound:
                self._by_sound[sound] = []
                self._numbered_sounds.append(sound)
            self._by_sound[sound].append(row.text)

    def add(self, rows: Sequence[Row]) -> None:
        """Add terms that were written after this vocabulary was read."""
        words_before, sounds_before = len(self._numbered), len(self._numbered_sounds)
        for row in rows:
            self._add(row)
        self._added_count += len(rows)
        new = self._numbered[words_before:]
        # New lists, because searches in other threads may be going through the old ones.
        self._texts = sorted([*self._texts, *new])
        self._backward = sorted([*self._backward, *(text[::-1] for text in new)])
        if "_starts" in self.__dict__:
            for text in new:
                for start in _starts_of(text):
                    completions = [*self._starts.get(start, ()), text]
                    self._starts[start] = sorted(completions, key=self._by_count)[:COMPLETIONS_MAX]
        if "_edits" in self.__dict__:
            self._edits.add(enumerate(new, words_before))
        if "_sound_edits" in self.__dict__:
            self._sound_edits.add(enumerate(self._numbered_sounds[sounds_before:], sounds_before))

    # Built when the first word is corrected: it takes a second or two for a vocabulary of 100,000 words.
    @cached_property
    def _edits(self) -> EditIndex:
        return EditIndex(self._numbered, EDITS_MAX)

    @cached_property
    def _sound_edits(self) -> EditIndex:
        return EditIndex(self._numbered_sounds, 1)

    @cached_property
    def _starts(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for text in sorted(self._numbered, key=self._by_count):
            for start in _starts_of(text):
                completions = found.setdefault(start, [])
                if len(completions) < COMPLETIONS_MAX:
                    completions.append(text)
        return found

    def _by_count(self, text: str) -> tuple[int, str]:
        return -self.words[text].document_count, text

    def prepare(self) -> None:
        """Build what corrections and completions need."""
        self._edits.near("")
        self._sound_edits.near("")
        self.completions("")

    def forms(self, text: str, written: str) -> set[str]:
        """Return the words with the same stem as this one, in any language of the index, without itself."""
        found: set[str] = set()
        for language in self.languages:
            for one in {stem(written, language), stem(text, language)}:
                found |= self._by_stem.get((language, one), set())
        found.discard(text)
        return found

    def siblings(self, text: str) -> set[str]:
        """Return the words of the index with the same stem as this one of them, with itself."""
        word = self.words[text]
        return set().union(*(self._by_stem[key] for key in list(word.stems))) | {text}

    def completions(self, start: str, *, with_rare: bool = False) -> list[str]:
        """Return words that begin with this, those of most events first. `with_rare`: also those of few events, for a
        caller that has other words to choose by."""
        common = self._starts.get(start, []) if len(start) <= START_CHARACTERS_MAX else []
        if common and not with_rare:
            return common
        found = {*common, *common_prefix(self._texts, start, COMPARED_MAX)}
        return sorted(found, key=self._by_count)[: MANY_MAX if with_rare else COMPLETIONS_MAX]

    def parts(self, text: str, written: str) -> set[str]:
        """Return longer words that begin with this word or its stem, or end with it."""
        found: set[str] = set()
        starts = {text, *(stem(written, language) for language in self.languages)}
        for start in starts:
            if len(start) >= PREFIX_CHARACTERS_MIN:
                found.update(common_prefix(self._texts, start, CANDIDATES_MAX))
        if len(text) > PREFIX_CHARACTERS_MIN:
            found.update(part[::-1] for part in common_prefix(self._backward, text[::-1], CANDIDATES_MAX))
        found.discard(text)
        return found

    def spellings(self, text: str) -> list[Near]:
        """Return the words within two edits of this one (a short word: within one), only the nearest, best first."""
        if len(text) < SHORT_WORD_CHARACTERS or text.isdigit():
            return []
        edits = EDITS_MAX if len(text) >= LONG_WORD_CHARACTERS else 1
        found: dict[str, int] = {}
        candidates = [self._numbered[number] for number in self._edits.near(text)]
        for word, distance, _ in process.extract(text, candidates, scorer=OSA.distance, score_cutoff=edits, limit=None):
            if distance > 0 and len(word) >= SHORT_WORD_CHARACTERS and word not in self.stop_words:
                found[word] = int(distance)
        if not found:
            return []
        nearest = min(found.values())
        sounds = {code for code in metaphone.codes(text) if code}

        def score(word: str) -> float:
            known = self.words[word]
            likeness = JaroWinkler.similarity(text, word) + 0.06 * bool(sounds & known.sounds)
            return min(likeness + 0.004 * log2(1 + known.document_count), 1.0)

        near = [Near(word, score(word)) for word, distance in found.items() if distance == nearest]
        return sorted(near, key=lambda one: (-one.score, one.text))[:CANDIDATES_MAX]

    def sounds_like(self, text: str) -> list[Near]:
        """Return the words whose codes are within one edit of this word's, by their similarity, best first."""
        if len(text) < SHORT_WORD_CHARACTERS:
            return []
        found: dict[str, float] = {}
        for code in metaphone.codes(text):
            if not code:
                continue
            # A short code stands for too many words to allow an edit of it.
            edits = 1 if len(code) > 2 else 0
            sounds = [self._numbered_sounds[number] for number in self._sound_edits.near(code, edits)]
            for sound, distance, _ in process.extract(
                code, sounds, scorer=OSA.distance, score_cutoff=edits, limit=None
            ):
                less = 0.15 * distance
                for word, similarity, _ in process.extract(
                    text,
                    self._by_sound[sound][:SAME_SOUND_MAX],
                    scorer=JaroWinkler.similarity,
                    score_cutoff=SIMILARITY_MIN + less,
                    limit=None,
                ):
                    # The measure of similarity favors common beginnings, also those that are half of the word.
                    if word not in self.stop_words and 2 * len(word) > len(text):
                        found[word] = max(found.get(word, 0.0), similarity - less)
        near = [Near(word, likeness) for word, likeness in found.items()]
        return sorted(near, key=lambda one: (-one.score, one.text))[:CANDIDATES_MAX]

    def splits(self, text: str) -> list[tuple[str, ...]]:
        """Return the ways in which this is two or three words of the index written as one, best first."""
        found = self._splits(text, 2) or self._splits(text, 3)
        return sorted(found, key=lambda parts: -min(self.words[part].document_count * len(part) for part in parts))[:4]

    def _splits(self, text: str, count: int) -> list[tuple[str, ...]]:
        if count == 1:
            return [(text,)] if text in self.words else []
        return [
            (text[:at], *rest)
            for at in range(2, len(text) - 1)
            if text[:at] in self.words
            for rest in self._splits(text[at:], count - 1)
            if len(rest[-1]) > 1
        ]


def _starts_of(text: str) -> list[str]:
    return [text[:length] for length in range(1, min(START_CHARACTERS_MAX, len(text)) + 1)]


class Synonyms:
    """The phrases that mean the same, by phrase: each is a tuple of folded words."""

    def __init__(self, groups: Iterable[str], languages: Iterable[str] = (), stops: Container[str] = ()) -> None:
        """`stops`: words that queries are matched without, and phrases too, unless they have no others."""
        self._others: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        self.longest = 1
        for group in groups:
            whole = [phrase for part in group.split(",") if (phrase := words_of(part))]
            phrases = {tuple(word for word in phrase if word not in stops) or phrase for phrase in whole}
            for phrase in phrases:
                self._others.setdefault(phrase, set()).update(phrases - {phrase})
                self.longest = max(self.longest, len(phrase))
        self._stems: dict[str, set[tuple[str, ...]]] = {}
        for phrase in self._others:
            if len(phrase) == 1:
                for language in languages:
                    self._stems.setdefault(stem(phrase[0], language), set()).add(phrase)

    def of(self, phrase: Sequence[str], stems: Iterable[str] = ()) -> set[tuple[str, ...]]:
        """Return the other phrases; `stems` are those of a single word, used if the word itself has none."""
        found = self._others.get(tuple(phrase))
        if found is not None or len(phrase) > 1:
            return found or set()
        similar = set().union(*(self._stems.get(one, set()) for one in stems))
        return set().union(*(self._others[other] | {other} for other in similar)) - {tuple(phrase)}


def words_of(text: str) -> tuple[str, ...]:
    """Return the folded words of a phrase, compounds as their parts."""
    return tuple(token.word for token in tokenize(fold(text)) if not token.is_joined)
