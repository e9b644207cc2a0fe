-- The documents of each of these terms by weight, as packed integers of four bytes, most significant byte first.
SELECT term_id, weight, string_agg(int4send(number), '')
FROM events_searchposting
WHERE term_id = ANY(%(term_ids)s::bigint[])
GROUP BY term_id, weight
