"""Code, templates and documents use standard terms: words of a private idiom and second spellings are refused.

The list is a floor: it contains words that once stood for something that has a standard term.
"""

import re
import subprocess
from collections.abc import Iterable, Iterator
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
# Words of the code that mean nothing to a shopper, in the visible text of pages and emails.
SHOPPER_REFUSED = {
    r"holds?|held": "reserve, reserved, reservation",
    r"slots?|leases?|queue entr(?:y|ies)|tokens?|ids?|uuids?|payloads?|idempotency": "not for shoppers",
    r"ledgers?|inventor(?:y|ies)|endpoints?|webhooks?|outbox": "records, tickets left",
    r"providers?": "payment company",
}
# Second names for one thing, in the visible text of all pages, those of staff too.
VISIBLE_REFUSED = {
    r"reload(?:s|ed|ing)?": "refresh",
    r"reissue[sd]?": "replace a ticket's code",
    r"cancell(?:ed|ing)": "canceled",
}
# The public report of a sale names what it counts as the code does; a privacy notice speaks of payment providers.
SHOPPER_EXEMPT = {"orders/report.html", "accounts/erase.html"}
# What these things are called on every page, and a file that says it.
SENTENCES = {
    "Sections and prices": "templates/events/event.html",
    "tickets left": "templates/events/event.html",
    "Reserved seating": "templates/includes/section_row.html",
    "Unreserved": "templates/includes/section_row.html",
    "Keep this page open; it moves on by itself": "templates/queue/wait.html",
    "If you rejoin, you start at the back": "templates/queue/wait.html",
    "at the current pace": "apps/queue/status/status_messages.py",
    'Choose your {% if has_seats and view != "quantity" %}seats{% else %}tickets{% endif %}': (
        "templates/reservations/choose.html"
    ),
    "Tap to zoom in": "templates/reservations/choose_map.html",
    "Loading seat map": "templates/reservations/choose_map.html",
    "Reserve seats": "templates/reservations/choose_list.html",
    "Wheelchair spaces needed": "templates/reservations/choose_best.html",
    "Your {{ noun }} are reserved": "templates/reservations/reservation.html",
    "Release {{ noun }}": "templates/reservations/reservation.html",
    "Your details": "templates/orders/checkout_body.html",
    "We'll email your tickets here": "apps/orders/checkout/forms.py",
    "Please fix the errors below": "templates/includes/form_errors.html",
    "Enter a valid email address": "apps/orders/checkout/forms.py",
    "That code isn't valid for this event": "apps/orders/errors.py",
    "You'll only be charged once": "templates/orders/checkout_body.html",
    "More test cards": "templates/orders/checkout_body.html",
    "Your order for {{ order.total_minor|money:order.currency }} was not paid": "templates/orders/checkout_body.html",
    "Replace this ticket's code": "templates/orders/order_state.html",
    "This ticket will no longer be valid": "templates/orders/order_state.html",
    "Refresh": "templates/orders/order_state.html",
    "Tickets bought in this browser": "templates/orders/my_tickets.html",
    "Code not recognized": "apps/orders/checkin/scan_messages.py",
    "Passwords are case-sensitive": "apps/accounts/pages/adapter.py",
    "Create your account": "templates/account/signup.html",
    "Page not found": "templates/404.html",
    "Dashboard": "templates/admin/nav_sidebar.html",
    "Refund": "templates/admin/orders/refund_desk.html",
    "waiting-room log": "apps/queue/models/record.py",
    "payment reconciliation": "apps/orders/models/differences.py",
    "if oversold": "apps/events/models/catalog.py",
}
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


_HIDDEN = re.compile(
    r"\{% comment %\}.*?\{% endcomment %\}|\{#.*?#\}|<(script|style).*?</\1>|<!--.*?-->|\{%.*?%\}|\{\{.*?\}\}",
    re.DOTALL,
)
_SPOKEN = re.compile(r'\b(?:aria-label|alt|title|placeholder)="([^"]*)"')


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{'|'.join(words)})(?![\w-])", re.IGNORECASE)


_NOT_VISIBLE, _NOT_FOR_SHOPPERS = _any_of(VISIBLE_REFUSED), _any_of(SHOPPER_REFUSED)


def visible_text(template: str) -> str:
    """Return the text of a template that a person reads or hears: without comments, tags and variables."""
    shown = _HIDDEN.sub(" ", template)
    return " ".join([re.sub(r"<[^>]*>", " ", shown), *_SPOKEN.findall(shown)])


def test_pages_and_emails_use_one_name_for_one_thing_and_no_words_of_the_code() -> None:
    root = CHECKOUT / "templates"
    found = []
    for path in sorted([*root.rglob("*.html"), *root.rglob("*.txt")]):
        name = path.relative_to(root).as_posix()
        text = visible_text(path.read_text(encoding="utf-8"))
        found += [f"{name}: {match[0]}" for match in _NOT_VISIBLE.finditer(text)]
        if not name.startswith(("admin/", "demo/")) and name not in SHOPPER_EXEMPT:
            found += [f"{name}: {match[0]}" for match in _NOT_FOR_SHOPPERS.finditer(text)]
    assert not found, "\n".join(found)


def test_comments_and_attributes_are_not_visible() -> None:
    assert visible_text('{% comment %}held{% endcomment %}<p class="hold" title="Left">{{ ids }}</p>').split() == [
        "Left"
    ]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_agreed_sentence_is_what_the_product_says(sentence: str) -> None:
    assert sentence in (CHECKOUT / SENTENCES[sentence]).read_text(encoding="utf-8")


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
