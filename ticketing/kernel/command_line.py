"""How the house's commands take what is typed: one line and exit 1 for what is wrong, and a name for who typed it."""

import getpass
import os
from argparse import ArgumentParser
from typing import Any, NoReturn

from django.core.management.base import CommandError


def refuse_in_one_line(parser: ArgumentParser) -> None:
    """From now on the parser ends a wrong call with one line and exit 1, as the command itself does."""
    raises = not getattr(parser, "called_from_command_line", True)

    def error(message: str) -> NoReturn:
        if raises:
            raise CommandError(message)
        parser.exit(1, f"CommandError: {message}\n")

    parser.error = error  # type: ignore[method-assign]


def whole_number(value: Any, what: str) -> int:
    """The number that was typed. Raises CommandError."""
    text = str(value).strip()
    # Longer than any limit anywhere, and past some length Python itself would refuse to convert it.
    if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()) or len(text) > 18:
        raise CommandError(f"{what} {text[:80]!r} is not a whole number in range")
    return int(text)


def who_types() -> str:
    """The operating system's name for whoever runs the command; an account without a name has its number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
