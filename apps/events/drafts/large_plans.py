"""Staff pages that read the plan of a draft: for large plans, each process serves one of them at a time."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from django.contrib.admin.utils import unquote

from apps.events.models import Event
from apps.events.organizers.membership_backend import is_permitted
from apps.events.plans import reading_alone

View = TypeVar("View", bound=Callable[..., Any])

MAY_SEE = ("events.view_event", "events.change_event")
"""The permissions of which staff need one to see an event."""


def alone_if_large(view: View) -> View:
    """Call the view, whose arguments are a request and an event's id, unless the event is a draft with a large plan and
    another thread of this process reads a large plan: then it raises problems.Busy. For a user who may not see the
    event, the view is called in any case, and has to refuse before it reads the plan."""

    @wraps(view)
    def wrapped(request: Any, event_id: Any, *args: Any, **kwargs: Any) -> Any:
        draft = _find_draft(event_id)
        may_see = draft is not None and any(is_permitted(request.user, permission, draft) for permission in MAY_SEE)
        with reading_alone(request.user.pk, _count_seats(draft) if may_see else 0):
            return view(request, event_id, *args, **kwargs)

    return cast("View", wrapped)


def count_draft_seats(event_id: int) -> int:
    """Return the number of seats of a draft's plan; 0 for other events."""
    return _count_seats(_find_draft(event_id))


def _count_seats(draft: Event | None) -> int:
    return 0 if draft is None or draft.plan is None else draft.plan.seat_count


def _find_draft(event_id: Any) -> Event | None:
    """Return the draft with its organizer's id and the size of its plan only. The id may be a text that the admin takes
    for one, for example with a space."""
    try:
        pk = int(unquote(str(event_id)))
    except ValueError:
        return None
    drafts = Event.objects.filter(pk=pk, status=Event.Status.DRAFT).select_related("plan")
    return drafts.only("organizer_id", "plan__seat_count").first()
