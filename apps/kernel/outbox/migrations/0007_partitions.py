"""Partitions of a topic, and the partitions that have something to deliver, found by as many steps along an index as there are."""

from importlib import import_module

from django.db import migrations, models

WAITING_TOPICS = import_module("apps.kernel.outbox.migrations.0004_waiting_topics").FORWARD
WAITING_PARTITIONS = """
CREATE VIEW outbox_waitingpartition AS
WITH RECURSIVE waiting AS (
    (
        SELECT message.topic, message.partition
        FROM outbox_outboxmessage AS message
        WHERE message.done_at IS NULL AND message.dead_at IS NULL AND NOT message.is_behind
        ORDER BY message.topic, message.partition
        LIMIT 1
    )
    UNION ALL
    SELECT following.topic, following.partition
    FROM waiting
    CROSS JOIN LATERAL (
        SELECT message.topic, message.partition
        FROM outbox_outboxmessage AS message
        WHERE message.done_at IS NULL AND message.dead_at IS NULL AND NOT message.is_behind
          AND (message.topic, message.partition) > (waiting.topic, waiting.partition)
        ORDER BY message.topic, message.partition
        LIMIT 1
    ) AS following
)
SELECT waiting.topic, waiting.partition
FROM waiting
"""
DROP_TOPICS, DROP_PARTITIONS = "DROP VIEW outbox_waitingtopic", "DROP VIEW outbox_waitingpartition"


class Migration(migrations.Migration):
    dependencies = [("outbox", "0006_keys_of_any_address")]

    operations = [
        migrations.AddField(
            model_name="outboxmessage",
            name="partition",
            field=models.SmallIntegerField(
                db_default=0, help_text="Messages of one topic are claimed from its partitions in turn."
            ),
        ),
        migrations.RunSQL(DROP_TOPICS, WAITING_TOPICS),
        migrations.RemoveIndex(model_name="outboxmessage", name="outbox_message_due"),
        migrations.AddIndex(
            model_name="outboxmessage",
            index=models.Index(
                fields=["topic", "partition", "available_at", "id"],
                condition=models.Q(done_at__isnull=True, dead_at__isnull=True, is_behind=False),
                name="outbox_message_due",
            ),
        ),
        migrations.RunSQL(WAITING_PARTITIONS, DROP_PARTITIONS),
    ]
