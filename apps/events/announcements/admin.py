"""Admin of announcements: the record of versions with their authors, the archive, and the page for posting."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path

from apps.events.announcements.admin_page import announcements_page
from apps.events.models.announcements import AnnouncementArchive, AnnouncementVersion
from apps.events.organizers.admin_scope import OrganizerScopedAdmin
from apps.kernel.admin_lists import ReadOnlyAdmin


@admin.register(AnnouncementVersion)
class AnnouncementVersionAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    list_display = ["at", "event", "who", "announcement", "number", "text"]
    list_filter = ["event"]
    list_select_related = ["event"]
    search_fields = ["text", "who"]

    def get_urls(self) -> list[URLPattern]:
        page = path(
            "of/<int:event_id>/", self.admin_site.admin_view(self.announcements_view), name="events_announcements"
        )
        return [page, *super().get_urls()]

    def announcements_view(self, request: HttpRequest, event_id: int) -> HttpResponse:
        return announcements_page(request, event_id, self.admin_site)


@admin.register(AnnouncementArchive)
class AnnouncementArchiveAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    list_display = ["event", "day", "first", "last", "version_count", "archived_at"]
    list_filter = ["event"]
    list_select_related = ["event"]
    exclude = ["body"]
