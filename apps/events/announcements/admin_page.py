"""The admin page of an event's announcements: post, correct and retract, with the last ten as readers see them."""

import uuid
from collections.abc import Callable

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.views.decorators.http import require_http_methods

from apps.events import event_views
from apps.events.announcements import feed, queries, service
from apps.events.announcements.template_context import to_context
from apps.events.models.announcements import TEXT_CHARACTERS_MAX, AnnouncementVersion
from apps.events.organizers.membership_backend import is_permitted
from apps.kernel import admin_actions

URL_NAME = "admin:events_announcements"
SHOWN = 10
RECORD_SHOWN = 20
MAY_SEE = "events.view_announcementversion"
MAY_POST = "events.add_announcementversion"
MAY_CHANGE = "events.change_announcementversion"
_NUMBER_DIGITS_MAX = 9


@require_http_methods(["GET", "HEAD", "POST"])
def announcements_page(request: HttpRequest, event_id: int, site: AdminSite) -> HttpResponse:
    """Show one event's announcements, or run the posted action through `service`."""
    try:
        event = event_views.get_event_by_id(event_id)
    except event_views.EventNotFound as error:
        raise Http404 from error
    if not event.is_public:
        raise Http404
    if not any(is_permitted(request.user, permission, event) for permission in (MAY_SEE, MAY_POST, MAY_CHANGE)):
        raise PermissionDenied
    if request.method != "POST":
        return _page(request, event, site)
    author = request.user.get_username()
    return admin_actions.run_action(
        request,
        ACTS,
        lambda act: act(event_id, request.POST, author),
        lambda status: _page(request, event, site, status=status),
        (URL_NAME, event_id),
        event,
    )


def _post(event_id: int, form: QueryDict, author: str) -> str:
    result = service.post(event_id, form.get("text", ""), author=author, key=form.get("key", ""))
    return "The announcement is published." if result.is_new else "This announcement was already published."


def _correct(event_id: int, form: QueryDict, author: str) -> str:
    result = service.correct(
        event_id, _number(form, "announcement"), form.get("text", ""), author=author, key=form.get("key", ""),
        version=_number(form, "version"),
    )  # fmt: skip
    return "The correction is published." if result.is_new else "Nothing changed: the announcement has this text."


def _retract(event_id: int, form: QueryDict, author: str) -> str:
    result = service.retract(event_id, _number(form, "announcement"), author=author)
    return "The announcement is retracted." if result.is_new else "The announcement was already retracted."


ACTS: dict[str, tuple[Callable[[int, QueryDict, str], str], str]] = {
    "post": (_post, MAY_POST),
    "correct": (_correct, MAY_CHANGE),
    "take_back": (_retract, MAY_CHANGE),
}


def _number(form: QueryDict, name: str) -> int:
    text = form.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX):
        raise service.AnnouncementRefused("the form is invalid; refresh the page")
    return int(text)


def _page(request: HttpRequest, event: event_views.EventView, site: AdminSite, *, status: int = 200) -> HttpResponse:
    delivered = feed.read(event.id, event.starts_at)
    latest = queries.latest_of([event.id]).get(event.id, 0)
    form = request.POST if request.method == "POST" else QueryDict()
    context = {
        **site.each_context(request),
        "title": f"Announcements of {event.name}",
        "event": event,
        "delivered": [one | {"key": uuid.uuid4()} for one in to_context(delivered.shown[:SHOWN])],
        "is_behind": delivered.current.latest < latest,
        "record": AnnouncementVersion.objects.filter(event_id=event.id)[:RECORD_SHOWN],
        "key": uuid.uuid4(),
        "text_max": TEXT_CHARACTERS_MAX,
        "per_minute_max": service.PER_MINUTE_MAX,
        "given_text": form.get("text", "") if form.get("action") == "post" else "",
        "may_say": is_permitted(request.user, MAY_POST, event),
        "may_change": is_permitted(request.user, MAY_CHANGE, event),
    }
    return TemplateResponse(request, "admin/events/announcements.html", context, status=status)
