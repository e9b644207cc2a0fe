"""Runs the actions of an admin page: checks the permission, executes the action and shows the message."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.kernel.form_fields.amounts import InvalidAmount, parse_money
from apps.kernel.http import problems

Action = TypeVar("Action")


def run_action(
    request: HttpRequest,
    acts: Mapping[str, tuple[Action, str]],
    do: Callable[[Action], str],
    page: Callable[[int], HttpResponse],
    address: tuple[Any, ...],
    row: Any,
) -> HttpResponse:
    """Run the action that the form names, if the user has its permission for the row, and redirect to `address` with
    a message.

    `acts` maps names to actions and their permissions. `do` executes the action and returns the message. If it raises a
    Problem, the problem becomes an error message on `page(status)`, which shows the submitted form again.
    """
    act, permission = acts.get(request.POST.get("action", ""), (None, ""))
    if act is None:
        messages.error(request, "Choose an action. Nothing was changed.")
        return redirect(*address)
    if not request.user.has_perm(permission, row):
        raise PermissionDenied
    try:
        message = do(act)
    except problems.Problem as problem:
        messages.error(request, describe_problem(problem))
        return page(problem.status)
    messages.success(request, message)
    return redirect(*address)


def describe_problem(problem: problems.Problem) -> str:
    """Return the problem as a sentence for staff."""
    text = problem.detail
    if isinstance(problem, problems.Invalid):
        text = "; ".join(f"{field}: {error}" for field, error in problem.extra["errors"].items())
    return sentence(text)


def sentence(text: str) -> str:
    """Return the text with a capital at its beginning and a mark at its end."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def whole_number(given: Mapping[str, str], name: str, expected: str = "a whole number is expected") -> int:
    """Return the whole number in a form field, which may have thousands separators (commas). Raises Invalid."""
    text = given.get(name, "").strip().replace(",", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise problems.Invalid({name: expected})
    return int(text)


def money_amount(given: Mapping[str, str], name: str, currency: str, *, minor_min: int = 0, minor_max: int) -> int:
    """Return the amount in a form field in the currency's smallest unit. Raises Invalid."""
    try:
        return parse_money(given.get(name, ""), currency, minor_min=minor_min, minor_max=minor_max)
    except InvalidAmount as error:
        raise problems.Invalid({name: str(error)}) from error
