"""Parses the arguments of management commands. An error is reported in one line with exit status 1."""

import getpass
import os
from argparse import ArgumentParser
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NoReturn

from django.core.management.base import CommandError
from django.utils.dateparse import parse_datetime

_OFFSET_MAX = timedelta(hours=14)
_YEARS = range(2000, 2200)


def report_errors_in_one_line(parser: ArgumentParser) -> None:
    """Make the parser report wrong arguments in one line with exit status 1, as commands report their errors."""
    raises = not getattr(parser, "called_from_command_line", True)

    def error(message: str) -> NoReturn:
        if raises:
            raise CommandError(message)
        parser.exit(1, f"CommandError: {message}\n")

    parser.error = error  # type: ignore[method-assign]


def allow_intermixed_options(parser: ArgumentParser) -> None:
    """Allow options between positional arguments. By default, argparse treats an optional positional argument as
    missing if an option precedes it."""
    parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]


def add_event_actions(parser: ArgumentParser) -> Callable[..., ArgumentParser]:
    """Make the parser accept an event and one of several actions on it.

    Return `act(name, words, changes=True)`, which adds an action. Only actions with `changes` accept --who and --why.
    """
    report_errors_in_one_line(parser)
    parser.add_argument("event", metavar="EVENT", help="the event's slug")
    acts = parser.add_subparsers(dest="act", metavar="ACT", required=True)

    def act(name: str, words: str, *, changes: bool = True) -> ArgumentParser:
        added: ArgumentParser = acts.add_parser(name, help=words, description=words)
        report_errors_in_one_line(added)
        if changes:
            added.add_argument("--why", default="", metavar="TEXT", help="the reason, recorded with the action")
            added.add_argument(
                "--who", default="", metavar="NAME", help="the operator's name; default: the operating system user"
            )
        return added

    return act


def whole_number(value: Any, what: str) -> int:
    """Return the argument as a whole number. Raises CommandError."""
    text = str(value).strip()
    # No limit needs more than 18 digits, and Python refuses to convert a text of several thousand.
    if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()) or len(text) > 18:
        raise CommandError(f"{what} {text[:80]!r} is not a whole number in range")
    return int(text)


def parse_bounded_integer(text: str, what: str, most: int) -> int:
    """Return the argument as a whole number from 1 to `most`. Raises CommandError."""
    number = whole_number(text, what)
    if not 1 <= number <= most:
        raise CommandError(f"{what} {number} must be 1 to {most:,}")
    return number


def parse_limit(text: str | None, what: str, most: int) -> int | None:
    """Return the argument as a limit from 1 to `most`, or None if it is missing or "none". Raises CommandError."""
    return None if text is None or text == "none" else parse_bounded_integer(text, what, most)


def parse_moment(text: str | None, what: str) -> datetime | None:
    """Return the argument as a time with offset, or None if it is missing. Raises CommandError."""
    if text is None:
        return None
    try:
        time = parse_datetime(text)
    except ValueError:
        time = None
    offset = None if time is None else time.utcoffset()
    if time is None or offset is None or abs(offset) > _OFFSET_MAX or time.year not in _YEARS:
        raise CommandError(f"{what} {text[:80]!r} must be a time with its offset, such as 2027-03-01T10:00+01:00")
    return time


def get_os_username() -> str:
    """Return the operating system's name of the user who runs the command, or "uid N" if the user has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
