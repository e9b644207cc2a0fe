"""Code and documents use standard terms: words of a private idiom, and second spellings, are refused.

The list is a floor. It contains the words that once stood for something that has a standard term.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent

# Each pattern, and what to write instead.
REFUSED = {
    r"houses?": "venue, hall, plan, system or deployment",
    r"crowds?|crowded": "visitors, simulated visitors, load",
    r"whoever|whomever": "the visitor, the request or the process that …",
    r"nobody|somebody|anybody|everybody": "no visitor, another buyer, any client, every process",
    r"told|tells (?:it|them|him|us)|tell (?:it|them|him|us)": "receives, is notified of, reports, returns",
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
    r"(?:hand|give|gave|given|giving|gives|handed) (?:the |their |your |its |all |some |these |those )?"
    r"(?:places|seats|tickets) back": "release",
    r"places": "seats, tickets, positions",
    r"organis\w+": "organiz…",
    r"colours?|coloured": "color",
    r"behaviours?": "behavior",
    r"cent(?:re|red|res)": "center",
    r"neighbours?|neighbouring": "neighbor",
    r"licence[sd]?": "license",
    r"labelled|labelling": "labeled",
    r"grey": "gray",
    r"(?:material|serial|recogn|initial|normal|author|minim|maxim|optim|summar)is(?:e|es|ed|ing|ation)": "…ize",
    r"favours?|favourites?|honours?": "…or",
}
# Terms of the field, fields of the public contract and of stored data, and verbs.
ALLOWED = re.compile(
    r"house[ _-]seats|house seat|full house|front[ -]of[ -]house|decimal places|in places\b|takes? place"
    # The public proof's list of numbers.
    r"|[\"'`]places[\"'`]|places\.next|part=places"
    # An order is placed.
    r"|\bplaces (?:an?|the|one|this|that|its|each|no|their|two|\d+) (?:\w+ )?orders?"
    # Stored reasons of blocked stock, and their command-line names.
    r"|--for house|[\"'`]house[\"'`]|\bhouse=|\.house\b|\bhouse:|house \+|- house\b|\bHOUSE = |BlockedFor\.HOUSE",
    re.IGNORECASE,
)
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_REFUSED = re.compile(rf"(?<![a-z])(?:{'|'.join(REFUSED)})(?![a-z])", re.IGNORECASE)
SUFFIXES = {".py", ".sql", ".lua", ".html", ".txt", ".md", ".css", ".js", ".toml", ".yml", ".in", ".sh", ".svg", ""}
# This file; applied migrations; files of others.
EXEMPT = re.compile(
    r"tests/architecture/test_wording\.py|.*/migrations/.*|static/vendor/.*|.*requirements\.txt|LICENSE"
)


def refused_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the word of each refused word; words of identifiers count."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in _REFUSED.finditer(_CAMEL_CASE.sub("_", ALLOWED.sub("", line))):
            yield number, match[0]


def _files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.splitlines() if Path(name).suffix in SUFFIXES and not EXEMPT.fullmatch(name)]
    return [path for path in (CHECKOUT / name for name in names) if path.is_file()]


@pytest.mark.parametrize("folder", ["apps", "ticketing", "templates", "static", "docs", "tests", "benchmarks", "."])
def test_no_refused_words(folder: str) -> None:
    named = {"apps", "ticketing", "templates", "static", "docs", "tests", "benchmarks"}
    found = []
    for path in _files():
        name = path.relative_to(CHECKOUT)
        if (name.parts[0] if name.parts[0] in named else ".") != folder:
            continue
        found += [f"{name}:{number}: {word}" for number, word in refused_words(path.read_text(encoding="utf-8"))]
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
        "Give the places back",
        "the organiser",
        "seatBoard = {}",
    ],
)
def test_an_idiom_is_refused(line: str) -> None:
    assert list(refused_words(line)), line


@pytest.mark.parametrize(
    "line",
    [
        "House seats are blocked; `house_seats` is the strategy.",
        'page["places"] is a list of the public proof',
        "A checkout places an order.",
        "two decimal places",
        "a dashboard, a keyboard and a foretold planet",
    ],
)
def test_a_term_of_the_field_is_allowed(line: str) -> None:
    assert not list(refused_words(line)), line
