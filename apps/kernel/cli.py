"""How the house's commands take what is typed: one line and exit 1 for what is wrong, and a name for who typed it."""

import getpass
import os
from argparse import ArgumentParser
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

from django.core.management.base import CommandError
from django.utils.dateparse import parse_datetime


def report_errors_in_one_line(parser: ArgumentParser) -> None:
    """From now on the parser ends a wrong call with one line and exit 1, as the command itself does."""
    raises = not getattr(parser, "called_from_command_line", True)

    def error(message: str) -> NoReturn:
        if raises:
            raise CommandError(message)
        parser.exit(1, f"CommandError: {message}\n")

    parser.error = error  # type: ignore[method-assign]


def allow_intermixed_options(parser: ArgumentParser) -> None:
    """From now on options may stand between the words of a call. Else a word that may be left out is taken for left out
    as soon as an option comes before it."""
    parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]


def add_event_actions(parser: ArgumentParser) -> Callable[..., ArgumentParser]:
    """From now on the parser takes an event and one of several acts on it, each added by what is returned here:
    `act(name, words)`. An act that changes something (`changes`) takes who did it and why."""
    report_errors_in_one_line(parser)
    parser.add_argument("event", metavar="EVENT", help="the event's id in addresses")
    acts = parser.add_subparsers(dest="act", metavar="ACT", required=True)

    def act(name: str, words: str, *, changes: bool = True) -> ArgumentParser:
        added: ArgumentParser = acts.add_parser(name, help=words, description=words)
        report_errors_in_one_line(added)
        if changes:
            added.add_argument("--why", default="", metavar="TEXT", help="kept with it")
            added.add_argument("--who", default="", metavar="NAME", help="default: whoever runs the command")
        return added

    return act


def whole_number(value: Any, what: str) -> int:
    """The number that was typed. Raises CommandError."""
    text = str(value).strip()
    # Longer than any limit anywhere, and past some length Python itself would refuse to convert it.
    if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()) or len(text) > 18:
        raise CommandError(f"{what} {text[:80]!r} is not a whole number in range")
    return int(text)


def parse_bounded_integer(text: str, what: str, most: int) -> int:
    """The number from 1 to `most` that was typed. Raises CommandError."""
    found = whole_number(text, what)
    if not 1 <= found <= most:
        raise CommandError(f"{what} {found} must be 1 to {most:,}")
    return found


def parse_limit(text: str | None, what: str, most: int) -> int | None:
    """The same for a limit, of which there need be none."""
    return None if text is None or text == "none" else parse_bounded_integer(text, what, most)


def parse_moment(text: str | None, what: str) -> datetime | None:
    """The moment that was typed, if any. Raises CommandError."""
    if text is None:
        return None
    try:
        time = parse_datetime(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise CommandError(f"{what} {text[:80]!r} must be a time with its offset, such as 2027-03-01T10:00+01:00")
    return time


def get_os_username() -> str:
    """The operating system's name for whoever runs the command; an account without a name has its number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
