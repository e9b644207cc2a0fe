-- The outbox's figures: published in the last minute (counted up to 100,000), pending, stuck for over five minutes,
-- given up, mean seconds from claim to settlement in the last hour (of the latest 10,000), pending ones of the topics
-- %(of_mail)s.
SELECT
    (
        SELECT count(*)
        FROM (SELECT created_at FROM outbox_outboxmessage ORDER BY id DESC LIMIT 100000) AS latest
        WHERE latest.created_at > clock_timestamp() - interval '1 minute'
    ),
    (SELECT count(*) FROM outbox_outboxmessage WHERE done_at IS NULL AND dead_at IS NULL),
    (
        SELECT count(*)
        FROM outbox_outboxmessage
        WHERE done_at IS NULL
          AND dead_at IS NULL
          AND claimed_until IS NOT NULL
          AND claimed_at < clock_timestamp() - interval '5 minutes'
    ),
    (SELECT count(*) FROM outbox_outboxmessage WHERE dead_at IS NOT NULL),
    (
        SELECT avg(extract(epoch FROM latest.done_at - latest.claimed_at))::float8
        FROM (
            SELECT done_at, claimed_at
            FROM outbox_outboxmessage
            WHERE done_at > (SELECT clock_timestamp()) - interval '1 hour'
            ORDER BY done_at DESC
            LIMIT 10000
        ) AS latest
    ),
    (
        SELECT count(*)
        FROM outbox_outboxmessage
        WHERE done_at IS NULL AND dead_at IS NULL AND topic = ANY(%(of_mail)s::text[])
    )
