"""Rejects admin URLs and forms that the UI cannot produce, instead of failing with 500: filters with impossible values,
a year of -1, actions on invalid ids. Django's admin passes such values to the database; this wrapper covers every
list."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.admin import ModelAdmin
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.exceptions import FieldError, ValidationError
from django.db import DataError
from django.db.models import Field, ForeignKey
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import SimpleTemplateResponse
from django.utils.text import smart_split

from apps.kernel.http import problems

logger = logging.getLogger(__name__)

View = Callable[..., HttpResponse]
CHOSEN = "_selected_action"
QUERY_CHARACTERS_MAX = 4_000
SEARCH_CHARACTERS_MAX, SEARCH_WORDS_MAX = 200, 8
"""Django adds one condition for each word and searched column; a thousand words take PostgreSQL seconds."""
_SEARCHES = ("q", "term")
"""The parameters with the search text of a list and of an autocomplete."""
_INVALID_INPUT_ERRORS = (DataError, FieldError, OverflowError, TypeError, ValidationError, ValueError)


def refuse_invalid_input(view: View) -> View:
    """Wrap an admin view so that invalid values in its URL or form are refused.

    If the URL has parameters, an error of these types counts as an invalid URL. Its traceback is logged, in case the
    fault is ours. A list redirects to itself unfiltered, as Django does for the errors it handles. The rows selected
    for an action are validated before it starts. Without URL parameters, an error within the action is raised. A URL or
    search that is too long is refused before the view runs.
    """

    @wraps(view)
    def refuse(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        _refuse_long_query(request)
        model_admin = _find_model_admin(view)
        if model_admin is not None and request.method == "POST" and not _has_valid_selection(model_admin, request):
            raise problems.Malformed("The selection contains invalid ids. Reload the list and try again.")
        try:
            response = view(request, *args, **kwargs)
            # A list queries its rows during rendering.
            if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
                response.render()
        except _INVALID_INPUT_ERRORS as error:
            if not request.GET:
                raise
            logger.warning("refused an admin URL with invalid parameters: %s", request.path, exc_info=True)
            if model_admin is None or ERROR_FLAG in request.GET:
                raise problems.Malformed("The URL has invalid parameters.") from error
            return HttpResponseRedirect(f"{request.path}?{ERROR_FLAG}=1")
        return response

    return refuse


def _refuse_long_query(request: HttpRequest) -> None:
    if len(request.META.get("QUERY_STRING", "")) > QUERY_CHARACTERS_MAX:
        raise problems.Malformed("The URL has too many parameters.")
    for name in _SEARCHES:
        text = request.GET.get(name, "")
        if len(text) > SEARCH_CHARACTERS_MAX or sum(1 for _ in smart_split(text)) > SEARCH_WORDS_MAX:
            raise problems.Malformed(
                f"Search for at most {SEARCH_WORDS_MAX} words and {SEARCH_CHARACTERS_MAX} characters."
            )


def _find_model_admin(view: View) -> ModelAdmin | None:
    """Return the ModelAdmin whose list the view shows, if it shows one."""
    owner = getattr(view, "__self__", None)
    return owner if isinstance(owner, ModelAdmin) and getattr(view, "__name__", "") == "changelist_view" else None


def _has_valid_selection(model_admin: ModelAdmin, request: HttpRequest) -> bool:
    key: Field = model_admin.opts.pk
    while isinstance(key, ForeignKey):
        key = key.target_field
    for text in request.POST.getlist(CHOSEN):
        try:
            key.run_validators(key.to_python(text))
        except ValidationError:
            return False
        if "\x00" in text:
            return False
    return True
