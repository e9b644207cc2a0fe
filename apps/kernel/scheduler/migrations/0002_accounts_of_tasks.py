from django.conf import settings
from django.db import migrations, models

# Tasks that staff have scheduled before act for the account of that name; without one (0) they fail.
_FILL = """
UPDATE scheduler_scheduledtask AS task
SET account_id = coalesce((SELECT id FROM accounts_user WHERE username = task.created_by), 0)
WHERE created_by <> 'scheduler';
UPDATE scheduler_taskrun AS run
SET asked_account_id = coalesce((SELECT id FROM accounts_user WHERE username = run.asked_by), 0)
WHERE asked_by <> '';
"""


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="scheduledtask",
            name="account_id",
            field=models.BigIntegerField(
                blank=True,
                help_text="The account of created_by, whose permission each run checks; empty: code.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="taskrun",
            name="asked_account_id",
            field=models.BigIntegerField(blank=True, help_text="The account of asked_by.", null=True),
        ),
        migrations.RunSQL(_FILL, migrations.RunSQL.noop),
    ]
