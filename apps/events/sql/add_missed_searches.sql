-- Adds to the counts of today's searches without results, in the order of their texts. New texts are left out once the day
-- has enough. The digests of addresses, separated by commas, are kept until there are %(addresses_min)s different ones.
INSERT INTO events_missedsearch AS kept (day, text, count, is_common, addresses)
SELECT
    today.day, one.text, one.count, given.count >= %(addresses_min)s::bigint,
    CASE WHEN given.count >= %(addresses_min)s::bigint THEN '' ELSE one.addresses END
FROM unnest(%(texts)s::text[], %(counts)s::integer[], %(addresses)s::text[]) AS one (text, count, addresses)
CROSS JOIN LATERAL (SELECT count(*) FROM string_to_table(one.addresses, ',')) AS given
CROSS JOIN (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS day) AS today
WHERE (SELECT count(*) FROM events_missedsearch WHERE day = today.day) < %(texts_max)s::bigint
   OR EXISTS (SELECT FROM events_missedsearch AS known WHERE known.day = today.day AND known.text = one.text)
ORDER BY one.text
ON CONFLICT (day, text) DO UPDATE
SET count = kept.count + excluded.count,
    (is_common, addresses) = (
        SELECT
            kept.is_common OR excluded.is_common OR count(*) >= %(addresses_min)s::bigint,
            CASE
                WHEN kept.is_common OR excluded.is_common OR count(*) >= %(addresses_min)s::bigint THEN ''
                ELSE string_agg(merged.digest, ',')
            END
        FROM (
            SELECT DISTINCT digest
            FROM string_to_table(kept.addresses || ',' || excluded.addresses, ',') AS part (digest)
            WHERE digest <> ''
        ) AS merged
    )
