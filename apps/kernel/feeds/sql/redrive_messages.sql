-- Puts these locked dead letters at the end of the feed, as if they had just been sent. Their old receipts are void.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at)
UPDATE feeds_message AS message
SET sequence = given.sequence,
    state = given.state,
    visible_at = clock.at,
    expires_at = clock.at + make_interval(secs => %(retention_seconds)s),
    receives = 0,
    receives_left = %(receives_max)s,
    receipt = NULL,
    received_at = NULL,
    ended_at = NULL
FROM unnest(%(ids)s::bigint[], %(sequences)s::bigint[], %(states)s::text[]) AS given (id, sequence, state)
CROSS JOIN clock
WHERE message.id = given.id
