"""Quoted cookie values in linear time. Python before 3.11.10 and 3.12.6 takes quadratic time for their backslashes, so
that one header of 64 KB blocks a process for seconds (CVE-2024-7592)."""

import re
from http import cookies

_ESCAPED = re.compile(r"\\(?:([0-3][0-7][0-7])|(.))", re.DOTALL)


def _character(match: re.Match[str]) -> str:
    return chr(int(match[1], 8)) if match[1] else match[2]


def unquote(value: str | None) -> str | None:
    """Return the cookie's value without its quotation marks and escapes."""
    if value is None or len(value) < 2 or value[0] != '"' or value[-1] != '"':
        return value
    return _ESCAPED.sub(_character, value[1:-1])


def install() -> None:
    """Let Python, and so Django, read cookie values by `unquote`."""
    cookies._unquote = unquote  # type: ignore[assignment]
