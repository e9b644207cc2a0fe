"""The page of an event's scheduled tasks: what will happen, what has happened, and forms to schedule and change."""

import uuid
from typing import Any

from django import forms
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from apps.events.organizers.membership_backend import is_permitted
from apps.events.scheduled_tasks import limits
from apps.events.staff.staff_events import StaffEvent, get_staff_event
from apps.kernel import admin_actions
from apps.kernel.form_fields.local_time_field import LocalTimeField
from apps.kernel.http import problems
from apps.kernel.scheduler import facade as scheduler
from apps.kernel.scheduler.models import ScheduledTask, TaskFile, TaskRun

URL_NAME = "admin:events_tasks"
MAY_SEE = "scheduler.view_scheduledtask"
MAY_SCHEDULE = "scheduler.add_scheduledtask"
MAY_CHANGE = "scheduler.change_scheduledtask"
TASKS_SHOWN = 100
RUNS_SHOWN = 50
_ID_DIGITS_MAX = 18


class ScheduleForm(forms.Form):
    """When a task runs, on the venue's clock."""

    once_at = LocalTimeField(label="Once, at", required=False)
    cron = forms.CharField(
        label="Or repeatedly, as a cron expression",
        required=False,
        max_length=100,
        help_text="Minute, hour, day of the month, month, weekday: “0 9 * * 1-5” is 9:00 from Monday to Friday. "
        "At most once an hour.",
    )

    def __init__(self, *args: Any, zone: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.zone = zone
        field = self.fields["once_at"]
        assert isinstance(field, LocalTimeField)
        field.zone = zone

    def clean_cron(self) -> str:
        cron = " ".join(self.cleaned_data["cron"].split())
        if cron:
            limits.check_cron(cron, self.zone)
        return cron

    def to_schedule(self) -> scheduler.Schedule:
        """Return the schedule of the valid form."""
        return scheduler.Schedule(self.cleaned_data["once_at"], self.cleaned_data["cron"], self.zone)


@require_http_methods(["GET", "HEAD", "POST"])
def tasks_page(request: HttpRequest, event_id: int, site: AdminSite) -> HttpResponse:
    """Show one event's tasks and their runs, or run the posted action."""
    event = get_staff_event(event_id)
    if event is None:
        raise Http404
    if not any(is_permitted(request.user, permission, event) for permission in (MAY_SEE, MAY_SCHEDULE, MAY_CHANGE)):
        raise PermissionDenied
    if request.method != "POST":
        return _page(request, event, site)
    return admin_actions.run_action(
        request,
        ACTS,
        lambda act: act(request, event),
        lambda status: _page(request, event, site, status=status),
        (URL_NAME, event_id),
        event,
    )


def _page(request: HttpRequest, event: StaffEvent, site: AdminSite, *, status: int = 200) -> HttpResponse:
    given = request.POST if request.method == "POST" else request.GET
    # Tasks ahead come first, and are fewer than TASKS_SHOWN: each of them can be canceled here.
    tasks = ScheduledTask.objects.filter(event_id=event.id).alias(ahead=limits.is_ahead()).order_by("-ahead", "-id")
    runs = TaskRun.objects.filter(task__event_id=event.id).select_related("task")
    may_change = is_permitted(request.user, MAY_CHANGE, event)
    form = _forms(request, event, given)
    context = {
        **site.each_context(request),
        "title": f"Scheduled tasks of {event.name}",
        "event": event,
        "tasks": [_describe_task(request, event, task, may_change) for task in tasks[:TASKS_SHOWN]],
        "runs": _describe_runs(request, event, list(runs[:RUNS_SHOWN])),
        "kinds": _permitted_kinds(request, event) if is_permitted(request.user, MAY_SCHEDULE, event) else [],
        "form": form,
        "warning": scheduler.describe(scheduler.read_plan()),
        "url": reverse(URL_NAME, args=[event.id]),
    }
    return TemplateResponse(request, "admin/events/tasks.html", context, status=status)


def _permitted_kinds(request: HttpRequest, event: StaffEvent) -> list[scheduler.TaskKind]:
    return [kind for kind in scheduler.kinds() if _may_use(request, event, kind)]


def _may_use(request: HttpRequest, event: StaffEvent, kind: scheduler.TaskKind) -> bool:
    return kind.for_event and bool(kind.permission) and is_permitted(request.user, kind.permission, event)


def _describe(task: ScheduledTask) -> dict[str, Any]:
    kind = scheduler.find_kind(task.kind)
    label = task.kind if kind is None else kind.label
    return {"label": label, "params": "" if kind is None else kind.params.describe(task.params)}


def _describe_task(request: HttpRequest, event: StaffEvent, task: ScheduledTask, may_change: bool) -> dict[str, Any]:
    kind = scheduler.find_kind(task.kind)
    latest = task.runs.first()
    return {
        "task": task,
        "latest": latest,
        "waits": latest is not None and latest.state in (TaskRun.State.PICKED, TaskRun.State.RUNNING),
        "may_change": may_change and kind is not None and _may_use(request, event, kind),
        **_describe(task),
    }


def _describe_runs(request: HttpRequest, event: StaffEvent, runs: list[TaskRun]) -> list[dict[str, Any]]:
    files = dict(TaskFile.objects.filter(run__in=runs).values_list("run_id", "name"))
    return [
        {"run": run, "file": files.get(run.pk) if _may_read(request, event, run) else None, **_describe(run.task)}
        for run in runs
    ]


def _may_read(request: HttpRequest, event: StaffEvent, run: TaskRun) -> bool:
    """Return whether the user may read the run's file: with the permission of its kind, as on the pages themselves."""
    kind = scheduler.find_kind(run.task.kind)
    return kind is not None and _may_use(request, event, kind)


def task_file(request: HttpRequest, run_id: int) -> HttpResponse:
    """Send the file that the run of an event's task made."""
    file = TaskFile.objects.select_related("run__task").filter(pk=run_id, run__task__event_id__isnull=False).first()
    event = None if file is None else get_staff_event(file.run.task.event_id or 0)
    if event is None or file is None:
        raise Http404
    if not is_permitted(request.user, MAY_SEE, event) or not _may_read(request, event, file.run):
        raise PermissionDenied
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["GET", "HEAD"])
    headers = {"Content-Disposition": f'attachment; filename="{file.name}"', "Cache-Control": "private, no-store"}
    return HttpResponse(bytes(file.content), content_type=file.content_type, headers=headers)


def _forms(request: HttpRequest, event: StaffEvent, given: QueryDict) -> dict[str, Any] | None:
    """Return the forms to schedule a task of the chosen kind, or to change the chosen task; None without a choice."""
    task = _find_task(event, given.get("task", ""))
    kind = scheduler.find_kind(task.kind if task is not None else given.get("kind", ""))
    if kind is None or not _may_use(request, event, kind):
        return None
    if not is_permitted(request.user, MAY_SCHEDULE if task is None else MAY_CHANGE, event):
        return None
    scope = _scope(event)
    if given is request.POST and given.get("action") in ("schedule", "change"):
        params, schedule = kind.params(given, scope=scope), ScheduleForm(given, zone=event.timezone)
    elif task is not None:
        params = kind.params(initial=task.params, scope=scope)
        schedule = ScheduleForm(initial={"once_at": task.once_at, "cron": task.cron}, zone=event.timezone)
    else:
        params, schedule = kind.params(scope=scope), ScheduleForm(zone=event.timezone)
    return {
        "kind": kind, "task": task, "params": params, "schedule": schedule, "parts": [params, schedule],
        "form_key": _form_key(given.get("form_key", "")),
    }  # fmt: skip


def _form_key(text: str) -> uuid.UUID:
    """Return the key of a form that was sent, so that it stays the same after an error; of another one, a new key."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return uuid.uuid4()


def _find_task(event: StaffEvent, text: str) -> ScheduledTask | None:
    pk = _parse_id(text)
    return None if pk is None else ScheduledTask.objects.filter(pk=pk, event_id=event.id).first()


def _parse_id(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= _ID_DIGITS_MAX
    return int(text) if is_number else None


def _person(request: HttpRequest) -> dict[str, Any]:
    """Return the name and account of the user, for which the task will act."""
    return {"who": request.user.get_username(), "account_id": request.user.pk}


def _scope(event: StaffEvent) -> scheduler.Scope:
    return scheduler.Scope(event.id, event.organizer_id)


def _submitted(request: HttpRequest, event: StaffEvent) -> tuple[dict[str, Any], dict[str, Any], scheduler.Schedule]:
    """Return the submitted forms, with their valid parameters and schedule. Raises Invalid and PermissionDenied."""
    found = _forms(request, event, request.POST)
    if found is None:
        raise PermissionDenied
    wrong = [form for form in (found["params"], found["schedule"]) if not form.is_valid()]
    if wrong:
        raise problems.Problem("Correct the fields below. Nothing was scheduled.")
    return found, found["params"].to_json(), found["schedule"].to_schedule()


def _schedule(request: HttpRequest, event: StaffEvent) -> str:
    found, params, schedule = _submitted(request, event)
    limits.schedule_task(
        found["kind"].name, params, schedule, scope=_scope(event), **_person(request),
        key=f"form:{found['form_key']}" if request.POST.get("form_key") else None,
    )  # fmt: skip
    return "The task is scheduled."


def _change(request: HttpRequest, event: StaffEvent) -> str:
    found, params, schedule = _submitted(request, event)
    if found["task"] is None:
        raise PermissionDenied
    limits.change_task(event.id, found["task"].pk, params, schedule, **_person(request))
    return "The task was changed."


def _chosen_task(request: HttpRequest, event: StaffEvent) -> ScheduledTask:
    """Return the task of the form. Raises Http404 for one of another event, and PermissionDenied."""
    task = _find_task(event, request.POST.get("task", ""))
    if task is None:
        raise Http404
    kind = scheduler.find_kind(task.kind)
    if kind is None or not _may_use(request, event, kind):
        raise PermissionDenied
    return task


def _cancel(request: HttpRequest, event: StaffEvent) -> str:
    was_enabled = scheduler.cancel_task(_chosen_task(request, event).pk)
    return "The task is canceled." if was_enabled else "The task was canceled already."


def _enable(request: HttpRequest, event: StaffEvent) -> str:
    limits.enable_task(event.id, _chosen_task(request, event).pk)
    return "The task is scheduled again."


def _run_again(request: HttpRequest, event: StaffEvent) -> str:
    task = _chosen_task(request, event)
    run_id = _parse_id(request.POST.get("run", ""))
    if run_id is None or not TaskRun.objects.filter(pk=run_id, task=task).exists():
        raise Http404
    scheduler.run_again(run_id, **_person(request))
    return "The task runs again."


ACTS: dict[str, tuple[Any, str]] = {
    "schedule": (_schedule, MAY_SCHEDULE),
    "change": (_change, MAY_CHANGE),
    "cancel": (_cancel, MAY_CHANGE),
    "enable": (_enable, MAY_CHANGE),
    "run_again": (_run_again, MAY_CHANGE),
}
