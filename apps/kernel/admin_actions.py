"""A page of the staff's on which one of several acts is done: by whom, and what is told of it."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.kernel.http import problems

Action = TypeVar("Action")


def run_action(
    request: HttpRequest,
    acts: Mapping[str, tuple[Action, str]],
    do: Callable[[Action], str],
    page: Callable[[int], HttpResponse],
    address: tuple[Any, ...],
) -> HttpResponse:
    """What the form asks for is done, if its sender may, and told at `address`; what is refused is told beside what was
    sent. `acts`: by name, with the permission that each takes; `page` shows the desk with this status."""
    act, permission = acts.get(request.POST.get("action", ""), (None, ""))
    if act is None:
        messages.error(request, "Press the button of what is to be done; nothing has changed.")
        return redirect(*address)
    if not request.user.has_perm(permission):
        raise PermissionDenied
    try:
        said = do(act)
    except problems.Problem as problem:
        messages.error(request, describe_problem(problem))
        return page(problem.status)
    messages.success(request, said)
    return redirect(*address)


def describe_problem(problem: problems.Problem) -> str:
    """What was refused, as a sentence for staff."""
    words = problem.detail
    if isinstance(problem, problems.Invalid):
        words = "; ".join(f"{field}: {what}" for field, what in problem.extra["errors"].items())
    words = words[:1].upper() + words[1:]
    return words if words.endswith((".", "!", "?")) else f"{words}."


def whole_number(given: Mapping[str, str], name: str, expected: str = "a whole number is expected") -> int:
    """The number that was typed, thousands with commas or not. Raises Invalid."""
    text = given.get(name, "").strip().replace(",", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise problems.Invalid({name: expected})
    return int(text)
