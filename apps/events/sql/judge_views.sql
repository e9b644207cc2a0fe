-- Counts the views of one shard between two positions and two times by event, minute, referrer and verdict. Each is judged
-- by the rules under which it was logged and by the views before it in the shard. Of the views of one address in a minute
-- of the clock that would count otherwise, the first ones count, so that refused ones delay no other. `since` is so much
-- earlier that all views are included that the rules compare with.
WITH span AS MATERIALIZED (
    SELECT log.position, log.at, log.event_id, log.person, log.address, log.referrer, log.is_bot,
           log.is_staff AND rules.excludes_staff AS is_staff,
           log.seconds < rules.min_seconds AS is_short,
           rules.repeat_seconds, rules.address_max,
           date_trunc('minute', log.at, 'UTC') AS minute,
           log.position > %(after)s::bigint AND log.at >= %(first)s::timestamptz AND log.at < %(until)s::timestamptz
               AS is_asked
    FROM events_viewlog AS log
    JOIN events_viewruleset AS rules ON rules.id = log.rules_id
    WHERE log.shard = %(shard)s::smallint
      AND log.at >= %(since)s::timestamptz AND log.at < %(until)s::timestamptz
      AND log.position <= %(last)s::bigint
), compared AS (
    SELECT span.*,
           lag(at) OVER (
               PARTITION BY event_id, person, is_bot OR is_staff OR is_short ORDER BY position
           ) AS viewed_at
    FROM span
    -- Whether the other views of an address count depends on those of their persons, who may have other addresses, too.
    WHERE person IN (
        SELECT person FROM span
        WHERE minute >= date_trunc('minute', %(first)s::timestamptz, 'UTC')
          AND address IN (SELECT address FROM span WHERE is_asked)
    )
), judged AS (
    SELECT compared.*,
           CASE
               WHEN is_bot THEN 'bots'
               WHEN is_staff THEN 'staff'
               WHEN is_short THEN 'short'
               WHEN at - viewed_at < make_interval(secs => repeat_seconds) THEN 'repeated'
               ELSE 'counted'
           END AS verdict
    FROM compared
), ranked AS (
    SELECT judged.*, row_number() OVER (PARTITION BY address, minute, verdict ORDER BY position) AS place
    FROM judged
), verdicts AS (
    SELECT event_id, at, minute, referrer,
           CASE WHEN verdict = 'counted' AND place > address_max THEN 'over_address_max' ELSE verdict END AS verdict
    FROM ranked
    WHERE is_asked
)
SELECT event_id, minute, verdict, CASE WHEN verdict = 'counted' THEN referrer ELSE '' END AS host, count(*), max(at)
FROM verdicts
GROUP BY 1, 2, 3, 4
