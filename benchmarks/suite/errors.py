"""The suite's one error, for whoever cannot measure what is to be measured."""


class SuiteFailed(Exception):
    """The run is no result; the message is one line for a person."""
