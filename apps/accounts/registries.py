"""Listeners of log-ins, and the source of personal data. The apps above register both when they load, so that imports
point downward only."""

from collections.abc import Callable
from typing import Any, Protocol

from django.http import HttpRequest

LogInListener = Callable[[HttpRequest, int], object]
"""Called with the request and the account's id."""

_before_log_in: list[LogInListener] = []
_after_log_in: list[LogInListener] = []


def before_log_in(listener: LogInListener) -> None:
    """Register a listener that runs before the session starts: if it fails, the form can be sent again."""
    if listener not in _before_log_in:
        _before_log_in.append(listener)


def after_log_in(listener: LogInListener) -> None:
    """Register a listener that runs once the session has started."""
    if listener not in _after_log_in:
        _after_log_in.append(listener)


def call_before_log_in(request: HttpRequest, account_id: int) -> None:
    for listener in _before_log_in:
        listener(request, account_id)


def call_after_log_in(request: HttpRequest, account_id: int) -> None:
    for listener in _after_log_in:
        listener(request, account_id)


class PersonalData(Protocol):
    """The data that all apps store about the user of an account."""

    def export(self, account_id: int) -> dict[str, Any]:
        """Return everything as JSON values."""

    def find_needed(self, account_id: int) -> list[str]:
        """Return sentences for the user: which data is still needed. Empty if all can be erased."""

    def find_kept(self, account_id: int) -> list[str]:
        """Return sentences for the user: which data the law keeps after an erasure, and how long."""

    def erase(self, account_id: int) -> list[str]:
        """Erase everything and close the account. If data is needed by now, erase the rest and return the sentences
        of `find_needed`. It can be repeated."""


_personal_data: list[PersonalData] = []


def provide_personal_data(source: PersonalData) -> None:
    """Set the source of personal data for the account's page."""
    _personal_data[:] = [source]


def get_personal_data() -> PersonalData:
    return _personal_data[0]
