-- Deletes up to %(limit)s rows of deleted messages of the feed: those beyond the kept number, oldest first, and those
-- older than the kept days. The caller has locked the feed.
DELETE FROM feeds_message
WHERE id = ANY(
    ARRAY(
        SELECT message.id
        FROM (
            SELECT old.id, old.ended_at, row_number() OVER (ORDER BY old.ended_at) AS position
            FROM (
                SELECT id, ended_at
                FROM feeds_message
                WHERE feed_id = %(feed)s AND state = 'deleted'
                ORDER BY ended_at
                LIMIT %(limit)s
            ) AS old
        ) AS message
        WHERE message.position <= %(surplus)s
           OR message.ended_at <= clock_timestamp() - make_interval(days => %(kept_days)s)
    )
)
