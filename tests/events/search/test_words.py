"""Words of the search: folding, sounds, spellings, and sets of documents as integers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import OSA

from apps.events.search import bits
from apps.events.search.words import metaphone
from apps.events.search.words.edits import CANDIDATES_MAX, SAME_REMAINDER_MAX, EditIndex
from apps.events.search.words.text import fold, tokenize, without_umlauts
from apps.events.search.words.vocabulary import ADDED_MIN, Row, Synonyms, Vocabulary

# Published examples of the algorithm, and names that a shopper may spell by ear.
SOUNDS = {
    "Smith": ("SM0", "XMT"), "Schmidt": ("XMT", "SMT"), "Thompson": ("TMPSN", ""), "Thumb": ("0M", "TM"),
    "Catherine": ("K0RN", "KTRN"), "Richard": ("RXRT", "RKRT"), "Edge": ("AJ", ""), "Knight": ("NT", ""),
    "Philharmonic": ("FLRMNK", ""), "Xavier": ("SF", "SFR"), "Caesar": ("SSR", ""), "Chianti": ("KNT", ""),
    "Michael": ("MKL", "MXL"), "Bacchus": ("PKS", ""), "Laugh": ("LF", ""), "Wright": ("RT", ""), "Hugh": ("H", ""),
    "Orchestra": ("ARKSTR", ""), "Chopin": ("XPN", ""), "Shopan": ("XPN", ""), "Jose": ("HS", ""),
    "Island": ("ALNT", ""), "School": ("SKL", ""), "Zhivago": ("JFK", ""),
}  # fmt: skip


@pytest.mark.parametrize(("word", "codes"), SOUNDS.items())
def test_double_metaphone(word: str, codes: tuple[str, str]) -> None:
    assert metaphone.codes(word) == codes


@pytest.mark.parametrize("pair", [("Schwarzenegger", "swarzeneger"), ("Tchaikovsky", "chaikovsky")])
def test_a_name_and_what_a_shopper_makes_of_it_differ_by_one_edit_of_their_codes(pair: tuple[str, str]) -> None:
    first, second = ({code for code in metaphone.codes(word) if code} for word in pair)
    assert min(OSA.distance(one, other) for one in first for other in second) <= 1


@given(st.text(max_size=30))
def test_every_text_has_words_that_postgresql_can_store_and_codes(text: str) -> None:
    for token in tokenize(text):
        assert token.word == fold(token.word) != ""
        assert 0 <= token.start < token.end <= len(text)
        metaphone.codes(token.word)
        without_umlauts(token.word)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Björk & Beyoncé", ["bjork", "beyonce"]),
        ("Bjo\u0308rk-Beyonce\u0301", ["bjorkbeyonce", "bjork", "beyonce"]),
        ("Rock'n'Roll", ["rocknroll", "rock", "n", "roll"]),
        ("Shakespeare’s HIP-HOP", ["shakespeare", "hiphop", "hip", "hop"]),
        ("Straße, Łódź, Yıldırım", ["strasse", "lodz", "yildirim"]),
        ("أُمسِيّة", ["امسية"]),
    ],
)
def test_folded_words(text: str, words: list[str]) -> None:
    assert [token.word for token in tokenize(text)] == words


_letters = st.text("abc", min_size=1, max_size=9)


@given(st.lists(_letters, max_size=30, unique=True), _letters)
def test_every_word_within_two_edits_is_found(words: list[str], word: str) -> None:
    half = len(words) // 2
    index = EditIndex(words[:half], 2)
    for number in range(half, len(words)):
        index.add([(number, words[number])])
    near = {number for number, other in enumerate(words) if OSA.distance(word, other) <= 2}
    assert near <= index.near(word)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 255)), max_size=70), st.integers(0, 70), st.integers(0, 300))
def test_sets_and_numbers_are_those_of_a_plain_list(rows: list[tuple[bool, int]], count: int, limit: int) -> None:
    numbers = [number for _, number in rows]
    planes = bits.planes_of(numbers, 8)
    members = [at for at, (is_in, _) in enumerate(rows) if is_in]
    chosen = bits.set_of(members, len(rows))
    # A sparse set is computed in another way.
    assert chosen == bits.set_of(members, 100 * 100)
    assert bits.members(chosen) == members
    bits.add(planes, chosen, 37)
    plain = [number + 37 if is_in else number for is_in, number in rows]
    assert [bits.number_of(planes, at) for at in range(len(rows))] == plain
    assert bits.members(bits.at_least(planes, chosen, limit)) == [at for at in members if plain[at] >= limit]
    assert bits.best(planes, chosen, count) == sorted(members, key=lambda at: (-plain[at], at))[:count]
    assert bits.best(planes, chosen, count, lowest=True) == sorted(members, key=lambda at: (plain[at], at))[:count]
    if rows:
        bits.put(planes, 0, 5)
        assert bits.number_of(planes, 0) == 5


def test_words_that_begin_alike_do_not_make_a_correction_slow() -> None:
    alike = [f"qqqqqqqq{number:06d}" for number in range(20_000)]
    edits = EditIndex(["quartett", *alike[:10_000]], 2)
    edits.add(enumerate(alike[10_000:], 10_001))
    assert len(edits.near("qqqqqqqq000001")) <= CANDIDATES_MAX + 2 * SAME_REMAINDER_MAX
    assert 0 in edits.near("quartet")


def test_a_vocabulary_with_terms_added_later_is_like_one_that_was_read_with_them() -> None:
    texts = ["hamlet", "hamlets", "gospel", "opera", "operas", "orchestra", "orkestra", "faust", "faustus"]
    rows = [Row(n, "en", text, text[:4], text, *metaphone.codes(text), 1) for n, text in enumerate(texts, 1)]
    fresh, grown = Vocabulary(rows), Vocabulary(rows[:2])
    grown.prepare()
    for row in rows[2:]:
        grown.add([row])
    assert (grown.additions_max, fresh.additions_max - grown.additions_max) == (ADDED_MIN - 7, 7)
    for text in [*texts, "hamlte", "gosple", "orkastra", "op", "fausst", "oper"]:
        for ask in ("spellings", "sounds_like", "completions", "splits"):
            assert getattr(grown, ask)(text) == getattr(fresh, ask)(text), (ask, text)
        assert grown.parts(text, text) == fresh.parts(text, text)
    assert [near.text for near in grown.spellings("gosple")] == ["gospel"]


def test_a_synonym_may_have_stop_words() -> None:
    synonyms = Synonyms(["rock and roll, metalworks", "the who, of and"], stops=frozenset({"and", "the", "of"}))
    assert synonyms.of(("rock", "roll")) == {("metalworks",)}
    assert synonyms.of(("who",)) == {("of", "and")}, "a phrase of nothing else keeps them"
