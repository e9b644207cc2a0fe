from django.db import migrations


class Migration(migrations.Migration):
    """Claims pass over what was settled since the last vacuum: a fifth of a week's messages is too much of that."""

    dependencies = [
        ('outbox', '0002_behind_and_claimed_at'),
    ]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE outbox_outboxmessage"
            " SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)",
            "ALTER TABLE outbox_outboxmessage RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)",
        ),
    ]
