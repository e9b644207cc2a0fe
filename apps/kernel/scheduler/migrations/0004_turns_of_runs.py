from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0003_files_of_runs")]

    operations = [
        migrations.RemoveField(model_name="taskrun", name="handed_at"),
        migrations.AddField(
            model_name="taskrun",
            name="organizer_id",
            field=models.BigIntegerField(db_default=0, default=0, help_text="Of its task; 0: the whole site."),
        ),
        migrations.AddField(
            model_name="taskrun",
            name="turn",
            field=models.BigIntegerField(
                blank=True,
                help_text="From when it is due to its end: the run with the lowest one starts first.",
                null=True,
            ),
        ),
        migrations.AddConstraint(
            model_name="taskrun",
            constraint=models.CheckConstraint(
                condition=models.Q(("turn__isnull", True), ("state__in", ["picked", "running"]), _connector="OR"),
                name="task_run_turn_until_its_end",
            ),
        ),
    ]
