"""Scheduled tasks, their runs, and the files that runs made."""

from django.db import models
from django.db.models import F, Q


class ScheduledTask(models.Model):
    """A task of a registered kind, with its parameters and its schedule: one minute, or a cron expression in a time
    zone.

    `next_run_at` is set while the task waits for its minute. The picker clears it and inserts the run; the run's end
    sets it again, if the task recurs.
    """

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=80)
    params = models.JSONField(default=dict)
    # Plain ids: the kernel knows neither events nor organizers.
    event_id = models.BigIntegerField(null=True, blank=True, db_index=True)
    organizer_id = models.BigIntegerField(null=True, blank=True, db_index=True)
    once_at = models.DateTimeField(null=True, blank=True, help_text="The minute of a task that runs once.")
    cron = models.CharField(max_length=100, blank=True, help_text="The minutes of a recurring task.")
    time_zone = models.CharField(max_length=64, help_text="The zone of the cron expression, and of times on pages.")
    enabled = models.BooleanField(default=True)
    next_run_at = models.DateTimeField(null=True, blank=True)
    key = models.CharField(
        max_length=80, null=True, blank=True, unique=True, help_text="Of a task registered by code, or of a form."
    )
    created_by = models.CharField(max_length=150)
    account_id = models.BigIntegerField(
        null=True, blank=True, help_text="The account of created_by, whose permission each run checks; empty: code."
    )
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=(Q(once_at__isnull=False) & Q(cron="")) | (Q(once_at__isnull=True) & ~Q(cron="")),
                name="scheduled_task_once_or_cron",
            ),
            models.CheckConstraint(
                condition=Q(enabled=True) | Q(next_run_at__isnull=True), name="scheduled_task_disabled_waits_for_none"
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_run_at", "id"], condition=Q(next_run_at__isnull=False), name="scheduled_task_next"
            ),
            models.Index(
                fields=["event_id", "next_run_at"],
                condition=Q(next_run_at__isnull=False),
                name="scheduled_task_event_next",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"


class TaskRun(models.Model):
    """One run of a task, for one minute. It is repeated in its row: `attempts` counts its starts."""

    class State(models.TextChoices):
        PICKED = "picked", "waiting"  # → running, canceled
        RUNNING = "running", "running"  # → succeeded, failed, picked (lost; to be retried), canceled (so, but disabled)
        SUCCEEDED = "succeeded", "succeeded"
        FAILED = "failed", "failed"  # → picked (run again by staff)
        CANCELED = "canceled", "canceled"  # → picked (the task was enabled again before its minute)

    id = models.BigAutoField(primary_key=True)
    task = models.ForeignKey(ScheduledTask, on_delete=models.CASCADE, related_name="runs", db_index=False)
    organizer_id = models.BigIntegerField(default=0, db_default=0, help_text="Of its task; 0: the whole site.")
    event_id = models.BigIntegerField(null=True, blank=True, help_text="Of its task; empty: the whole site.")
    scheduled_for = models.DateTimeField(help_text="The minute of the schedule.")
    due_at = models.DateTimeField(help_text="Not started before: the minute, or the time of a retry.")
    state = models.CharField(max_length=10, choices=State.choices, default=State.PICKED)
    picked_at = models.DateTimeField()
    turn = models.BigIntegerField(
        null=True, blank=True, help_text="From when it is due to its end: the run with the lowest one starts first."
    )
    started_at = models.DateTimeField(null=True, blank=True, help_text="Of the latest attempt, as is finished_at.")
    finished_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    losses = models.PositiveIntegerField(default=0, help_text="Attempts whose executor ended before them.")
    executor = models.CharField(max_length=80, blank=True, help_text="Host and process of the latest attempt.")
    result = models.CharField(max_length=300, blank=True)
    error = models.TextField(blank=True)
    asked_by = models.CharField(max_length=150, blank=True, help_text="Who ran it again.")
    asked_account_id = models.BigIntegerField(null=True, blank=True, help_text="The account of asked_by.")
    earlier = models.JSONField(default=list, help_text="Earlier attempts: when they started, and their errors.")

    class Meta:
        ordering = ["-scheduled_for", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["task", "scheduled_for"], name="task_run_once_per_minute"),
            models.UniqueConstraint(
                fields=["task"], condition=Q(state="running"), name="task_run_one_running_of_a_task"
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["running", "succeeded"]) | (Q(started_at__isnull=False) & Q(attempts__gte=1)),
                name="task_run_has_started",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["succeeded", "failed"], finished_at__isnull=False)
                | (~Q(state__in=["succeeded", "failed"]) & Q(finished_at__isnull=True)),
                name="task_run_has_finished",
            ),
            models.CheckConstraint(
                condition=Q(turn__isnull=True) | Q(state__in=["picked", "running"]), name="task_run_turn_until_its_end"
            ),
            models.CheckConstraint(condition=Q(losses__lte=F("attempts")), name="task_run_losses_are_attempts"),
        ]
        indexes = [
            models.Index(fields=["due_at", "id"], condition=Q(state="picked"), name="task_run_due"),
            models.Index(fields=["turn", "due_at", "id"], condition=Q(turn__isnull=False), name="task_run_turns"),
            models.Index(
                fields=["organizer_id", "turn"],
                condition=Q(state__in=["picked", "running"]),
                name="task_run_organizer_turns",
            ),
            models.Index(
                fields=["event_id", "scheduled_for"],
                condition=Q(state__in=["picked", "running"]),
                name="task_run_event_minutes",
            ),
            models.Index(fields=["started_at"], condition=Q(state="running"), name="task_run_running"),
            models.Index(fields=["finished_at"], condition=Q(finished_at__isnull=False), name="task_run_finished"),
        ]

    def __str__(self) -> str:
        return f"run {self.pk} of task {self.task_id}"


class TaskFile(models.Model):
    """A file that a run made, for staff with the permission of the run's kind. It is deleted with the run."""

    run = models.OneToOneField(TaskRun, primary_key=True, on_delete=models.CASCADE, related_name="file")
    name = models.CharField(max_length=200)
    content_type = models.CharField(max_length=80)
    content = models.BinaryField()

    def __str__(self) -> str:
        return self.name
