from django.db import migrations, models

# In a transaction of its own: the one before locks the table for a moment only.
_FILL = """
UPDATE scheduler_taskrun AS run
SET organizer_id = task.organizer_id
FROM scheduler_scheduledtask AS task
WHERE task.id = run.task_id AND task.organizer_id IS NOT NULL
"""


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0004_turns_of_runs")]

    operations = [
        migrations.RunSQL(_FILL, migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name="taskrun",
            index=models.Index(
                condition=models.Q(("turn__isnull", False)),
                fields=["turn", "due_at", "id"],
                name="task_run_turns",
            ),
        ),
        migrations.AddIndex(
            model_name="taskrun",
            index=models.Index(
                condition=models.Q(("state__in", ["picked", "running"])),
                fields=["organizer_id", "turn"],
                name="task_run_organizer_turns",
            ),
        ),
    ]
