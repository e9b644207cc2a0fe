from django.db import migrations, models

# In a transaction of its own: the one before locks the table for a moment only.
_FILL = """
UPDATE scheduler_taskrun AS run
SET event_id = task.event_id
FROM scheduler_scheduledtask AS task
WHERE task.id = run.task_id AND task.event_id IS NOT NULL
"""


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0006_events_of_runs")]

    operations = [
        migrations.RunSQL(_FILL, migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name="scheduledtask",
            index=models.Index(
                condition=models.Q(("next_run_at__isnull", False)),
                fields=["event_id", "next_run_at"],
                name="scheduled_task_event_next",
            ),
        ),
        migrations.AddIndex(
            model_name="taskrun",
            index=models.Index(
                condition=models.Q(("state__in", ["picked", "running"])),
                fields=["event_id", "scheduled_for"],
                name="task_run_event_minutes",
            ),
        ),
    ]
