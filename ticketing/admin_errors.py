"""What nobody can click together on the staff's site: filters that no value fits, a year of -1, actions on ids that are
none. Django's admin hands them to the database and fails; here they are refused, for every list alike."""

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

from apps.kernel.http import problems

logger = logging.getLogger(__name__)

View = Callable[..., HttpResponse]
CHOSEN = "_selected_action"
_INVALID_INPUT_ERRORS = (DataError, FieldError, OverflowError, TypeError, ValidationError, ValueError)


def refuse_invalid_input(view: View) -> View:
    """The view of the staff's site, which refuses what its address or its form names and cannot be.

    An address is judged by what comes of it: only where it has parameters, and with the whole trace in the log, should
    the fault be ours after all. A list answers as Django does where it notices by itself, with the list unfiltered. The
    rows an action is for are judged before it begins, so that a fault in the middle of one stays a fault.
    """

    @wraps(view)
    def refuse(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        desk = _find_model_admin(view)
        if desk is not None and request.method == "POST" and not _has_valid_selection(desk, request):
            raise problems.Malformed("This names rows that cannot be in this list.")
        try:
            response = view(request, *args, **kwargs)
            # A list reads its rows while it is rendered.
            if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
                response.render()
        except _INVALID_INPUT_ERRORS as error:
            if not request.GET:
                raise
            logger.warning("staff asked for what cannot be: %s", request.path, exc_info=True)
            if desk is None or ERROR_FLAG in request.GET:
                raise problems.Malformed("This address says something that cannot be.") from error
            return HttpResponseRedirect(f"{request.path}?{ERROR_FLAG}=1")
        return response

    return refuse


def _find_model_admin(view: View) -> ModelAdmin | None:
    """Whose list the view shows, if it shows one."""
    desk = getattr(view, "__self__", None)
    return desk if isinstance(desk, ModelAdmin) and getattr(view, "__name__", "") == "changelist_view" else None


def _has_valid_selection(desk: ModelAdmin, request: HttpRequest) -> bool:
    key: Field = desk.opts.pk
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
