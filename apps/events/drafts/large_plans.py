"""Staff pages that read the plan of a draft: for large plans, each process serves one of them at a time."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from django.contrib.admin.utils import unquote

from apps.events.models import Event
from apps.events.plans import reading_alone

View = TypeVar("View", bound=Callable[..., Any])


def alone_if_large(view: View) -> View:
    """Call the view, whose arguments are a request and an event's id, unless the event is a draft with a large plan and
    another thread of this process reads a large plan: then it raises problems.Busy."""

    @wraps(view)
    def wrapped(request: Any, event_id: Any, *args: Any, **kwargs: Any) -> Any:
        with reading_alone(count_draft_seats(event_id)):
            return view(request, event_id, *args, **kwargs)

    return cast("View", wrapped)


def count_draft_seats(event_id: Any) -> int:
    """Return the number of seats of a draft's plan; 0 for other events. The id may be a text that the admin takes for
    one, for example with a space."""
    try:
        pk = int(unquote(str(event_id)))
    except ValueError:
        return 0
    drafts = Event.objects.filter(pk=pk, status=Event.Status.DRAFT)
    return drafts.values_list("plan__seat_count", flat=True).first() or 0
