"""Parameters of media types and of a form's parts in linear time. Some versions of Python take quadratic time for
semicolons after a quotation mark (`email.message`), and Django parses parameters with it."""

import re
from email import message

_SEPARATORS = re.compile(r'\\"|"|;')


def split_parameters(value: object) -> list[str]:
    """Return the parts between the semicolons outside of quotation marks, without spaces around them and around the
    equals sign of each, whose name is in lower case."""
    text, parts, start, is_quoted = str(value), list[str](), 0, False
    for match in _SEPARATORS.finditer(text):
        if match[0] == '"':
            is_quoted = not is_quoted
        elif match[0] == ";" and not is_quoted:
            parts.append(text[start : match.start()])
            start = match.end()
    parts.append(text[start:])
    return [_trim(part) for part in parts]


def _trim(part: str) -> str:
    name, equals, value = part.partition("=")
    return f"{name.strip().lower()}={value.strip()}" if equals else part.strip()


def install() -> None:
    """Let Python, and so Django, split parameters by `split_parameters`."""
    message._parseparam = split_parameters  # type: ignore[attr-defined]
