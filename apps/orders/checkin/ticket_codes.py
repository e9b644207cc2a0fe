"""What a scanner or a person at the door sends, as the code it stands for."""

import re

from apps.orders.tickets.ticket_issuance import CODE_LENGTH

INPUT_LENGTH_MAX = 300
STORED_LENGTH_MAX = 80
_SEPARATORS = re.compile(r"[\s\-_.]+")
_TICKET_URL = re.compile(r"/tickets/([A-Za-z2-7]+)(?:/|$)")
# Digits that no code has, where the eye took a letter for one.
_MISREAD_DIGITS = str.maketrans("018", "OIB")


def read_code(sent: str) -> str:
    """The code in what was scanned or typed: capitals without gaps, out of the ticket's address if it was that.

    What cannot be a code stays as it was sent, cut to STORED_LENGTH_MAX, so that the record tells what was shown.
    """
    text = sent.strip()
    if found := _TICKET_URL.search(text):
        text = found[1]
    code = _SEPARATORS.sub("", text).upper().translate(_MISREAD_DIGITS)
    if len(code) == CODE_LENGTH and code.isascii() and code.isalnum():
        return code
    return text[:STORED_LENGTH_MAX]
