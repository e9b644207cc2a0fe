"""Normalize a scanned or typed ticket code."""

import re

from apps.orders.tickets.ticket_issuance import CODE_LENGTH

INPUT_LENGTH_MAX = 300
STORED_LENGTH_MAX = 80
_SEPARATORS = re.compile(r"[\s\-_.]+")
_TICKET_URL = re.compile(r"/tickets/([A-Za-z2-7]+)(?:/|$)")
# Maps each digit that no code contains to the similar letter that was probably meant.
_MISREAD_DIGITS = str.maketrans("018", "OIB")


def read_code(value: str) -> str:
    """Return the code in a scanned or typed text: upper case without separators, extracted from a ticket's URL.

    Text that cannot be a code is returned unchanged, cut to STORED_LENGTH_MAX, so that the log shows what was scanned.
    """
    text = value.strip()
    if found := _TICKET_URL.search(text):
        text = found[1]
    code = _SEPARATORS.sub("", text).upper().translate(_MISREAD_DIGITS)
    if len(code) == CODE_LENGTH and code.isascii() and code.isalnum():
        return code
    return text[:STORED_LENGTH_MAX]
