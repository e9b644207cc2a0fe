-- Adds to the counts of today's searches without results, in the order of their texts. New texts are left out once the day has enough.
INSERT INTO events_missedsearch AS kept (day, text, count)
SELECT today.day, one.text, one.count
FROM unnest(%(texts)s::text[], %(counts)s::integer[]) AS one (text, count),
     (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS day) AS today
WHERE (SELECT count(*) FROM events_missedsearch WHERE day = today.day) < %(texts_max)s::bigint
   OR EXISTS (SELECT FROM events_missedsearch AS known WHERE known.day = today.day AND known.text = one.text)
ORDER BY one.text
ON CONFLICT (day, text) DO UPDATE SET count = kept.count + excluded.count
