-- Appends a batch of views at the ends of their shards, unless it has been appended. The shards' rows stay locked until
-- the commit, so positions are consecutive in the order of commits; the time is read under the lock and never falls.
WITH batch AS (
    INSERT INTO events_viewbatch (id, at) VALUES (%(batch_id)s::uuid, clock_timestamp()) ON CONFLICT DO NOTHING
    RETURNING id
), given AS (
    SELECT * FROM unnest(
        %(shards)s::smallint[], %(event_ids)s::bigint[], %(persons)s::bigint[], %(addresses)s::bigint[],
        %(seconds)s::integer[], %(are_staff)s::boolean[], %(are_bots)s::boolean[], %(rules_ids)s::integer[],
        %(referrers)s::text[]
    ) WITH ORDINALITY AS one (
        shard, event_id, person, address, seconds, is_staff, is_bot, rules_id, referrer, ordinal
    )
    WHERE EXISTS (SELECT FROM batch)
), sized AS (
    SELECT shard, count(*) AS size FROM given GROUP BY shard
), ends AS (
    INSERT INTO events_viewshard AS shard_end (shard, last_position, last_at)
    SELECT shard, size, clock_timestamp() FROM sized ORDER BY shard
    ON CONFLICT (shard) DO UPDATE
    SET last_position = shard_end.last_position + excluded.last_position,
        last_at = greatest(shard_end.last_at, clock_timestamp())
    RETURNING shard, last_position, last_at
)
INSERT INTO events_viewlog (
    shard, at, position, event_id, person, address, seconds, is_staff, is_bot, rules_id, referrer
)
SELECT given.shard, ends.last_at,
       ends.last_position - sized.size + row_number() OVER (PARTITION BY given.shard ORDER BY given.ordinal),
       given.event_id, given.person, given.address, given.seconds, given.is_staff, given.is_bot, given.rules_id,
       given.referrer
FROM given JOIN ends USING (shard) JOIN sized USING (shard)
