"""Admin of feeds: what waits in each, and its dead letters. Programs create and use feeds over the API."""

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.contrib import messages as notices
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timesince import timesince

from apps.events.facade import OrganizerScopedAdmin
from apps.kernel import clock
from apps.kernel.admin_lists import ReadOnlyAdmin, format_count
from apps.kernel.feeds import facade as feeds
from apps.kernel.feeds.models import Feed, Message
from apps.orders.models import FeedKey


@admin.register(Feed)
class FeedAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    organizer_path = "pk"  # Plain ids: the kernel knows no organizers.
    list_display = ["name", "owner", "messages", "oldest", "dead", "size", "created_at"]
    search_fields = ["=name"]
    search_help_text = "The complete name of a feed."
    fields = [
        "name", "owner", "messages", "oldest", "dead", "size", "retention", "most_receives", "created_at",
        "dead_letters",
    ]  # fmt: skip
    readonly_fields = ["owner", "messages", "oldest", "dead", "size", "retention", "most_receives", "dead_letters"]
    actions = ["redrive"]
    action_permissions = {"redrive": "feeds.change_feed"}

    def scope(self, organizer_ids: frozenset[int]) -> Q:
        return Q(organizer_id__in=organizer_ids)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Feed]:
        due = Message.objects.filter(feed=OuterRef("pk"), state=Message.State.READY, receives_left__gt=0)
        oldest = Subquery(due.order_by("visible_at", "sequence").values("visible_at")[:1])
        keys = FeedKey.objects.filter(organizer=OuterRef("organizer_id"))
        return (
            super()
            .get_queryset(request)
            .filter(deleted_at=None)
            .annotate(oldest_visible_at=oldest, owner_name=Subquery(keys.values("organizer__name")[:1]))
        )

    @admin.display(description="organizer", ordering="organizer_id")
    def owner(self, feed: Any) -> str:
        return feed.owner_name or str(feed.organizer_id)

    @admin.display(description="messages", ordering="message_count")
    def messages(self, feed: Feed) -> int:
        return feed.message_count

    @admin.display(description="dead letters", ordering="dead_count")
    def dead(self, feed: Feed) -> int:
        return feed.dead_count

    @admin.display(description="size", ordering="byte_count")
    def size(self, feed: Feed) -> str:
        return filesizeformat(feed.byte_count)

    @admin.display(description="keeps messages for")
    def retention(self, feed: Feed) -> str:
        start = feed.created_at
        return timesince(start, start + timedelta(seconds=feed.retention_seconds))

    @admin.display(description="receives before a dead letter")
    def most_receives(self, feed: Feed) -> int:
        return feed.receives_max

    @admin.display(description="oldest waiting for")
    def oldest(self, feed: Any) -> str:
        now = clock.now()
        if feed.oldest_visible_at is None or feed.oldest_visible_at > now:
            return "–"
        return timesince(feed.oldest_visible_at, now)

    @admin.display(description="oldest dead letters")
    def dead_letters(self, feed: Feed) -> SafeString | str:
        dead = Message.objects.filter(feed=feed, state=Message.State.DEAD).order_by("sequence")[: feeds.LISTED_MAX]
        rows = [
            (one.sequence, one.message_id, one.key or "–", one.receives, f"{one.ended_at:%Y-%m-%d %H:%M}")
            for one in dead
        ]
        if not rows:
            return "none"
        line = "<li>{}: {} (key {}), received {} times, a dead letter since {} UTC</li>"
        return format_html("<ol>{}</ol>", format_html_join("", line, rows))

    def has_redrive_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("feeds.change_feed")

    @admin.action(description="Send dead letters again", permissions=["redrive"])
    def redrive(self, request: HttpRequest, queryset: QuerySet[Feed]) -> None:
        count = sum(feeds.redrive(feed.organizer_id, feed.name) for feed in queryset)
        notices.info(request, f"Sent again: {format_count(count, 'message')}.")
