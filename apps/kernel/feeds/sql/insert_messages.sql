-- Inserts these messages with their sequence numbers and states. The caller has locked the feed.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at)
INSERT INTO feeds_message (
    feed_id, sequence, message_id, key, body, fingerprint, state, sent_at, visible_at, expires_at, receives,
    receives_left
)
SELECT
    %(feed)s, given.sequence, given.message_id, given.key, given.body, given.fingerprint, given.state, clock.at,
    clock.at, clock.at + make_interval(secs => %(retention_seconds)s), 0, %(receives_max)s
FROM clock
CROSS JOIN unnest(
    %(sequences)s::bigint[], %(ids)s::text[], %(keys)s::text[], %(bodies)s::text[], %(fingerprints)s::text[],
    %(states)s::text[]
) AS given (sequence, message_id, key, body, fingerprint, state)
ORDER BY given.sequence
