"""The topics that have something to deliver, found by as many steps along an index as there are of them."""

from django.db import migrations

FORWARD = """
CREATE VIEW outbox_waitingtopic AS
WITH RECURSIVE topic AS (
    (
        SELECT message.topic AS name
        FROM outbox_outboxmessage AS message
        WHERE message.done_at IS NULL AND message.dead_at IS NULL AND NOT message.is_behind
        ORDER BY message.topic
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT message.topic
        FROM outbox_outboxmessage AS message
        WHERE message.done_at IS NULL AND message.dead_at IS NULL AND NOT message.is_behind
          AND message.topic > topic.name
        ORDER BY message.topic
        LIMIT 1
    )
    FROM topic
    WHERE topic.name IS NOT NULL
)
SELECT topic.name
FROM topic
WHERE topic.name IS NOT NULL
"""


class Migration(migrations.Migration):
    dependencies = [("outbox", "0003_vacuumed_often")]

    operations = [migrations.RunSQL(FORWARD, "DROP VIEW outbox_waitingtopic")]
