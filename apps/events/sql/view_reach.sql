-- The views of the last hour of these events, of which each address has at most %(address_max)s. Without those of bots and
-- staff. Views of one address are in one shard, and the primary key finds the last hour of each shard.
SELECT one.event_id, sum(one.views)::bigint
FROM events_viewshard AS shard
CROSS JOIN LATERAL (
    SELECT log.event_id, least(count(*), %(address_max)s) AS views
    FROM events_viewlog AS log
    WHERE log.shard = shard.shard
      AND log.at > (SELECT clock_timestamp()) - interval '1 hour'
      AND log.event_id = ANY(%(event_ids)s::bigint[])
      AND NOT log.is_bot
      AND NOT log.is_staff
    GROUP BY log.event_id, log.address
) AS one
GROUP BY one.event_id
