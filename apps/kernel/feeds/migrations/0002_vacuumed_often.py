from django.db import migrations


class Migration(migrations.Migration):
    """Receives pass over the entries of messages that were received or deleted since the last vacuum: a fifth of a million
    messages is too much of that."""

    dependencies = [
        ('feeds', '0001_initial'),
    ]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE feeds_message SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)",
            "ALTER TABLE feeds_message RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)",
        ),
    ]
