"""The suite's error."""


class SuiteFailed(Exception):
    """The measurement is invalid; the message is one line for the user."""
