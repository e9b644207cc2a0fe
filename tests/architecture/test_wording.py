"""Code, templates and documents use standard terms: words of a private idiom and second spellings are refused.

The list is a floor: it contains words that once stood for something that has a standard term.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent

# Each pattern, and what to write instead.
REFUSED = {
    r"(?:the|an?|one|this|that|our|its|each|every|whole|huge|smallest|largest) house|houses|house's": "venue, system",
    r"crowds?|crowded": "visitors, simulated visitors, load",
    r"whoever|whomever": "the visitor, the request or the process that …",
    r"nobody|somebody|anybody|everybody": "no visitor, another buyer, any client, every process",
    r"told|tell(?:s|ing)? (?:it|them|him|us|the|an?|its|their|every|each|no)": "receives, is notified, reports",
    r"said|heard": "requested, given, parsed, received",
    r"wish|wishes|wished|wishing": "demand, request",
    r"boards?": "snapshot",
    r"lanes?": "fast path",
    r"turnstiles?": "concurrency limit",
    r"couriers?": "connection",
    r"glances?|outlook": "status, estimate",
    r"errands?": "task, job",
    r"at sight": "without waiting",
    r"bring(?:s|ing)? along|brought along": "merges; transitive",
    r"look(?:s|ed|ing)? after": "maintains, supervises",
    r"let(?:s|ting)? go(?: of)?": "releases",
    r"(?:hand|give|gave|given|giving|gives|handed) (?:(?:the|their|your|its|all|some|these|those) )?"
    r"(?:places|seats?|tickets?) back": "release",
    r"where you can be": "Sections, Prices",
    r"places": "seats, tickets, positions",
    r"organis\w+": "organiz…",
    r"colours?|coloured": "color",
    r"behaviours?": "behavior",
    r"cent(?:re|red|res)": "center",
    r"neighbours?|neighbouring": "neighbor",
    r"licence[sd]?": "license",
    r"labelled|labelling": "labeled",
    r"grey": "gray",
    r"e-mail(?:s|ed)?": "email",
    r"catalogues?|programmes?": "catalog, program",
    r"travell(?:ed|ing|ers?)": "travel…",
    r"judgements?": "judgment",
    r"(?:material|serial|recogn|initial|normal|author|minim|maxim|optim|summar)is(?:e|es|ed|ing|ation)": "…ize",
    r"favours?|favourites?|honours?": "…or",
}
# What contains a refused word and may stay.
ALLOWED = (
    # Terms of the field, and verbs.
    r"(?:the|a|an|its) house[- ](?:seats?|tickets?)",
    r"decimal places",
    r"places[ _](?:an?|the|one|this|that|its|each|no)[ _](?:\w+[ _])?orders?",
    # The public contract: JSON fields, the proof's list of numbers, problem types, kinds of differences.
    r"places_minor",
    r"[\"'`]places[\"'`]|places\.next|part=places|proof\.places|places = ProofLeaves",
    r"places-not-standing|oversold_places|places +FAILED",
    # Settings, headers and metrics.
    r"LANE_[A-Z_…]*",
    r"x[-_]fairgate[-_]lane|the lane speaks to the site",
    r"fairgate_turnstile_waiting_count|\"turnstile\"",
    # Columns, constraints, indexes, and a field in Redis.
    r"places_max|reservation_line_places|ToldPage|toldpage|told_at|by_somebody|admits_somebody|[\"']said[\"']",
    # An account of the operating system, and a color of CSS.
    r"[\"`]nobody[\"`]|\"grey\"",
)
_ALLOWED = re.compile("|".join(ALLOWED), re.IGNORECASE)
_REFUSED = re.compile(rf"(?<![a-z])(?:{'|'.join(REFUSED)})(?![a-z])")
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
FOLDERS = ("apps", "ticketing", "templates", "static", "docs", "tests", "benchmarks")
SUFFIXES = {".py", ".sql", ".lua", ".html", ".txt", ".md", ".css", ".js", ".toml", ".yml", ".in", ".sh", ".svg", ""}
# This file, applied migrations, and files by others.
EXEMPT = re.compile(
    r"tests/architecture/test_wording\.py|.*/migrations/.*|static/vendor/.*|.*requirements\.txt|.*LICENSE(\.txt)?"
)


def refused_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of each refused word, in prose and in identifiers."""
    for number, line in enumerate(text.splitlines(), 1):
        if _REFUSED.search(_words(line)):  # Few lines contain such a word: only these are searched for allowed terms.
            for match in _REFUSED.finditer(_words(_ALLOWED.sub("", line))):
                yield number, match[0]


def _words(line: str) -> str:
    """Return the line in lower case, with the words of identifiers separated."""
    return _CAMEL_CASE.sub("_", line).lower()


def _files(folder: str) -> Iterator[Path]:
    """Yield the tracked text files of this folder; of the top level for `.`."""
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        first = name.partition("/")[0]
        if (first if first in FOLDERS else ".") != folder or Path(name).suffix not in SUFFIXES:
            continue
        if not EXEMPT.fullmatch(name) and (CHECKOUT / name).is_file():
            yield CHECKOUT / name


@pytest.mark.parametrize("folder", [*FOLDERS, "."])
def test_no_refused_words(folder: str) -> None:
    found = [
        f"{path.relative_to(CHECKOUT)}:{number}: {word}"
        for path in _files(folder)
        for number, word in refused_words(path.read_text(encoding="utf-8"))
    ]
    assert not found, f"{len(found)} refused words:\n" + "\n".join(found[:50])


@pytest.mark.parametrize(
    "line",
    [
        "the house is full",
        "Whoever waits here",
        "nobody_else = 1",
        "is told of the change",
        "def was_said(): ...",
        "class RoomWish:",
        "2 places are left",
        "Give the seats back",
        "the organiser",
        "seatBoard = {}",
    ],
)
def test_an_idiom_is_refused(line: str) -> None:
    assert list(refused_words(line)), line


@pytest.mark.parametrize(
    "line",
    [
        "The house seats are blocked; `house_seats` is the strategy.",
        'page["places"] is a list of the public proof',
        "A checkout places an order.",
        "two decimal places",
        "a dashboard, a keyboard and a foretold planet",
    ],
)
def test_a_term_of_the_field_is_allowed(line: str) -> None:
    assert not list(refused_words(line)), line
