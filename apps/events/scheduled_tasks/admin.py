"""Admin of scheduled tasks and their runs: lists of what members may see, and the page of one event's tasks."""

from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.events.models import Event
from apps.events.organizers.admin_scope import OrganizerScopedAdmin
from apps.events.scheduled_tasks.page import task_file, tasks_page
from apps.kernel.admin_lists import ConditionFilter, ReadOnlyAdmin
from apps.kernel.scheduler import facade as scheduler
from apps.kernel.scheduler.models import ScheduledTask, TaskRun


class Waits(ConditionFilter):
    title = parameter_name = "state"
    conditions = {
        "waits": ("waiting", Q(next_run_at__isnull=False)),
        "disabled": ("canceled", Q(enabled=False)),
    }


class _TaskRows(OrganizerScopedAdmin, ReadOnlyAdmin):
    """Rows of the kernel's tables, which have an event's id instead of a relation."""

    organizer_path = "pk"
    event_field = "event_id"

    def scope(self, organizer_ids: frozenset[int]) -> Q:
        return Q(**{f"{self.event_field}__in": Event.objects.filter(organizer__in=organizer_ids).values("pk")})


@admin.register(ScheduledTask)
class ScheduledTaskAdmin(_TaskRows):
    list_display = ["id", "what", "enabled", "next_run_at", "once_at", "cron", "time_zone", "created_by", "event"]
    list_filter = [Waits, "kind"]
    search_fields = ["=created_by", "=kind"]
    readonly_fields = ["event"]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.tasks_view)
        file_view = self.admin_site.admin_view(task_file)
        return [
            path("of/<int:event_id>/", view, name="events_tasks"),
            path("files/<int:run_id>/", file_view, name="events_task_file"),
            *super().get_urls(),
        ]

    def tasks_view(self, request: HttpRequest, event_id: int) -> HttpResponse:
        return tasks_page(request, event_id, self.admin_site)

    @admin.display(description="task", ordering="kind")
    def what(self, task: ScheduledTask) -> str:
        kind = scheduler.find_kind(task.kind)
        return task.kind if kind is None else kind.label

    @admin.display(description="event", ordering="event_id")
    def event(self, task: ScheduledTask) -> SafeString | str:
        if task.event_id is None:
            return "–"
        return format_html('<a href="{}">Tasks of event {}</a>', _page_url(task.event_id), task.event_id)


@admin.register(TaskRun)
class TaskRunAdmin(_TaskRows):
    event_field = "task__event_id"
    list_display = ["id", "what", "state", "scheduled_for", "started_at", "finished_at", "result", "short_error"]
    list_filter = ["state", "task__kind"]
    list_select_related = ["task"]

    @admin.display(description="task", ordering="task__kind")
    def what(self, run: TaskRun) -> Any:
        kind = scheduler.find_kind(run.task.kind)
        label = run.task.kind if kind is None else kind.label
        if run.task.event_id is None:
            return label
        return format_html('<a href="{}">{}</a>', _page_url(run.task.event_id), label)

    @admin.display(description="error")
    def short_error(self, run: TaskRun) -> str:
        return run.error[:120]


def _page_url(event_id: int) -> str:
    return reverse("admin:events_tasks", args=[event_id])
