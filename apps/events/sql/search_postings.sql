-- The documents of each of these terms by weight, lowest first, as packed integers of four bytes, most significant byte
-- first. In the order of the index postings_of_terms, nothing is sorted.
SELECT term_id, weight, string_agg(int4send(number), '' ORDER BY number)
FROM events_searchposting
WHERE term_id = ANY(%(term_ids)s::bigint[])
GROUP BY term_id, weight
