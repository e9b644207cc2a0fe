"""The kinds of tasks of this app: publish an event, post an announcement, archive announcements; and, for the whole
site, archive old searches. And the check that a task acts for a member only while the member may do the same."""

from datetime import timedelta

from django import forms
from django.db import transaction

from apps.accounts import facade as accounts
from apps.events import event_views, publication
from apps.events.announcements import archive, service
from apps.events.models import Event
from apps.events.models.announcements import TEXT_CHARACTERS_MAX
from apps.events.organizers.membership_backend import is_permitted
from apps.events.recents import archive as search_archive
from apps.kernel import clock
from apps.kernel.scheduler import facade as scheduler

PUBLISH = "events.publish"
ANNOUNCE = "events.announce"
ARCHIVE = "events.archive"
ARCHIVE_SEARCHES = "events.archive_searches"


def register() -> None:
    """Register the kinds of tasks of this app, and the check of permissions of all kinds."""
    scheduler.register_permission_check(require_permitted)
    scheduler.register_task(
        PUBLISH, _publish, label="Publish the event", permission="events.change_event", idempotent=True,
        is_slow=True, lock_ms=publication.PUBLISH_LOCK_MS, statement_ms=publication.PUBLISH_STATEMENT_MS,
    )  # fmt: skip
    scheduler.register_task(
        ANNOUNCE, _announce, AnnouncementParams, label="Post an announcement",
        permission="events.add_announcementversion",
    )  # fmt: skip
    scheduler.register_task(
        ARCHIVE, _archive, label="Archive old announcements", permission="events.change_event", idempotent=True
    )
    scheduler.register_task(
        ARCHIVE_SEARCHES, _archive_searches, label="Archive old searches", for_event=False, idempotent=True
    )
    scheduler.register_recurring(ARCHIVE_SEARCHES, ARCHIVE_SEARCHES, "7 * * * *")


class AnnouncementParams(scheduler.TaskParams):
    text = forms.CharField(
        max_length=TEXT_CHARACTERS_MAX,
        widget=forms.Textarea(attrs={"rows": 4}),
        label="Text for all visitors",
        help_text=f"Plain text, at most {TEXT_CHARACTERS_MAX} characters.",
    )

    def clean_text(self) -> str:
        try:
            return service.plain_text(self.cleaned_data["text"])
        except service.AnnouncementRefused as error:
            raise forms.ValidationError(str(error)) from error


def require_permitted(run: scheduler.Run, permission: str) -> None:
    """Raise TaskFailed unless the run's account is active and has the permission for the run's event."""
    user = accounts.User.objects.filter(pk=run.account_id or 0, is_active=True).first()
    event = Event.objects.only("organizer").filter(pk=run.event_id).first()
    if user is None or event is None or not is_permitted(user, permission, event):
        raise scheduler.TaskFailed(
            f"{run.who} may no longer do this for the event, so nothing was changed. A member who may do it can run it "
            "again, or change the task to take it over"
        )


def _publish(run: scheduler.Run) -> str:
    try:
        event = publication.lock_event(run.event_id)
        is_published = publication.publish_locked(event)
    except (publication.EventRefused, event_views.EventNotFound) as error:
        raise scheduler.TaskFailed(str(error)) from error
    if event.status == Event.Status.CANCELED:
        raise scheduler.TaskFailed("the event is canceled, so it was not published")
    if is_published:
        transaction.on_commit(publication.refresh_statistics, robust=True)
    return "published" if is_published else "it was published already"


def _announce(run: scheduler.Run) -> str:
    if Event.objects.filter(pk=run.event_id, starts_at__lte=clock.now()).exists():
        raise scheduler.TaskFailed("the event has begun, so scheduled announcements have ended")
    # One announcement for each run, however often it is started.
    result = service.post_scheduled(run.event_id, run.params["text"], author=run.who, key=f"scheduled-run-{run.id}")
    return f"announcement {result.announcement.announcement_id}"


def _archive(run: scheduler.Run) -> str:
    return f"{archive.archive_event(run.event_id)} versions archived"


def _archive_searches(run: scheduler.Run) -> str:
    before = clock.now() - timedelta(days=search_archive.LISTED_DAYS)
    return f"{search_archive.end_old_searches(before)} searches"
