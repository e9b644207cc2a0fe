"""Listeners of log-ins, which the apps above register when they load, so that imports point downward only."""

from collections.abc import Callable

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
